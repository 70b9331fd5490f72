"""Pipelines: a training, then predictions and TracIn with its model."""
