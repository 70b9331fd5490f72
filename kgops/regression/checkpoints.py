"""Checkpoints of the regression network: ConvE's file format plus the scaling to kilometres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.regress import RegressionConfig
from kgops.regression.batches import Scaling
from kgops.regression.network import plain_names
from kgops.regression.settings import MAY_DIFFER, RegressionSettings
from kgops.training.checkpoints import Checkpoint

__all__ = ["as_checkpoint", "refuse_foreign", "same_network"]

_WORKLOAD = "regress"
_BY_FALLBACKS = ("channels", "temporal_frames")  # of the network; a run with other values starts from epoch 1


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
