"""What makes any USB algorithm portable: devices, data, parameter groups, evaluation, records, checkpoints."""
