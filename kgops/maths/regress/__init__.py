"""Regression: heights from short windows of camera frames. Flights, network, training."""
