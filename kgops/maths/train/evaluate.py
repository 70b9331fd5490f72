"""Filtered link prediction: MRR and Hits@k for heads, tails and both, with realistic ranks; by relation and degree.

Ranks equal the ranks of PyKEEN's RankBasedEvaluator. Scores come from matrix products over chunks of candidates. Only
candidates within the rounding of a matrix product from the true score are scored again one by one, in PyKEEN's
arithmetic. Quality by group has bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kgops.maths.graphs.triples import Graph
from kgops.maths.models.encoder import Buffers
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.products import addmm, column_sums, without_tf32
from kgops.maths.train.batches import inverse_triples, query_rows
from kgops.workloads.train.options import EVALUATION_CHUNK, EVALUATION_ENCODED, EVALUATION_QUERIES

HITS_AT = (1, 3, 10)
_PAIRS_AT_ONCE = 1 << 10  # bounds the memory of scoring them again, for the memory estimate
_PAIRS_LISTED = 1 << 16  # and that of their places


@dataclass(frozen=True)
class Metrics:
    """Means over ranks; None without ranks."""

    count: int
    mrr: float | None
    mean_rank: float | None
    hits: dict[int, float | None]

    @classmethod
    def of(cls, ranks: torch.Tensor) -> Metrics:
        ranks = ranks.double()
        if not len(ranks):
            return cls(0, None, None, dict.fromkeys(HITS_AT))
        hits: dict[int, float | None] = {k: float((ranks <= k).double().mean()) for k in HITS_AT}
        return cls(len(ranks), float(ranks.reciprocal().mean()), float(ranks.mean()), hits)

    def to_dict(self) -> dict[str, float | None]:
        named = {f"hits_at_{k}": share for k, share in self.hits.items()}
        return {"count": self.count, "mrr": self.mrr, "mean_rank": self.mean_rank, **named}


@dataclass(frozen=True)
class Evaluation:
    """Realistic ranks of each evaluated triple's head and tail, in the order of the triples."""

    head_ranks: torch.Tensor
    tail_ranks: torch.Tensor

    @property
    def head(self) -> Metrics:
        return Metrics.of(self.head_ranks)

    @property
    def tail(self) -> Metrics:
        return Metrics.of(self.tail_ranks)

    @property
    def both(self) -> Metrics:
        return Metrics.of(torch.cat([self.head_ranks, self.tail_ranks]))

    def to_dict(self) -> dict[str, dict[str, float | None]]:
        return {"both": self.both.to_dict(), "head": self.head.to_dict(), "tail": self.tail.to_dict()}


