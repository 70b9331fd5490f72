"""The best pairs of a relation among all pairs of entities, in bounded memory.

Heads are encoded in blocks, tails scored in chunks. Only scores above the worst of the best pairs so far matter. One
maximum for each tail tells whether a chunk has any.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kgops.maths.graphs.triples import contained
from kgops.maths.models.products import without_tf32
from kgops.maths.predict.ranking import Answers, Probability, realistic_ranks
from kgops.maths.predict.scores import Scorer
from kgops.maths.train.evaluate import split
from kgops.workloads.predict.job import PREDICT_WAITING

_SPARE = 64  # pairs beyond the last that are scored again in PyKEEN's arithmetic
_AGAIN_AT_ONCE = 128  # heads whose pairs are scored again together
_PAIRS_AT_ONCE = 4096  # of theirs: vectors of so many take less than a chunk's scores


@torch.no_grad()
def best_pairs(
    scorer: Scorer,
    relation: int,
    most: int,
    probability: Probability,
    *,
    left_out: torch.Tensor | None = None,
    heads: torch.Tensor | None = None,
    tails: torch.Tensor | None = None,
    chunk: int = 4096,
    stop_requested: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[torch.Tensor, Answers] | None:
    """Heads and tails of the `most` best pairs; None if a stop was requested.

    `left_out`: sorted keys head · entities + tail of pairs that are ranked but not listed. `heads` and `tails`: those
    that are paired (None: all).
    """
    n, like = scorer.num_entities, scorer.like
    others = None
    if tails is not None:
        others = torch.ones(n, dtype=torch.bool, device=like.device)
        others[tails.to(like.device)] = False
        if left_out is not None:
            left_out = left_out[torch.isin(left_out % n, tails)]
    everything = torch.arange(n) if heads is None else heads
    if heads is not None and left_out is not None:
        left_out = left_out[torch.isin(left_out // n, heads)]
    best = _Best(most + _SPARE, None if left_out is None else left_out.to(like.device), like)
    at_once = scorer.heads_at_once(chunk)
    # One buffer for all chunks: a new one for each leaves holes in the heap that add up to hundreds of MiB.
    buffer = like.new_empty(min(chunk, n) * min(at_once, n))
    with without_tf32():
        for done, some in enumerate(split(everything, at_once), 1):
            scores = scorer.tails(some, relation)
            keys = some.to(like.device) * n
            for start in range(0, n, chunk):
                size = min(chunk, n - start)
                plane = buffer[: size * len(some)].view(size, len(some))
                scores.roughly(start, start + size, plane)
                if others is not None:
                    plane[others[start : start + len(plane)]] = -torch.inf
                best.add(plane, keys, start)
            del scores  # before the next ones, which then take their place
            progress(min(done * at_once, len(everything)), len(everything))
            if stop_requested():
                return None
        beside = like.new_empty(0, device="cpu")
        if left_out is not None:
            beside, _ = _exactly(scorer, relation, left_out)
        return _ranked(scorer, relation, best.keys().cpu(), beside, most, probability)


class _Best:
    """The `most` best pairs so far, and pairs that wait to be ranked with them. The buffers stay where they are, since
    small tensors that outlive a chunk leave holes in the heap."""

    def __init__(self, most: int, left_out: torch.Tensor | None, like: torch.Tensor) -> None:
        self._most, self._left_out = most, left_out
        self._worst = torch.full((), -torch.inf, dtype=like.dtype, device=like.device)
        self._scores = like.new_empty(most + PREDICT_WAITING)
        self._keys = torch.empty(most + PREDICT_WAITING, dtype=torch.long, device=like.device)
        self._count = 0

    def add(self, plane: torch.Tensor, heads: torch.Tensor, start: int) -> None:
        """Scores (tails from `start`, heads); `heads` are the keys of the heads with tail 0."""
        good = (plane.amax(dim=1) > self._worst).nonzero()[:, 0]
        if not len(good):
            return
        some = plane[good]
        tail, head = (some > self._worst).nonzero(as_tuple=True)
        self._wait(some[tail, head], heads[head] + good[tail] + start)

    def keys(self) -> torch.Tensor:
        self._rank()
        return self._keys[: self._count].clone()

    def _wait(self, scores: torch.Tensor, keys: torch.Tensor) -> None:
        while len(scores):
            size = min(len(scores), len(self._scores) - self._count)
            place = slice(self._count, self._count + size)
            self._scores[place], self._keys[place] = scores[:size], keys[:size]
            self._count += size
            scores, keys = scores[size:], keys[size:]
            if self._count == len(self._scores):
                self._rank()
                better = scores > self._worst
                scores, keys = scores[better], keys[better]

    def _rank(self) -> None:
        scores, keys = self._scores[: self._count], self._keys[: self._count]
        if self._left_out is not None:
            kept = ~contained(keys, self._left_out)
            scores, keys = scores[kept], keys[kept]
        if len(scores) > self._most:
            scores, at = scores.topk(self._most)
            keys = keys[at]
            self._worst.copy_(scores[-1])
        self._count = len(scores)
        self._scores[: self._count], self._keys[: self._count] = scores, keys


def _ranked(
    scorer: Scorer,
    relation: int,
    keys: torch.Tensor,
    beside: torch.Tensor,
    most: int,
    probability: Probability,
) -> tuple[torch.Tensor, Answers]:
    """The pairs in the order of their exact scores. Their ranks also count the scores `beside`."""
    n = scorer.num_entities
    keys = keys.sort().values
    scores, normalizers = _exactly(scorer, relation, keys, normalizes=probability.needs_all)
    scores, order = scores.sort(descending=True, stable=True)
    keys, ranks = keys[order][:most], realistic_ranks(scores, beside)[:most]
    normalizers = None if normalizers is None else normalizers[order][:most]
    probabilities = probability.of(scores[:most], normalizers)
    return keys // n, Answers(keys % n, ranks, scores[:most], probabilities)


def _exactly(
    scorer: Scorer, relation: int, keys: torch.Tensor, *, normalizes: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Scores of sorted pairs in PyKEEN's arithmetic; for softmax with the scores of all tails of their heads."""
    n, device = scorer.num_entities, scorer.like.device
    heads, place, counts = torch.unique(keys // n, return_inverse=True, return_counts=True)
    end = 0
    scores = scorer.like.new_empty(len(keys), device="cpu")
    normalizers = scorer.like.new_empty(len(keys), device="cpu") if normalizes else None
    for first in range(0, len(heads), _AGAIN_AT_ONCE):
        some = heads[first : first + _AGAIN_AT_ONCE]
        block = scorer.tails(some, relation)
        begin, end = end, end + int(counts[first : first + len(some)].sum())
        rows = torch.arange(begin, end)
        for part in split(rows, _PAIRS_AT_ONCE):
            at = (place[part] - first).to(device)
            scores[part] = block.exactly(at, (keys[part] % n).to(device)).cpu()
        if normalizers is not None:
            plane = scorer.like.new_empty(len(some), n)
            block.roughly(0, n, plane.t())
            normalizers[rows] = plane.logsumexp(dim=1)[(place[rows] - first).to(device)].cpu()
    return scores, normalizers
