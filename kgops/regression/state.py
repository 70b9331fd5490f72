"""State of a regression, saved in every checkpoint, so it holds only numbers, lists and dicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kgops.training.loop import HOPELESS

__all__ = ["RegressionState"]


@dataclass
class RegressionState:
    """Counts are of the current stage unless noted."""

    stage: int = 0
    earlier_epochs: int = 0  # of earlier stages
    epoch: int = 0  # completed
    batch: int = 0  # done in the next epoch
    step: int = 0
    owed: bool = False  # the validation that follows a completed epoch
    early: bool = False
    loss_sum: float = 0.0
    losses: int = 0
    first_loss: float | None = None
    best_loss: float | None = None
    best_epoch: int = 0
    waited: int = 0
    seconds: float = 0.0  # of all stages, like the fields below
    loader_wait_s: float = 0.0
    windows: int = 0
    overflows: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    judged: dict[str, list[list[float]]] = field(default_factory=dict)  # stage → predicted and true heights

    @property
    def all_epochs(self) -> int:
        return self.earlier_epochs + self.epoch

    def begin_stage(self) -> None:
        """Resets the counts for a new stage."""
        self.epoch = self.batch = self.step = self.losses = self.waited = self.best_epoch = 0
        self.owed = self.early = False
        self.loss_sum, self.first_loss, self.best_loss = 0.0, None, None

    def end_stage(self) -> None:
        self.earlier_epochs, self.epoch, self.stage = self.all_epochs, 0, self.stage + 1

    def end_epoch(self, entry: dict[str, Any]) -> None:
        self.history.append(entry)
        self.epoch, self.batch, self.loss_sum, self.losses = self.epoch + 1, 0, 0.0, 0
        self.owed = True

    def add_losses(self, values: Sequence[float]) -> str | None:
        """Adds up losses; returns the reason where training has diverged."""
        for value in values:
            if self.first_loss is None:
                self.first_loss = value
            if not math.isfinite(value):
                return f"the loss of epoch {self.epoch + 1} is NaN or infinite"
            if value > HOPELESS * max(self.first_loss, 1e-3):
                return (
                    f"the loss of epoch {self.epoch + 1} has grown from {self.first_loss:.3g} to {value:.3g}"
                )
            self.loss_sum += value
            self.losses += 1
        return None

    def validated(self, loss: float | None, *, last: bool, min_delta: float, patience: int) -> bool:
        """Whether this epoch's weights are the best; without a validation loss, always."""
        self.owed = False
        better = last if loss is None else self.best_loss is None or loss < self.best_loss - min_delta
        if better:
            self.best_loss, self.best_epoch, self.waited = loss, self.epoch, 0
        else:
            self.waited += 1
            self.early = loss is not None and 0 < patience <= self.waited
        return better
