"""Checkpoints of the regression network: ConvE's file format plus the scaling to kilometres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.regress import RegressionConfig
from kgops.regression.batches import Scaling
from kgops.regression.network import RegressionModel, load_weights, plain_names
from kgops.regression.settings import MAY_DIFFER, RegressionSettings
from kgops.training import checkpoints
from kgops.training.checkpoints import BadCheckpoint, Checkpoint

__all__ = ["Trained", "as_checkpoint", "read_trained", "refuse_foreign", "same_network"]

_WORKLOAD = "regress"
_BY_FALLBACKS = ("channels", "temporal_frames")  # of the network; a run with other values starts from epoch 1


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
    """`flights` is the digest of the training flights."""
    return Checkpoint(
        model=plain_names(model.state_dict()),
        config=config.to_dict(),
        epoch=epoch,
        batch=batch,
        learning_rate=learning_rate,
        loss={"name": settings.loss_type, "workload": _WORKLOAD},
        entities_digest=flights,
        relations_digest="",
        settings=settings.to_dict(),
        training={"scaling": scaling.to_dict(), **(training or {})},
    )


def read_trained(path: Path, device: torch.device | str = "cpu") -> Trained:
    checkpoint = checkpoints.read_checkpoint(path, device)
    if checkpoint.loss.get("workload") != _WORKLOAD:
        raise BadCheckpoint(
            f"{path} is a checkpoint of another workload.", hint="give a checkpoint of a regress run."
        )
    model = RegressionModel(RegressionConfig(**checkpoint.config)).to(device)
    load_weights(model, checkpoint.model)
    return Trained(model.eval(), Scaling(**checkpoint.training["scaling"]), checkpoint.epoch)


def same_network(checkpoint: Checkpoint, config: RegressionConfig) -> bool:
    """Whether the checkpoint has this network; the last OOM fallbacks change the network of a job."""
    return all(checkpoint.config.get(name) == config.to_dict()[name] for name in _BY_FALLBACKS)


def refuse_foreign(
    checkpoint: Checkpoint, config: RegressionConfig, settings: RegressionSettings, flights: str
) -> None:
    """Raises if the checkpoint belongs to another network, other flights or another data order."""
    saved, current = checkpoint.settings, settings.to_dict()
    same = {
        "workload": checkpoint.loss.get("workload") == _WORKLOAD,
        "flights": checkpoint.entities_digest == flights,
        "network": dict(checkpoint.config) == config.to_dict(),
        **{name: saved.get(name) == current[name] for name in current if name not in MAY_DIFFER},
    }
    differs = [name for name, agrees in same.items() if not agrees]
    if differs:
        raise BadInput(
            f"the checkpoint of epoch {checkpoint.epoch} belongs to another training: "
            f"its {', '.join(differs)} {'differs' if len(differs) == 1 else 'differ'}.",
            hint="resume with the original settings and files, or start a new run.",
        )
