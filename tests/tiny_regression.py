"""The smallest regression there is, for tests: a network, its settings, three flights, and how they are trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from recording import Recorder

from kgops.maths.regress.batches import Scaling
from kgops.maths.regress.flights import Flight, read_flights
from kgops.maths.regress.loop import Regression, regress
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.maths.regress.network import RegressionModel
from kgops.maths.regress.stages import RegressionSettings
from kgops.maths.train import checkpoints
from kgops.workloads.regress.job import RegressionConfig

TINY = RegressionConfig(
    16, 16, temporal_frames=3, architecture="ssm", channels=(4, 4, 8), film_width=4, states=2, dropout=0.2
)
QUICK = RegressionSettings(
    epochs=2, loo_epochs=1, batch_size=8, learning_rate=0.01, warmup_steps=3, augment=True
)


def made_flights(folder: Path) -> list[Flight]:
    make_flights(folder, 3, Sky(frames=24, size=16), seed=4)
    return read_flights(folder, TINY.temporal_frames)


def train(
    flights: list[Flight], folder: Path, settings: RegressionSettings = QUICK, **options: Any
) -> Regression:
    config = options.pop("config", TINY)
    report = options.pop("report", None) or Recorder()
    stop = options.pop("stop", lambda: False)
    return regress(flights, config, settings, folder, report, stop, **options)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(checkpoints.read_checkpoint(path).model)


@dataclass(frozen=True)
class Trained:
    """A trained network in evaluation mode, with its scaling."""

    model: RegressionModel
    scaling: Scaling
    epoch: int

    @torch.no_grad()
    def heights(self, images: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """Heights in km, from unscaled windows and angles in degrees."""
        return self.scaling.in_km(self.model(self.scaling.images(images), angles))


def read_trained(path: Path) -> Trained:
    checkpoint = checkpoints.read_checkpoint(path)
    model = RegressionModel(RegressionConfig(**checkpoint.config))
    model.load_state_dict(dict(checkpoint.model))
    return Trained(model.eval(), Scaling(**checkpoint.training["scaling"]), checkpoint.epoch)
