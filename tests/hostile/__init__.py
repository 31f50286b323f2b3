"""Hostile cases: ``python -m tests.hostile`` runs all of them and prints counts; ``pytest`` runs a sample."""
