"""Necessary explanations: the training triples of head and tail that carry a prediction."""
