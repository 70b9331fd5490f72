"""Verifies explanations: retrains from the start without their facts, and compares with controls.

The first control trains on all triples with another seed (noise). The second removes as many random facts of the same
heads and tails. Sets that were made as small as possible have a third, which puts one fact of each back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, pstdev

import torch

from kgops.maths.explain.prediction import Query, facts_of, is_itself
from kgops.maths.tracin.retraining import Journal, Retraining, union_of

SETS, RANDOM, FEWER, ALL = "the sets", "random facts", "the sets less one fact each", "all facts"
# And their keys in results.
KINDS = {
    SETS: "retrained",
    RANDOM: "retrained_random",
    FEWER: "retrained_put_back",
    ALL: "retrained_all",
}


@dataclass(frozen=True)
class Verified:
    """`ranks` by kind: for each seed, the filtered rank of each prediction's answer. `changed`: triples removed or
    added, by kind."""

    changed: Mapping[str, int]
    ranks: Mapping[str, list[list[float]]]

    @property
    def seeds(self) -> int:
        return len(self.ranks[ALL])

    def hits_at_1(self, kind: str) -> list[float]:
        return [mean(float(rank <= 1) for rank in ranks) for ranks in self.ranks[kind]]

    def mrr(self, kind: str) -> list[float]:
        return [mean(1 / rank for rank in ranks) for ranks in self.ranks[kind]]

    def rank(self, kind: str, prediction: int) -> float:
        """Mean over seeds."""
        return mean(ranks[prediction] for ranks in self.ranks[kind])

    def metrics(self) -> dict[str, float]:
        metrics = {}
        for kind in self.ranks:
            key = KINDS[kind]
            metrics[f"hits_at_1_{key}"] = mean(self.hits_at_1(kind))
            metrics[f"mrr_{key}"] = mean(self.mrr(kind))
        return metrics

    def sentence(self) -> str:
        n = self.seeds
        removed, at_random = triples_said(self.changed[SETS]), triples_said(self.changed[RANDOM], "random ")
        how = {
            SETS: f"without the {removed} of the sets",
            ALL: "with all triples, which is noise",
            RANDOM: f"without {at_random} of the same heads and tails",
            FEWER: "with one triple of each set put back",
        }
        parts = [f"{self._reached(kind)} {words}" for kind, words in how.items() if kind in self.ranks]
        return f"retrained from the start ({n} seed{'s' * (n > 1)}): {'; '.join(parts)}."

    def _reached(self, kind: str) -> str:
        mrr = self.mrr(kind)
        spread = f" ± {pstdev(mrr):.2f}" if kind == ALL and len(mrr) > 1 else ""
        return f"MRR {mean(mrr):.2f}{spread} and hits@1 {mean(self.hits_at_1(kind)):.2f}"


def verified(
    journal: Journal,
    predictions: Sequence[Query],
    sets: Sequence[Sequence[int]],
    *,
    seed: int,
    seeds: int = 1,
    puts_back: bool = False,
) -> Verified:
    """Removes all `sets` (rows of the training triples, one set for each prediction) at once. Trains with the seeds
    after `seed`, the explained model's seed. Raises `Stopped` on a stop request."""
    train, draw = journal.train, torch.Generator().manual_seed(seed)
    pairs = zip(predictions, sets, strict=True)
    random = [_drawn(train, one.triple, len(rows), draw) for one, rows in pairs]
    removed: dict[str, Sequence[Sequence[int]]] = {SETS: sets, RANDOM: random}
    if puts_back:
        removed[FEWER] = put_back(sets, draw)
    removed[ALL] = []
    deleted = {kind: union_of(some) for kind, some in removed.items()}
    ranks = ranks_without(journal, deleted, seeds_after(seed, seeds), predictions)
    return Verified({kind: len(some) for kind, some in deleted.items()}, ranks)


def smallest(
    journal: Journal,
    predictions: Sequence[Query],
    sets: Sequence[Sequence[int]],
    before: Sequence[float],
    *,
    seed: int,
    seeds: int = 1,
) -> tuple[list[int | None], int]:
    """How many first facts of each set are enough to lose its prediction, and the number of trainings. None: no removal
    lost the prediction.

    Facts are rows of the training triples, strongest first. Round k removes the first k facts of each prediction that
    is not lost yet. At the same time it removes the facts that lost the others. Lost: the mean rank is worse than
    `before` and than with all facts. `verified` uses other seeds, because noise affects this choice. Trainings with all
    facts use both sets of seeds, since a seed may itself lose a prediction.
    """
    anew = seeds_after(seed + seeds, seeds)
    with_all = ranks_without(journal, {ALL: ()}, [*seeds_after(seed, seeds), *anew], predictions)[ALL]
    limits = [
        max(ranks) for ranks in zip(_means(with_all[:seeds]), _means(with_all[seeds:]), before, strict=True)
    ]
    enough: list[int | None] = [None] * len(sets)
    k = 0
    while any(size is None and len(rows) > k for size, rows in zip(enough, sets, strict=True)):
        k += 1
        removed = union_of(rows[: size or k] for size, rows in zip(enough, sets, strict=True))
        name = f"the first {k} of each set"
        ranks = _means(ranks_without(journal, {name: removed}, anew, predictions)[name])
        for n, (rank, limit) in enumerate(zip(ranks, limits, strict=True)):
            if enough[n] is None and len(sets[n]) >= k and rank > limit:
                enough[n] = k
    return enough, (1 + k) * seeds


def put_back(sets: Sequence[Sequence[int]], draw: torch.Generator) -> list[list[int]]:
    """The sets less one fact of each, drawn at random."""
    drops = [int(torch.randint(max(len(one), 1), (1,), generator=draw)) for one in sets]
    return [[*one[:drop], *one[drop + 1 :]] for one, drop in zip(sets, drops, strict=True)]


def ranks_without(
    journal: Journal,
    deleted: Mapping[str, tuple[int, ...]],
    seeds: Sequence[int],
    predictions: Sequence[Query],
) -> dict[str, list[list[float]]]:
    """By kind, for each seed, the rank of each prediction's answer after training without these rows. They are the
    tests of the journal."""
    wanted = [Retraining(rows, seed, kind) for kind, rows in deleted.items() for seed in seeds]
    outcomes = iter(journal.outcomes(wanted))

    def ranks() -> list[float]:
        pairs = zip(next(outcomes), predictions, strict=True)
        return [outcome.head_rank if one.asks_head else outcome.rank for outcome, one in pairs]

    return {kind: [ranks() for _ in seeds] for kind in deleted}


def seeds_after(after: int, many: int) -> range:
    return range(after + 1, after + 1 + many)


def _means(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Over seeds, of each prediction."""
    return [mean(column) for column in zip(*ranks, strict=True)]


def triples_said(number: int, kind: str = "") -> str:
    return f"{number:,} {kind}triple{'s' * (number != 1)}"


def rows_of(train: torch.Tensor, facts: torch.Tensor) -> list[int]:
    return [int((train == fact).all(dim=1).nonzero()[0]) for fact in facts]


def _drawn(train: torch.Tensor, triple: tuple[int, int, int], many: int, draw: torch.Generator) -> list[int]:
    """Random facts of head and tail, never the prediction itself."""
    rows = facts_of(train, triple[0], triple[2])
    rows = rows[~is_itself(train[rows], triple)]
    chosen: list[int] = rows[torch.randperm(len(rows), generator=draw)[:many]].tolist()
    return chosen
