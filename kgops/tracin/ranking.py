"""The triples with the highest and the lowest scores, kept while blocks of scores stream by.

The result depends on scores and ids alone, never on the order or the size of the blocks: of equal
scores the smaller id comes first. So parts ranked elsewhere can be merged in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["Ranking", "TopK"]

_TORN_AT_ONCE = 16


class Ranking:
    """The `k` highest scores for each test triple, highest first; fewer than `k` while fewer came by."""

    def __init__(self, tests: int, k: int, *, like: torch.Tensor) -> None:
        self.k = k
        self.scores = like.new_empty(tests, 0)
        self.ids = torch.empty(tests, 0, dtype=torch.long, device=like.device)

    def add(self, scores: torch.Tensor, ids: torch.Tensor) -> None:
        """`scores` (tests, n) of the triples `ids`: (n,), or (tests, n) where tests differ."""
        ids = ids.expand(scores.shape) if ids.dim() == 1 else ids
        scores, ids = torch.cat([self.scores, scores], dim=1), torch.cat([self.ids, ids], dim=1)
        if scores.shape[1] > self.k:
            best, at = scores.topk(self.k, dim=1)
            # `topk` takes any of those that tie with the last: there the ids must decide.
            last = best[:, -1:]
            torn = ((scores == last).sum(1) != (best == last).sum(1)).nonzero()[:, 0]
            kept = ids.gather(1, at)
            # Some at a time: under KvsAll nearly all rows may be torn, and sorting takes 36 bytes a score.
            for start in range(0, len(torn), _TORN_AT_ONCE):
                some = torn[start : start + _TORN_AT_ONCE]
                best[some], kept[some] = _sorted(scores[some], ids[some], self.k)
            scores, ids = best, kept
        self.scores, self.ids = _sorted(scores, ids, self.k)

    def merge(self, *others: Ranking) -> None:
        """Takes in what was ranked elsewhere, each of other training triples: many cost little more than one."""
        self.add(torch.cat([o.scores for o in others], dim=1), torch.cat([o.ids for o in others], dim=1))


class TopK:
    """`proponents` (highest first) and `opponents` (lowest first; their scores as they are)."""

    def __init__(self, tests: int, k: int, *, like: torch.Tensor) -> None:
        self.proponents = Ranking(tests, k, like=like)
        self._negated = Ranking(tests, k, like=like)

    def add(self, scores: torch.Tensor, ids: torch.Tensor) -> None:
        self.proponents.add(scores, ids)
        self._negated.add(-scores, ids)

    def merge(self, *others: TopK) -> None:
        self.proponents.merge(*(other.proponents for other in others))
        self._negated.merge(*(other._negated for other in others))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """What `of_tensors` makes it again from, elsewhere."""
        return self.proponents.scores, self.proponents.ids, self._negated.scores, self._negated.ids

    @classmethod
    def of_tensors(cls, k: int, tensors: Sequence[torch.Tensor]) -> TopK:
        found = cls(0, k, like=tensors[0])
        found.proponents.scores, found.proponents.ids = tensors[0], tensors[1]
        found._negated.scores, found._negated.ids = tensors[2], tensors[3]
        return found

    @property
    def opponents(self) -> Ranking:
        found = Ranking(0, self._negated.k, like=self._negated.scores)
        found.scores, found.ids = -self._negated.scores, self._negated.ids
        return found


def _sorted(scores: torch.Tensor, ids: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    by_id = ids.argsort(dim=1)
    order = scores.gather(1, by_id).argsort(dim=1, descending=True, stable=True)[:, :k]
    by_id = by_id.gather(1, order)
    return scores.gather(1, by_id), ids.gather(1, by_id)
