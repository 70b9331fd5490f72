"""Default batch, block and chunk sizes of an explain run, for workers and memory estimates."""

from __future__ import annotations

EXPLAIN_RIVALS = (
    4  # entities with the highest scores that are no known answers: those that would take a lost rank
)
