"""The engine: any USB algorithm on any device, with our data, evaluation, records and checkpoints."""
