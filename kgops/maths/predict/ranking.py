"""Ranked answers to questions: the best candidates, with PyKEEN's realistic ranks and their probabilities.

Matrix products give scores up to rounding. All candidates within their margin of the last answer are scored again in
PyKEEN's arithmetic. These scores decide. Equal scores share the mean of their ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kgops.maths.models.products import without_tf32
from kgops.maths.predict.scores import Scorer, Scores
from kgops.maths.train.evaluate import split
from kgops.workloads.predict.job import PREDICT_PAIRS_AGAIN, PREDICT_SPARE

# PyKEEN's losses in which a score is a logit of one triple, or of one entity among all.
_OF_TRIPLES = ("BCEWithLogitsLoss", "BCEAfterSigmoidLoss", "SoftplusLoss", "FocalLoss")
_OF_ENTITIES = ("CrossEntropyLoss",)


@dataclass(frozen=True)
class Probability:
    """`sigmoid`: that the triple is true. `softmax`: the answer's share among all entities. None: not defined."""

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
    """Follows from the loss that the checkpoint records, such as kvsall-bce, or from a PyKEEN model's loss."""
    kind = str((loss or {}).get("name") or "").rpartition("-")[2]
    if kind:
        return Probability({"bce": "sigmoid", "ce": "softmax"}.get(kind))  # type: ignore[arg-type]
    of_model = type(getattr(model, "loss", None)).__name__
    return Probability(
        "sigmoid" if of_model in _OF_TRIPLES else "softmax" if of_model in _OF_ENTITIES else None
    )


@dataclass(frozen=True)
class Answers:
    """Best first; on the CPU. `ranks` are among all candidates, also where some are left out of the list."""

    entities: torch.Tensor
    ranks: torch.Tensor
    scores: torch.Tensor
    probabilities: torch.Tensor | None  # None: the loss defines none


@torch.no_grad()
def answers(
    scorer: Scorer,
    asked: torch.Tensor,
    top_k: int,
    probability: Probability,
    *,
    candidates: torch.Tensor | None = None,
    left_out: Sequence[torch.Tensor] | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Answers]]:
    """The `top_k` answers to each question, and its row in `asked`: (known entity, relation, 1 where heads are asked).

    `candidates` are the entities that may be answers, None: all; `left_out` are, for each question, entities that
    are ranked but not listed. Ends early if a stop is requested.
    """
    ranking = _Ranking(scorer, top_k, probability, candidates)
    with without_tf32():  # its errors are a thousand times larger than the margin
        for rows, scores in scorer.blocks(asked):
            out = None if left_out is None else [left_out[row] for row in rows.tolist()]
            yield from zip(rows.tolist(), ranking.of_block(scores, len(rows), out), strict=True)
            if stop_requested():
                return


@dataclass(frozen=True)
class _Ranking:
    scorer: Scorer
    top_k: int
    probability: Probability
    candidates: torch.Tensor | None

    def of_block(
        self, scores: Scores, questions: int, left_out: Sequence[torch.Tensor] | None
    ) -> list[Answers]:
        n, device = self.scorer.num_entities, self.scorer.like.device
        plane = self.scorer.like.new_empty(questions, n)
        scores.roughly(0, n, plane.t())
        normalizers = plane.logsumexp(dim=1) if self.probability.needs_all else None
        many, beside = n, self._of_left_out(scores, questions, left_out)
        if self.candidates is not None:
            many, others = len(self.candidates), torch.ones(n, dtype=torch.bool, device=device)
            others[self.candidates.to(device)] = False
            plane[:, others] = -torch.inf
        for row, out in enumerate(left_out or ()):
            plane[row, out.to(device)] = -torch.inf
        last = min(many, self.top_k)
        best, at = plane.topk(min(many, last + PREDICT_SPARE), dim=1)
        # Beyond this no score, however rounded, is above the last answer's.
        far = best[:, last - 1] - 2 * scores.margin()
        complete = (best[:, -1] < far) | far.isinf() | (best.shape[1] == many)
        exact = _exactly(scores, at)
        found = []
        for row in range(questions):
            listed = best[row] > -torch.inf
            ids, values = at[row, listed], exact[row, listed]
            if not complete[row]:  # more than the spare ones are as good as the last: untrained, or all alike
                ids = (plane[row] >= far[row]).nonzero()[:, 0]
                values = _of_one(scores, row, ids)
            normalizer = None if normalizers is None else normalizers[row]
            found.append(self._listed(ids, values, beside[row], normalizer))
        return found

    def _of_left_out(
        self, scores: Scores, questions: int, left_out: Sequence[torch.Tensor] | None
    ) -> list[torch.Tensor]:
        """For each question the scores of entities that are ranked and not listed."""
        if left_out is None:
            return [self.scorer.like.new_empty(0, device="cpu")] * questions
        if self.candidates is not None:
            left_out = [out[torch.isin(out, self.candidates)] for out in left_out]
        device = self.scorer.like.device
        return [_of_one(scores, row, out.to(device)).cpu() for row, out in enumerate(left_out)]

    def _listed(
        self, ids: torch.Tensor, values: torch.Tensor, beside: torch.Tensor, normalizer: torch.Tensor | None
    ) -> Answers:
        """`beside`: scores of candidates that are ranked but not listed."""
        # Of equal scores the lower id comes first, whatever the device.
        ids, order = ids.cpu().sort()
        values, order = values.cpu()[order].sort(descending=True, stable=True)
        ids, ranks, k = ids[order], realistic_ranks(values, beside), self.top_k
        normalizer = None if normalizer is None else normalizer.cpu()
        return Answers(ids[:k], ranks[:k], values[:k], self.probability.of(values[:k], normalizer))


def realistic_ranks(scores: torch.Tensor, beside: torch.Tensor) -> torch.Tensor:
    """Ranks of scores in descending order, in float64: the mean of the best and the worst rank of equal scores. Ranks
    also count the scores `beside`."""
    _, counts = torch.unique_consecutive(scores, return_counts=True)
    above = counts.cumsum(0) - counts
    ranks = torch.repeat_interleave((above + (counts + 1) / 2).double(), counts)
    ascending = beside.sort().values
    above = len(beside) - torch.searchsorted(ascending, scores, right=True)
    not_below = len(beside) - torch.searchsorted(ascending, scores)
    return ranks + (above + not_below) / 2


def _exactly(scores: Scores, at: torch.Tensor) -> torch.Tensor:
    questions = torch.arange(len(at), device=at.device)[:, None].expand_as(at).reshape(-1)
    parts = zip(
        split(questions, PREDICT_PAIRS_AGAIN), split(at.reshape(-1), PREDICT_PAIRS_AGAIN), strict=True
    )
    return torch.cat([scores.exactly(some, ids) for some, ids in parts]).view(at.shape)


def _of_one(scores: Scores, row: int, ids: torch.Tensor) -> torch.Tensor:
    if not len(ids):
        return scores.margin().new_empty(0)
    return torch.cat(
        [scores.exactly(torch.full_like(some, row), some) for some in split(ids, PREDICT_PAIRS_AGAIN)]
    )
