"""Sizes of one stage of a job, from which its memory is predicted."""

from __future__ import annotations

from kgops.planning.predict_sizes import PredictShape
from kgops.planning.regress_sizes import RegressShape
from kgops.planning.tracin_sizes import TracinShape
from kgops.planning.train_sizes import TrainShape

__all__ = ["Shape"]

Shape = TrainShape | PredictShape | TracinShape | RegressShape
