"""Default batch, block and chunk sizes of a predict run, for workers and memory estimates."""

from __future__ import annotations

from kgops.jobs.option import defaults_of
from kgops.workloads.predict.options import PREDICT_OPTIONS

_PREDICT = defaults_of(PREDICT_OPTIONS)

PREDICT_CHUNK: int = _PREDICT["entity_chunk"]  # entities
PREDICT_ENCODED = 256  # heads or questions encoded at once
PREDICT_SCORES = 1 << 23  # of all entities, for the questions of a block
PREDICT_SPARE = 16  # candidates beyond the last answer that are scored again
PREDICT_WAITING = 1 << 16  # pairs that are ranked together
PREDICT_PAIRS_AGAIN = 1 << 15  # scored again at once
