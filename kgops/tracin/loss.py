"""The loss whose gradients are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kgops.errors import BadInput

__all__ = ["ONE_TO_N", "TARGET", "KnownTails", "TracinLoss", "trained_loss"]


class KnownTails:
    """The training tails of every (head, relation row)."""

    def __init__(self, rows: torch.Tensor, num_relation_rows: int) -> None:
        rows = torch.unique(rows, dim=0)  # lexicographic, so equal (head, relation) stand together
        self.num_relation_rows = num_relation_rows
        keys = rows[:, 0] * num_relation_rows + rows[:, 1]
        self._keys, counts = torch.unique_consecutive(keys, return_counts=True)
        self._counts = counts
        self._first = counts.cumsum(0) - counts
        self._tails = rows[:, 2].contiguous()

    @property
    def digestible(self) -> tuple[torch.Tensor, ...]:
        """All that answers depend on."""
        return self._keys, self._counts, self._tails

    def positives(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pairs (index into `rows`, entity): every known tail of each row and the row's own, each once."""
        at, known = self._find(rows)
        counts = self._counts[at] * known
        index = torch.repeat_interleave(counts)
        place = torch.arange(len(index), device=rows.device) - (counts.cumsum(0) - counts)[index]
        tails = self._tails[self._first[at][index] + place]
        own = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        own[index[tails == rows[index, 2]]] = False
        added = own.nonzero()[:, 0]
        return torch.cat([index, added]), torch.cat([tails, rows[added, 2]])

    def contains(self, rows: torch.Tensor) -> torch.Tensor:
        """Whether each row's own tail is among the known ones."""
        index, _ = self.positives(rows)
        seen = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        seen.index_add_(0, index, torch.ones_like(index))
        at, known = self._find(rows)
        only_known: torch.Tensor = seen == self._counts[at] * known
        return only_known  # one more where the row's own was added

    def _find(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = rows[:, 0] * self.num_relation_rows + rows[:, 1]
        at = torch.searchsorted(self._keys, keys).clamp_max(max(len(self._keys) - 1, 0))
        known: torch.Tensor = self._keys[at] == keys
        return at, known

    def to(self, device: torch.device) -> KnownTails:
        moved = object.__new__(KnownTails)
        moved.num_relation_rows = self.num_relation_rows
        for name in ("_keys", "_counts", "_first", "_tails"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved


@dataclass(frozen=True)
class TracinLoss:
    """The loss of one triple.

    `target`: binary cross-entropy of the triple's own logit, label 1. `bce`: the mean over all
    entities. `softmax`: cross-entropy over all entities. Smoothing is the training's (`EntityLoss`).
    Without `known` the triple's tail is the only positive. With it the loss is that of the training
    sample the triple belongs to, (head, relation) with all its tails (KvsAll); a triple that is not
    among them adds its own tail.
    """

    kind: Literal["target", "bce", "softmax"]
    smoothing: float = 0.0
    known: KnownTails | None = None


TARGET = TracinLoss("target")
ONE_TO_N = TracinLoss("bce")


def trained_loss(recorded: Mapping[str, Any], train_rows: torch.Tensor, relation_rows: int) -> TracinLoss:
    """The loss a checkpoint records; `train_rows` are all rows it was trained on, inverses included."""
    name = str(recorded.get("name"))
    sampling, _, kind = name.partition("-")
    if sampling not in ("kvsall", "1vsall") or kind not in ("bce", "ce"):
        raise BadInput(
            f"the checkpoint says it was trained with '{name}', a loss this kgops does not know.",
            hint="choose --loss one-to-n or --loss target.",
        )
    known = KnownTails(train_rows, relation_rows) if sampling == "kvsall" else None
    smoothing = float(recorded.get("label_smoothing", 0.0))
    return TracinLoss("bce" if kind == "bce" else "softmax", smoothing, known)
