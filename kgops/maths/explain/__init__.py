"""Explanations: training triples of head and tail that carry a prediction, and what carries it over to other heads."""
