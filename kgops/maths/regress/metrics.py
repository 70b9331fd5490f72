"""Predictions of heights and their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch.nn import functional as F

from kgops.maths.regress.batches import Batch, Scaling, Windows
from kgops.maths.regress.network import RegressionModel
from kgops.maths.regress.stages import Stage


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
    heights = torch.tensor(true, dtype=torch.float64)
    return HeightReport(
        stage.held_out.name,
        Heights.of(torch.tensor(predicted, dtype=torch.float64), heights),
        Heights.of(torch.full_like(heights, mean), heights),
        mean,
        stage.leaves_one_out,
    )


QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Heights:
    """Errors in km: means, a share of the height (None where a height is 0), R², and quantiles of |error|.

    R² is None where all heights are equal.
    """

    count: int
    mae: float
    rmse: float
    mape: float | None
    r2: float | None
    quantiles: dict[float, float]

    @classmethod
    def of(cls, predicted: torch.Tensor, true: torch.Tensor) -> Heights:
        predicted, true = predicted.double().cpu(), true.double().cpu()
        error = predicted - true
        spread = (true - true.mean()).square().sum()
        at = torch.tensor(QUANTILES, dtype=torch.float64)
        return cls(
            len(true),
            float(error.abs().mean()),
            float(error.square().mean().sqrt()),
            float((error / true).abs().mean()) if bool((true != 0).all()) else None,
            float(1 - error.square().sum() / spread) if spread > 0 else None,
            dict(zip(QUANTILES, torch.quantile(error.abs(), at).tolist(), strict=True)),
        )

    def to_dict(self) -> dict[str, float | None]:
        named = {f"error_p{100 * share:g}": value for share, value in self.quantiles.items()}
        plain = {name: value for name, value in asdict(self).items() if name != "quantiles"}
        return {**plain, **named}


@dataclass(frozen=True)
class HeightReport:
    """Errors on a held-out flight: of the model, and of always predicting `mean_km`."""

    flight: str
    model: Heights
    mean_predictor: Heights
    mean_km: float
    leaves_one_out: bool = False  # the final training may have held out the same flight

    @property
    def verdict(self) -> str:
        """One sentence that states plainly what a negative R² means."""
        fold = "leave-one-out: " if self.leaves_one_out else ""
        r2, what = self.model.r2, f"{fold}on {self.flight}, which was held out,"
        if r2 is None:
            return f"{what} all heights are equal: R² is undefined."
        errors = f"RMSE {self.model.rmse:.3g} km against {self.mean_predictor.rmse:.3g} km"
        always = f"always predicting {self.mean_km:.3g} km, the mean of the training flights"
        if self.model.rmse >= self.mean_predictor.rmse:
            return f"{what} the model is worse than {always}: R² {r2:.3f}, {errors}."
        if r2 < 0:
            return (
                f"{what} the model is worse than predicting that flight's mean (R² {r2:.3f} is below 0), though "
                f"better than {always}: {errors}."
            )
        return f"{what} R² is {r2:.3f}: {errors} for {always}."

    def to_dict(self) -> dict[str, object]:
        return {
            "flight": self.flight,
            "model": self.model.to_dict(),
            "mean_predictor": {"height_km": self.mean_km, **self.mean_predictor.to_dict()},
        }


@dataclass(frozen=True)
class HeightLoss:
    """One loss for each window, of standardised heights; names as in `kgops.workloads.regress.job.LOSSES`."""

    name: str = "huber"
    alpha: float = 0.5
    delta: float = 1.0
    gamma: float = 1.5
    under_weight: float = 1.0

    def __call__(self, predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
        error = predicted.float() - true.float() if predicted.dtype != torch.float64 else predicted - true
        loss = self._plain(self.name.removeprefix("weighted_"), error)
        if self.name.startswith("weighted_"):
            loss = loss * torch.where(error < 0, self.under_weight, 1.0)
        return loss

    def _plain(self, name: str, error: torch.Tensor) -> torch.Tensor:
        if name == "mse":
            return error.square()
        if name == "mae":
            return error.abs()
        if name == "mse_mae":
            return self.alpha * error.square() + (1 - self.alpha) * error.abs()
        huber = F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=self.delta)
        if name == "huber":
            return huber
        # A power below 1 has an infinite slope at 0 and huge ones nearby.
        power = (error.abs() + 1e-8).pow(self.gamma)
        return self.alpha * huber + (1 - self.alpha) * power
