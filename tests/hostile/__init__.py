"""Hostile cases by the thousand: ``python -m tests.hostile`` runs all of them and prints counts; CI runs a slice."""
