"""What a training loss asks of one query (head, relation): its weight, and the targets of entities that are true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kgops.errors import BadInput
from kgops.training.losses import LOSSES

__all__ = ["Targets", "targets_of"]

_PLAIN = "kvsall-bce"  # of a model that records no loss, as PyKEEN trains ConvE


@dataclass(frozen=True)
class Targets:
    """The loss of a query with scores s is weight · (A(s) - low · Σ s) - lift · Σ s of its true tails.

    A is the sum of softplus (`bce`) or the log-sum-exp (`softmax`). With `one_positive` (1vsAll) every true tail is a
    query of its own; otherwise (KvsAll) all tails share one, and a query without any is not trained on.
    """

    kind: Literal["bce", "softmax"]
    one_positive: bool
    smoothing: float
    entities: int

    @property
    def low(self) -> float:
        """The target of an entity that is not true."""
        return self.smoothing / (max(self.entities - 1, 1) if self.kind == "bce" else self.entities)

    def weight(self, tails: torch.Tensor) -> torch.Tensor:
        """Of queries with so many true tails."""
        return tails if self.one_positive else (tails > 0).to(tails)

    def lift(self, tails: torch.Tensor) -> torch.Tensor:
        """What the target of each true tail is above `low`."""
        some = (tails > 0).to(tails)
        if self.kind == "bce":
            return some * (1 - self.smoothing - self.low)
        return some * (1 - self.smoothing) / (1 if self.one_positive else tails.clamp_min(1))


def targets_of(recorded: Mapping[str, Any] | None, entities: int) -> Targets:
    """By the loss that a checkpoint records; without a record that of PyKEEN's ConvE."""
    name = str((recorded or {}).get("name") or _PLAIN)
    if name not in LOSSES:
        raise BadInput(
            f"the checkpoint was trained with the unknown loss '{name}'.",
            hint=f"an explanation needs one of {', '.join(LOSSES)}.",
        )
    sampling, _, kind = name.partition("-")
    smoothing = float((recorded or {}).get("label_smoothing") or 0.0)
    return Targets("bce" if kind == "bce" else "softmax", sampling == "1vsall", smoothing, entities)
