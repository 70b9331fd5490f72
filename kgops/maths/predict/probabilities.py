"""The probability that a model's loss gives to a score: by sigmoid or softmax; none for losses with margins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

# PyKEEN's losses in which a score is a logit of one triple, or of one entity among all.
_OF_TRIPLES = ("BCEWithLogitsLoss", "BCEAfterSigmoidLoss", "SoftplusLoss", "FocalLoss")
_OF_ENTITIES = ("CrossEntropyLoss",)


@dataclass(frozen=True)
class Probability:
    """`sigmoid`: that the triple is true; `softmax`: the answer's share among all entities; None: not defined."""

    kind: Literal["sigmoid", "softmax"] | None

    @property
    def needs_all(self) -> bool:
        """Whether the scores of all entities are needed."""
        return self.kind == "softmax"

    def of(self, scores: torch.Tensor, normalizer: torch.Tensor | None) -> torch.Tensor | None:
        """`normalizer`: the logarithm of the sum of exp(score) over all entities."""
        if self.kind == "sigmoid":
            return torch.sigmoid(scores.double())
        if self.kind == "softmax" and normalizer is not None:
            return torch.exp(scores.double() - normalizer.double())
        return None


def probability_of(loss: Mapping[str, Any] | None, model: object) -> Probability:
    """By the loss that the checkpoint records, such as kvsall-bce; else by that of a PyKEEN model."""
    kind = str((loss or {}).get("name") or "").rpartition("-")[2]
    if kind:
        return Probability({"bce": "sigmoid", "ce": "softmax"}.get(kind))  # type: ignore[arg-type]
    of_model = type(getattr(model, "loss", None)).__name__
    return Probability(
        "sigmoid" if of_model in _OF_TRIPLES else "softmax" if of_model in _OF_ENTITIES else None
    )
