"""Predicts heights of windows in km, and evaluates them on held-out flights."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from kgops.regression.batches import Scaling
from kgops.regression.metrics import HeightReport, judge
from kgops.regression.network import RegressionModel
from kgops.regression.stages import Stage
from kgops.regression.windows import Batch, Windows

__all__ = ["judge_stage", "predict"]


@torch.no_grad()
def predict(
    model: RegressionModel,
    scaling: Scaling,
    batches: Iterator[Batch],
    at_once: int,
    done: Callable[[int], bool] = lambda windows: True,
) -> torch.Tensor | None:
    """Predicts in evaluation mode and float32, `at_once` windows at a time. `done` gets the number of windows of each
    batch; None once it returns False."""
    was_training = model.training
    model.eval()
    heights: list[torch.Tensor] = []
    try:
        for batch in batches:
            images = scaling.images(batch.images)
            for start in range(0, len(batch), at_once):
                rows = slice(start, start + at_once)
                heights.append(scaling.in_km(model(images[rows], batch.angles[rows])).cpu())
            if not done(len(batch)):
                return None
    finally:
        model.train(was_training)
    return torch.cat(heights)


def judge_stage(stage: Stage, frames: int, predicted: list[float], true: list[float]) -> HeightReport:
    """Errors, compared with always predicting the mean height of the training windows."""
    mean = float(Windows(stage.scaled_by, frames).heights.astype(float).mean())
    return judge(
        stage.held_out.name,
        torch.tensor(predicted, dtype=torch.float64),
        torch.tensor(true, dtype=torch.float64),
        mean,
    )
