"""Default batch, block and chunk sizes of a regression, for workers and memory estimates."""

from __future__ import annotations

from kgops.jobs.option import defaults_of
from kgops.workloads.regress.options import REGRESS_OPTIONS

_REGRESS = defaults_of(REGRESS_OPTIONS)

REGRESS_BATCH: int = _REGRESS["batch_size"]  # windows
REGRESS_FRAMES: int = _REGRESS["temporal_frames"]  # of a window
REGRESS_IMAGES = "224x224"  # of frames, in a plan without data; the project it comes from names no size
REGRESS_VALIDATION_SHARE = 0.15  # of a flight's windows, its last ones
