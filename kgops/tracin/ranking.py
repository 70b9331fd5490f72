"""Top-k and bottom-k ranking of training triples, updated block by block.

The result depends on scores and ids alone, not on the order or size of the blocks: ties go to the smaller id. So
shards ranked by other processes can be merged in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["Ranking", "TopK"]

_TIED_AT_ONCE = 16


class Ranking:
    """The `k` highest scores for each test triple, highest first."""

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
            # `topk` picks any of those that tie with the last one; ids must decide.
            last = best[:, -1:]
            tied = ((scores == last).sum(1) != (best == last).sum(1)).nonzero()[:, 0]
            kept = ids.gather(1, at)
            # A few at a time: under KvsAll nearly all rows may tie, and sorting takes 36 bytes a score.
            for start in range(0, len(tied), _TIED_AT_ONCE):
                some = tied[start : start + _TIED_AT_ONCE]
                best[some], kept[some] = _sorted(scores[some], ids[some], self.k)
            scores, ids = best, kept
        self.scores, self.ids = _sorted(scores, ids, self.k)

    def merge(self, *others: Ranking) -> None:
        """Merges rankings of other training triples; several at once cost little more than one."""
        self.add(torch.cat([o.scores for o in others], dim=1), torch.cat([o.ids for o in others], dim=1))


class TopK:
    """`proponents` (highest first) and `opponents` (lowest first, scores not negated)."""

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
        """Input of `of_tensors`, to save or send it."""
        return self.proponents.scores, self.proponents.ids, self._negated.scores, self._negated.ids

    @classmethod
    def of_tensors(cls, k: int, tensors: Sequence[torch.Tensor]) -> TopK:
        result = cls(0, k, like=tensors[0])
        result.proponents.scores, result.proponents.ids = tensors[0], tensors[1]
        result._negated.scores, result._negated.ids = tensors[2], tensors[3]
        return result

    @property
    def opponents(self) -> Ranking:
        result = Ranking(0, self._negated.k, like=self._negated.scores)
        result.scores, result.ids = -self._negated.scores, self._negated.ids
        return result


def _sorted(scores: torch.Tensor, ids: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    by_id = ids.argsort(dim=1)
    order = scores.gather(1, by_id).argsort(dim=1, descending=True, stable=True)[:, :k]
    by_id = by_id.gather(1, order)
    return scores.gather(1, by_id), ids.gather(1, by_id)
