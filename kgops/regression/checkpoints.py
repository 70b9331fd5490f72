"""Checkpoints of the image network: the same files as ConvE's, with what turns its answers into kilometres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.regression_config import RegressionConfig
from kgops.regression.batches import Scaling
from kgops.regression.network import RegressionModel, load_weights, plain_names
from kgops.regression.settings import MAY_DIFFER, RegressionSettings
from kgops.training import checkpoints
from kgops.training.checkpoints import BadCheckpoint, Checkpoint

__all__ = ["Trained", "as_checkpoint", "foreign", "read_trained", "same_network"]

_WORKLOAD = "regress"
_BY_FALLBACKS = ("channels", "temporal_frames")  # of the network; what comes after starts anew


@dataclass(frozen=True)
class Trained:
    """A network that can be asked for heights, in evaluation mode."""

    model: RegressionModel
    scaling: Scaling
    epoch: int

    @torch.no_grad()
    def heights(self, images: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """In km, for windows as the files have them and angles in degrees."""
        return self.scaling.in_km(self.model(self.scaling.images(images), angles))


def as_checkpoint(
    model: torch.nn.Module,
    config: RegressionConfig,
    settings: RegressionSettings,
    scaling: Scaling,
    flights: str,
    *,
    epoch: int,
    batch: int,
    learning_rate: float,
    training: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """`flights` is the digest of what it is trained on."""
    return Checkpoint(
        model=plain_names(model.state_dict()),
        config=config.to_dict(),
        epoch=epoch,
        batch=batch,
        learning_rate=learning_rate,
        loss={"name": settings.loss, "workload": _WORKLOAD},
        entities_digest=flights,
        relations_digest="",
        settings=settings.to_dict(),
        training={"scaling": scaling.to_dict(), **(training or {})},
    )


def read_trained(path: Path, device: torch.device | str = "cpu") -> Trained:
    found = checkpoints.read_checkpoint(path, device)
    if found.loss.get("workload") != _WORKLOAD:
        raise BadCheckpoint(f"{path} is a checkpoint of another workload.", hint="this reads regressions.")
    model = RegressionModel(RegressionConfig(**found.config)).to(device)
    load_weights(model, found.model)
    return Trained(model.eval(), Scaling(**found.training["scaling"]), found.epoch)


def same_network(found: Checkpoint, config: RegressionConfig) -> bool:
    """Whether it can be resumed at all; the OOM fallbacks' last fallbacks make another network of the same job."""
    return all(found.config.get(name) == config.to_dict()[name] for name in _BY_FALLBACKS)


def foreign(found: Checkpoint, config: RegressionConfig, settings: RegressionSettings, flights: str) -> None:
    """Raises if it is of another training: another network, other flights or another order of data."""
    theirs, ours = found.settings, settings.to_dict()
    same = {
        "workload": found.loss.get("workload") == _WORKLOAD,
        "flights": found.entities_digest == flights,
        "network": dict(found.config) == config.to_dict(),
        **{name: theirs.get(name) == ours[name] for name in ours if name not in MAY_DIFFER},
    }
    differs = [name for name, agrees in same.items() if not agrees]
    if differs:
        raise BadInput(
            f"the checkpoint of epoch {found.epoch} is of another training: "
            f"its {', '.join(differs)} {'differs' if len(differs) == 1 else 'differ'}.",
            hint="resume with the settings and files it was started with, or start anew.",
        )
