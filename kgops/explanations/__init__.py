"""Necessary explanations: the training triples of the head without which a prediction is lost."""