class Evaluator:
    """Ranks triples against all entities, leaving out other answers known to be true.

    `known` are all true triples (train, validation and test). One instance serves all validations.
    """

    def __init__(
        self,
        known: torch.Tensor,
        num_entities: int,
        *,
        device: torch.device | str = "cpu",
        chunk: int | None = None,
    ) -> None:
        self.device, self.num_entities = torch.device(device), num_entities
        self.chunk = chunk or EVALUATION_CHUNK["cuda" if self.device.type == "cuda" else "cpu"]
        self._known = KnownAnswers(known.to(self.device))
        self._buffers = Buffers(self.device)

    @torch.no_grad()
    def __call__(
        self,
        model: EntityModel,
        triples: torch.Tensor,
        *,
        stop_requested: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Evaluation | None:
        """Evaluates in eval mode and restores the model's mode; None if a stop was requested."""
        was_training = model.training
        model.eval()
        try:
            # TF32's errors are a thousand times larger than the margin.
            with without_tf32():
                return self._evaluate(model, triples, stop_requested, progress)
        finally:
            model.train(was_training)

    def _evaluate(
        self,
        model: EntityModel,
        triples: torch.Tensor,
        stop_requested: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Evaluation | None:
        triples = triples.to(self.device)
        ranks = torch.zeros(2 * len(triples), dtype=torch.float64, device=self.device)
        tails, heads = query_rows(triples, True), inverse_triples(triples)
        blocks = (
            self._by_inverse(model, torch.cat([tails, heads]))
            if model.config.inverse
            else self._by_relation(model, tails, heads)
        )
        done = 0
        for rows, block_ranks in blocks:
            ranks[rows] = block_ranks.double()
            done += len(rows)
            progress(done, len(ranks))
            if stop_requested():
                return None
        ranks = ranks.cpu()
        return Evaluation(ranks[len(triples) :], ranks[: len(triples)])

    def _by_inverse(
        self, model: EntityModel, queries: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Blocks of tail queries; a head query is the tail query of the inverse relation."""
        # Sorted, so that queries with an equal (head, relation) are adjacent and encoded once.
        order = _by_pair(queries)
        for rows in split(order, EVALUATION_QUERIES):
            block = queries[rows]
            vectors = self._encode(model, block[:, 0], block[:, 1])
            yield rows, self._ranks(TailScores(model, vectors), block, block[:, 1])

    def _by_relation(
        self, model: EntityModel, tails: torch.Tensor, heads: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Without inverse relations every head is encoded: once per relation, not once per triple."""
        for rows in split(_by_pair(tails), EVALUATION_QUERIES):
            block = tails[rows]
            vectors = self._encode(model, block[:, 0], block[:, 1] // 2)
            yield rows, self._ranks(TailScores(model, vectors), block, block[:, 1])
        order = heads[:, 1].argsort(stable=True)
        for virtual in heads[:, 1].bincount().nonzero()[:, 0]:
            group = order[heads[order, 1] == virtual]
            relation = virtual // 2
            everything = torch.arange(self.num_entities, device=self.device)
            vectors = self._encode(model, everything, relation.expand(self.num_entities))
            for rows in split(group, EVALUATION_QUERIES):
                block = heads[rows]
                yield (
                    len(tails) + rows,
                    self._ranks(HeadScores(model, vectors, block[:, 0]), block, block[:, 1]),
                )

    def _encode(self, model: EntityModel, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        pairs = torch.stack([heads, relations], dim=1)
        new = torch.ones(len(pairs), dtype=torch.bool, device=pairs.device)
        new[1:] = (pairs[1:] != pairs[:-1]).any(dim=1)
        distinct = pairs[new]
        vectors = [model.encode(p[:, 0], p[:, 1]) for p in split(distinct, EVALUATION_ENCODED)]
        return torch.cat(vectors)[new.cumsum(0) - 1]

    def _ranks(
        self, scorer: TailScores | HeadScores, block: torch.Tensor, virtual: torch.Tensor
    ) -> torch.Tensor:
        """Realistic ranks of `block`'s last column among all entities."""
        batch, truth = len(block), block[:, 2]
        queries = torch.arange(batch, device=self.device)
        true_scores = scorer.exactly(queries, truth)
        margin = scorer.margin()
        above, below = true_scores + margin, true_scores - margin
        rows, others = self._known.of(block[:, 0], virtual)
        # Removes the true answer too: it is no candidate against itself.
        flat = torch.cat([others, truth]) * batch + torch.cat([rows, queries])
        # float32 counts to 2^24; there are graphs of more entities.
        greater = torch.zeros_like(true_scores, dtype=torch.float64)
        equal = torch.zeros_like(greater)
        for start in range(0, self.num_entities, self.chunk):
            stop = min(start + self.chunk, self.num_entities)
            plane = self._buffers.take("plane", (stop - start, batch), true_scores.dtype)
            scorer.roughly(start, stop, plane)
            index = flat - start * batch
            inside = (index >= 0) & (index < plane.numel())
            plane.view(-1)[index[inside]] = -torch.inf
            marks = self._buffers.take("marks", (stop - start, batch), true_scores.dtype)
            surely = column_sums(torch.gt(plane, above, out=marks))
            greater += surely
            maybe = column_sums(torch.ge(plane, below, out=marks)) - surely
            if count := int(maybe.sum(dtype=torch.float64)):
                near = (plane >= below) & (plane <= above)
                # A model that gives all the same score has them all near: their places would take four planes.
                size = len(near) if count <= _PAIRS_LISTED else max(1, _PAIRS_LISTED // batch)
                for number, part in enumerate(split(near, size)):
                    self._settle(scorer, part, start + number * size, true_scores, greater, equal)
        # Comparisons with NaN are false, which would rank a diverged model best.
        return (1 + greater + equal / 2).where(true_scores.isfinite(), torch.nan)

    def _settle(
        self,
        scorer: TailScores | HeadScores,
        near: torch.Tensor,
        start: int,
        true_scores: torch.Tensor,
        greater: torch.Tensor,
        equal: torch.Tensor,
    ) -> None:
        for pairs in split(near.nonzero(), _PAIRS_AT_ONCE):
            queries = pairs[:, 1]
            scores, truth = scorer.exactly(queries, pairs[:, 0] + start), true_scores[queries]
            greater.index_add_(0, queries, (scores > truth).to(greater.dtype))
            equal.index_add_(0, queries, (scores == truth).to(equal.dtype))


class TailScores:
    """Scores tails as candidates: one vector per query times all entities."""

    def __init__(self, model: EntityModel, vectors: torch.Tensor) -> None:
        self.model, self.vectors = model, vectors

    def roughly(self, start: int, stop: int, out: torch.Tensor) -> None:
        bias, entities = self.model.biases[start:stop, None], self.model.entities[start:stop]
        addmm(bias, entities, self.vectors.t(), out=out)

    def exactly(self, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        products = self.vectors[queries] * self.model.entities[candidates]
        return products.sum(-1) + self.model.biases[candidates]

    def margin(self) -> torch.Tensor:
        return _margin(self.vectors.norm(dim=1), self.model.entities.norm(dim=1).max(), self.model)


class HeadScores:
    """Scores heads as candidates under one relation: a vector for every entity, one tail per query."""

    def __init__(self, model: EntityModel, vectors: torch.Tensor, tails: torch.Tensor) -> None:
        self.model, self.vectors, self.tails = model, vectors, tails
        self.tail_vectors, self.tail_biases = model.entities[tails], model.biases[tails]

    def roughly(self, start: int, stop: int, out: torch.Tensor) -> None:
        addmm(self.tail_biases, self.vectors[start:stop], self.tail_vectors.t(), out=out)

    def exactly(self, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        products = self.vectors[candidates] * self.tail_vectors[queries]
        return products.sum(-1) + self.tail_biases[queries]

    def margin(self) -> torch.Tensor:
        return _margin(self.tail_vectors.norm(dim=1), self.vectors.norm(dim=1).max(), self.model)


def _margin(norms: torch.Tensor, largest: torch.Tensor, model: EntityModel) -> torch.Tensor:
    """Largest difference between two summation orders of a score: twice the bound for a dot product."""
    dim, eps = model.config.embedding_dim, torch.finfo(norms.dtype).eps
    return 2 * (dim + 2) * eps * (norms * largest + model.biases.abs().max())


class KnownAnswers:
    """Known answers of queries (subject, 2r) and, for inverse relations, (object, 2r + 1)."""

    def __init__(self, known: torch.Tensor) -> None:
        rows = torch.cat([query_rows(known, True), inverse_triples(known)])
        keys, order = _key(rows[:, 0], rows[:, 1]).sort()
        self._keys, self._answers = keys, rows[order, 2]

    def of(self, subjects: torch.Tensor, relations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pairs (position of the query, answer)."""
        wanted = _key(subjects, relations)
        first = torch.searchsorted(self._keys, wanted)
        counts = torch.searchsorted(self._keys, wanted, right=True) - first
        rows = torch.repeat_interleave(counts)
        before = counts.cumsum(0) - counts
        index = torch.arange(len(rows), device=rows.device) + (first - before)[rows]
        return rows, self._answers[index]


def _key(subjects: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
    return (subjects << 32) + relations


def split(tensor: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    for start in range(0, len(tensor), size):
        yield tensor[start : start + size]


def _by_pair(queries: torch.Tensor) -> torch.Tensor:
    order = queries[:, 1].argsort(stable=True)
    return order[queries[order, 0].argsort(stable=True)]


BOOTSTRAP_SAMPLES = 1000
BOOTSTRAP_INTERVAL = 0.95
BOOTSTRAP_SEED = 0
_HITS_AT = (1, 10)
# Triples of the training that mention the answer: the last degree of each bucket.
_BUCKETS = (0, 2, 5, 10, 20, 50, 100)

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Means over the ranks of a group, each with the interval that 95 % of resampled means lie in."""

    name: str
    count: int
    means: dict[str, float]
    intervals: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, name: str, ranks: _Floats, generator: np.random.Generator) -> Group:
        # Resampling n ranks of which many are equal is drawing how often each distinct rank occurs.
        distinct, counts = np.unique(ranks, return_counts=True)
        drawn = generator.multinomial(len(ranks), counts / len(ranks), size=BOOTSTRAP_SAMPLES) / len(ranks)
        low, high = (1 - BOOTSTRAP_INTERVAL) / 2, (1 + BOOTSTRAP_INTERVAL) / 2
        means, intervals = {}, {}
        for metric, values in _values(distinct):
            means[metric] = float(values @ counts / len(ranks))
            interval = np.quantile(drawn @ values, (low, high))
            intervals[metric] = (float(interval[0]), float(interval[1]))
        return cls(name, len(ranks), means, intervals)

    def to_dict(self) -> dict[str, Any]:
        named: dict[str, Any] = {"name": self.name, "count": self.count}
        for metric, mean in self.means.items():
            named |= {metric: mean, f"{metric}_interval": list(self.intervals[metric])}
        return named


def quality_table(evaluation: Evaluation, graph: Graph) -> dict[str, Any]:
    """Quality on the graph's test triples, as JSON. It groups them by relation (the most frequent first), direction
    (head or tail predicted), and degree of the answer in the training triples. A rank that is not a number is left
    out."""
    triples = graph.test
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    ranks = np.concatenate([evaluation.head_ranks.numpy(), evaluation.tail_ranks.numpy()])
    relations = np.concatenate([triples[:, 1].cpu().numpy()] * 2)
    is_tail = np.arange(len(ranks)) >= len(triples)
    answers = torch.cat([triples[:, 0], triples[:, 2]]).cpu()
    ends = torch.cat([graph.train[:, 0], graph.train[:, 2]])
    degrees = torch.bincount(ends, minlength=graph.num_entities)[answers].numpy()
    buckets = np.searchsorted(_BUCKETS, degrees)

    def grouped(of_rank: npt.NDArray[Any], names: list[str]) -> Iterator[Group]:
        for number, name in enumerate(names):
            chosen = ranks[(of_rank == number) & np.isfinite(ranks)]
            if len(chosen):
                yield Group.of(name, chosen, generator)

    by_relation = sorted(grouped(relations, list(graph.relations.labels)), key=lambda one: -one.count)
    by_group = {
        "relation": by_relation,
        "direction": grouped(is_tail.astype(np.int64), ["head", "tail"]),
        "degree": grouped(buckets, _bucket_names()),
    }
    groups = {group: [one.to_dict() for one in found] for group, found in by_group.items()}
    return {"groups": groups, "interval": BOOTSTRAP_INTERVAL, "bootstrap_samples": BOOTSTRAP_SAMPLES}


def _values(ranks: _Floats) -> Iterator[tuple[str, _Floats]]:
    yield "mrr", 1 / ranks
    for k in _HITS_AT:
        yield f"hits_at_{k}", (ranks <= k).astype(np.float64)


def _bucket_names() -> list[str]:
    """`0`, `1-2`, …, `over 100`."""
    first = [0, *(last + 1 for last in _BUCKETS[:-1])]
    names = [str(low) if low == high else f"{low}-{high}" for low, high in zip(first, _BUCKETS, strict=True)]
    return [*names, f"over {_BUCKETS[-1]}"]
