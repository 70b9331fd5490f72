"""The whole matrix of a relation: every head with every tail, one score each, as drug repurposing is evaluated.

Scores are those of `predict --best`. Pairs that were known before the test are left out. Frequency and random scores
are ranked in the same way, as baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kgops.errors import BadInput
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.products import without_tf32
from kgops.maths.predict.questions import NodeTypes
from kgops.maths.predict.scores import Scorer
from kgops.maths.train.evaluate import BOOTSTRAP_INTERVAL, BOOTSTRAP_SAMPLES, BOOTSTRAP_SEED, split

RECALL_AT = (100, 1000)
HITS_AT = (1, 10)
_NEARLY_ALL = 0.9
_ROWS_AT_ONCE = 1 << 10  # test pairs that are compared with a block of heads

Scores = Callable[[torch.Tensor], torch.Tensor]  # places of heads → scores (tails, heads), the same each time


@dataclass(frozen=True)
class Matrix:
    """Ids of its heads and tails; pairs as places in both: those tested, and those left out. `types` of its heads and
    tails, where they are known."""

    relation: int
    heads: torch.Tensor
    tails: torch.Tensor
    tested: torch.Tensor
    left_out: torch.Tensor
    types: tuple[str, str] = ("", "")

    @property
    def negatives(self) -> int:
        return len(self.heads) * len(self.tails) - len(self.tested) - len(self.left_out)


@dataclass(frozen=True)
class Ranked:
    """Of each tested pair: its rank in the matrix, its rank among the heads of its tail (without other tested ones),
    and the share of negatives below it."""

    ranks: torch.Tensor
    of_tail: torch.Tensor
    below: torch.Tensor


def matrix_of(graph: Graph, triples: torch.Tensor, relation: int, types: NodeTypes | None) -> Matrix:
    """All entities of the types that the relation joins; without types, those that it has as head or as tail."""
    tested = _pairs(relation, triples)
    every = _pairs(relation, graph.train, graph.valid, graph.test, triples)
    ends = [torch.unique(every[:, side]) for side in (0, 1)]
    kinds = tuple("" if types is None else _type_of(one, types) for one in ends)
    heads, tails = (
        torch.unique(torch.cat([one, types.entities(kind)])) if types is not None and kind else one
        for one, kind in zip(ends, kinds, strict=True)
    )
    is_tested = torch.isin(_keys(every, graph), _keys(tested, graph))
    places = [
        torch.stack(
            [torch.searchsorted(ids, pairs[:, side].contiguous()) for side, ids in enumerate((heads, tails))],
            dim=1,
        )
        for pairs in (tested, every[~is_tested])
    ]
    return Matrix(relation, heads, tails, places[0], places[1], (kinds[0], kinds[1]))


def _pairs(relation: int, *parts: torch.Tensor) -> torch.Tensor:
    """Heads and tails of the relation, each pair once."""
    rows = torch.cat([part[part[:, 1] == relation] for part in parts])
    pairs: torch.Tensor = torch.unique(rows[:, [0, 2]], dim=0)
    return pairs


def _keys(pairs: torch.Tensor, graph: Graph) -> torch.Tensor:
    return pairs[:, 0] * graph.num_entities + pairs[:, 1]


def _type_of(ends: torch.Tensor, types: NodeTypes) -> str:
    """The narrowest type that nearly all have: drugs are also chemicals and named things. Empty where none has one."""
    counts, every = types.counts(ends.tolist()), types.counts(types.of_entity)
    most = max(counts.values(), default=0)
    return min(
        (one for one in counts if counts[one] >= _NEARLY_ALL * most), key=every.__getitem__, default=""
    )


@torch.no_grad()
def ranked(
    matrix: Matrix, scores: Scores, at_once: int, stop: Callable[[], bool] = lambda: False
) -> Ranked | None:
    """None where a stop was requested. Ties count half, as in realistic ranks."""
    tested = matrix.tested
    own = torch.empty(len(tested), dtype=torch.float64)
    greater, equal = torch.zeros(len(tested)).double(), torch.zeros(len(tested)).double()
    for heads, plane in _planes(matrix, scores, at_once):
        rows = _of(tested, heads)
        own[rows] = plane[tested[rows, 1], tested[rows, 0] - heads[0]].double()
    edges: torch.Tensor = torch.unique(own)
    above, at_least = torch.zeros(len(edges)).double(), torch.zeros(len(edges)).double()
    for heads, plane in _planes(matrix, scores, at_once):
        for pairs in (matrix.left_out, tested):
            gone = pairs[_of(pairs, heads)]
            plane[gone[:, 1], gone[:, 0] - heads[0]] = -torch.inf
        values = plane.flatten().double()
        above += _counts(torch.searchsorted(edges, values, right=False), len(edges))
        at_least += _counts(torch.searchsorted(edges, values, right=True), len(edges))
        for rows in split(torch.arange(len(tested)), _ROWS_AT_ONCE):
            others = plane[tested[rows, 1]].double()
            greater[rows] += (others > own[rows, None]).sum(1)
            equal[rows] += (others == own[rows, None]).sum(1)
        if stop():
            return None
    at = torch.searchsorted(edges, own)
    negatives_above = above[at] + (at_least[at] - above[at]) / 2
    order = own.sort().values
    tested_above = len(own) - torch.searchsorted(order, own, right=True)
    ties = torch.searchsorted(order, own, right=True) - torch.searchsorted(order, own) - 1
    return Ranked(
        1 + negatives_above + tested_above + ties / 2,
        1 + greater + equal / 2,
        1 - negatives_above / max(matrix.negatives, 1),
    )


def _planes(matrix: Matrix, scores: Scores, at_once: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for heads in split(torch.arange(len(matrix.heads)), at_once):
        yield heads, scores(heads)


def _of(pairs: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    return ((pairs[:, 0] >= heads[0]) & (pairs[:, 0] <= heads[-1])).nonzero()[:, 0]


def _counts(places: torch.Tensor, edges: int) -> torch.Tensor:
    """For each edge, how many values lie behind it."""
    histogram = torch.bincount(places, minlength=edges + 1).double()
    behind: torch.Tensor = histogram.flip(0).cumsum(0).flip(0)[1:]
    return behind


def of_model(scorer: Scorer, matrix: Matrix) -> Scores:
    n, like = scorer.num_entities, scorer.like
    tails = matrix.tails.to(like.device)

    def scores(heads: torch.Tensor) -> torch.Tensor:
        plane = like.new_empty(n, len(heads))
        with without_tf32():
            scorer.tails(matrix.heads[heads], matrix.relation).roughly(0, n, plane)
        if not bool(torch.isfinite(plane).all()):
            raise BadInput(
                "the model's scores are not numbers.", hint="its training diverged; evaluate another."
            )
        return plane[tails].cpu()

    return scores


def of_frequency(matrix: Matrix) -> Scores:
    """How many pairs were known of the head, times how many of the tail."""
    counts = [
        torch.bincount(matrix.left_out[:, side], minlength=len(ids)).double() + 1
        for side, ids in enumerate((matrix.heads, matrix.tails))
    ]
    return lambda heads: counts[1][:, None] * counts[0][heads]


def of_chance(matrix: Matrix) -> Scores:
    def scores(heads: torch.Tensor) -> torch.Tensor:
        draw = torch.Generator().manual_seed(BOOTSTRAP_SEED + int(heads[0]))
        return torch.rand(len(matrix.tails), len(heads), generator=draw, dtype=torch.float64)

    return scores


def table_of(matrix: Matrix, found: Ranked) -> dict[str, Any]:
    """Metrics with bootstrap intervals over the tails, as JSON."""
    of_tail, ranks = found.of_tail.numpy(), found.ranks.numpy()
    values = {"auroc": found.below.numpy(), "mrr": 1 / of_tail}
    values |= {f"recall_at_{n}": (ranks <= n).astype(np.float64) for n in RECALL_AT}
    values |= {f"hits_at_{k}": (of_tail <= k).astype(np.float64) for k in HITS_AT}
    groups = matrix.tested[:, 1].numpy()
    return {"count": len(ranks)} | {
        name: number
        for key, each in values.items()
        for name, number in ((key, float(each.mean())), (f"{key}_interval", _interval(each, groups)))
    }


def _interval(values: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]) -> list[float]:
    """Of the mean, with whole groups drawn: pairs of one tail depend on each other."""
    _, at = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(at, values), np.bincount(at)
    draw = np.random.default_rng(BOOTSTRAP_SEED)
    weights = draw.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), BOOTSTRAP_SAMPLES)
    means = (weights @ sums) / (weights @ counts)
    return [
        float(one) for one in np.quantile(means, [(1 - BOOTSTRAP_INTERVAL) / 2, (1 + BOOTSTRAP_INTERVAL) / 2])
    ]


def summary(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """`AUROC 0.93 (0.91–0.95), frequency 0.62 (…), random 0.50 (…)`."""
    words = [
        f"{name} {table['auroc']:.3f} ({table['auroc_interval'][0]:.3f}–{table['auroc_interval'][1]:.3f})"
        for name, table in tables.items()
    ]
    return "AUROC of " + ", ".join(words)
