"""Training: batches, losses, precision, the epoch loop, evaluation, checkpoints."""
