"""Memory of a worker, by part."""
