"""Default batch, block and chunk sizes of a training, for workers and memory estimates."""

from __future__ import annotations

from kgops.jobs.option import defaults_of
from kgops.workloads.train.options import DEFAULT_LOSS, TRAIN_OPTIONS

_TRAIN = defaults_of(TRAIN_OPTIONS)

TRAIN_BATCH: int = _TRAIN["batch_size"]
TRAIN_LOSS = DEFAULT_LOSS
LOSS_EVERY = 16  # steps; its value takes a pass over all scores that the gradient does not
GRAPH_WARM_UP = 3  # steps before one is captured as a CUDA graph
TRAIN_ROWS_AT_ONCE = 256  # of feature maps on their way back
LOSS_SCORES = {"cuda": 1 << 24, "cpu": 1 << 19}  # of one chunk of entities
COLUMN_FOLDS = 64  # rows that a GPU reduces together, with few enough for torch not to share a column
EVALUATION_CHUNK = {"cuda": 1 << 15, "cpu": 1024}  # entities
EVALUATION_ENCODED = 256


def loss_chunk(requested: int | None, batch_size: int, device: str) -> int:
    """Entities scored at once in a training step, on "cuda" or "cpu"."""
    return requested if requested is not None else max(256, LOSS_SCORES[device] // batch_size)
