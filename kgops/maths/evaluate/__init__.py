"""Evaluation: ranks of triples by a trained model."""
