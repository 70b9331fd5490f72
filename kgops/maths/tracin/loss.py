"""Loss whose gradients TracIn compares: target, one-to-n or the training loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kgops.errors import BadInput
from kgops.maths.train.losses import ALL, SMOOTHED_OVER


class KnownTails:
    """The training tails of every (head, relation row)."""

    def __init__(self, rows: torch.Tensor, num_relation_rows: int) -> None:
        rows = torch.unique(rows, dim=0)  # lexicographic, so equal (head, relation) are adjacent
        self.num_relation_rows = num_relation_rows
        keys = rows[:, 0] * num_relation_rows + rows[:, 1]
        self._keys, counts = torch.unique_consecutive(keys, return_counts=True)
        self._counts = counts
        self._first = counts.cumsum(0) - counts
        self._tails = rows[:, 2].contiguous()

    def positives(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pairs (index into `rows`, entity): the known tails of each row and its own tail, without duplicates."""
        at, known = self._find(rows)
        counts = self._counts[at] * known
        index = torch.repeat_interleave(counts)
        position = torch.arange(len(index), device=rows.device) - (counts.cumsum(0) - counts)[index]
        tails = self._tails[self._first[at][index] + position]
        own = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        own[index[tails == rows[index, 2]]] = False
        added = own.nonzero()[:, 0]
        return torch.cat([index, added]), torch.cat([tails, rows[added, 2]])

    def contains(self, rows: torch.Tensor) -> torch.Tensor:
        """Whether each row's tail is known."""
        index, _ = self.positives(rows)
        seen = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        seen.index_add_(0, index, torch.ones_like(index))
        at, known = self._find(rows)
        only_known: torch.Tensor = seen == self._counts[at] * known
        return only_known  # there is one more where the row's tail was added

    def _find(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = rows[:, 0] * self.num_relation_rows + rows[:, 1]
        at = torch.searchsorted(self._keys, keys).clamp_max(max(len(self._keys) - 1, 0))
        known: torch.Tensor = self._keys[at] == keys
        return at, known


@dataclass(frozen=True)
class TracinLoss:
    """The loss of one triple.

    `target`: binary cross-entropy of the triple's logit, label 1. `logit`: minus the logit itself. `bce`: mean binary
    cross-entropy over all entities. `softmax`: cross-entropy over all entities. Smoothing is over all entities
    (`EntityLoss`); with `over_others`, as PyKEEN trains, it leaves out the positive. Without `known`, the triple's tail
    is the only positive. With it, the loss is the training sample's: (head, relation) with all its tails (KvsAll). An
    unseen triple adds its tail.
    """

    kind: Literal["target", "logit", "bce", "softmax"]
    smoothing: float = 0.0
    known: KnownTails | None = None
    over_others: bool = False

    def targets(self, entities: int) -> tuple[float, float]:
        """Of a negative and of a positive, under `bce`."""
        if self.over_others:
            return self.smoothing / max(entities - 1, 1), 1 - self.smoothing
        return self.smoothing / entities, 1 - self.smoothing + self.smoothing / entities

    @property
    def all_scores(self) -> bool:
        """Whether it reads the scores of all entities, not only the tail's."""
        return self.kind not in ("target", "logit")


TARGET = TracinLoss("target")
LOGIT = TracinLoss("logit")
ONE_TO_N = TracinLoss("bce")


def trained_loss(recorded: Mapping[str, Any], train_rows: torch.Tensor, relation_rows: int) -> TracinLoss:
    """The loss that a checkpoint records; `train_rows`: all rows it was trained on, with inverses."""
    name = str(recorded.get("name"))
    sampling, _, kind = name.partition("-")
    if sampling not in ("kvsall", "1vsall") or kind not in ("bce", "ce"):
        raise BadInput(
            f"the checkpoint was trained with the unknown loss '{name}'.",
            hint="choose --loss one-to-n or --loss target.",
        )
    known = KnownTails(train_rows, relation_rows) if sampling == "kvsall" else None
    smoothing = float(recorded.get("label_smoothing", 0.0))
    over_others = recorded.get(SMOOTHED_OVER) != ALL
    return TracinLoss("bce" if kind == "bce" else "softmax", smoothing, known, over_others)
