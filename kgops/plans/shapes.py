"""What a budget is predicted of: the numbers that decide the memory of one stage of a job."""

from __future__ import annotations

from kgops.plans.regress_shape import RegressShape
from kgops.plans.tracin_shape import TracinShape
from kgops.plans.train_shape import TrainShape

__all__ = ["Shape"]

Shape = TrainShape | TracinShape | RegressShape
