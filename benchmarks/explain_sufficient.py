"""Sufficient sets, measured: once other heads have the facts, for how many of them does the tail rank first?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch

from benchmarks.explain_methods import Explained
from benchmarks.explain_protocol import Model
from benchmarks.quality import Silent
from kgops.explanations.sufficient import Additions, others_of, sufficient
from kgops.explanations.verify import ALL, RANDOM, SETS
from kgops.predictions.known import KnownTriples
from kgops.tracin.retraining import FitAgain

ADDED_HEADS = (
    f"{'triples added':22} {'added':>7} {'s each':>7} {'heads':>6} {'first':>6} {'MRR':>6}   first by seed\n"
    + "-" * 80
)
_ROWS = {ALL: "none", RANDOM: "random of the head", SETS: "explain --sufficient"}


@dataclass(frozen=True)
class Added:
    """`first`: the share of the other heads for which the tail ranks first; one value for each seed, as `mrr`."""

    triples: str
    added: int
    seconds_each: float
    heads: int
    first: list[float]
    mrr: list[float]

    def line(self) -> str:
        return (
            f"{self.triples:22} {self.added:7,} {self.seconds_each:7.3f} {self.heads:6,} {mean(self.first):6.3f} "
            f"{mean(self.mrr):6.3f}   " + " ".join(f"{value:.3f}" for value in self.first)
        )


def additions(base: Model, drawn: torch.Tensor, folder: Path, *, seeds: int, most: int) -> Iterator[Added]:
    """Of the same trainings; those that are in `folder` are not done again."""
    graph, seed = base.graph, base.settings.seed
    explained, known = Explained(graph, base.model, base.settings, drawn), KnownTriples(graph)
    draw = torch.Generator().manual_seed(seed)
    queries, sets, heads = [], [], []
    begin = time.perf_counter()
    for number in range(len(drawn)):
        query, pool = explained.prediction(number).query, explained.of_head(number)
        others = others_of(base.model, query, known, draw)
        found = sufficient(explained.influences, query, others, graph.train[pool], known, most=most)
        queries.append(query)
        sets.append([int(pool[row]) for row, _ in found])
        heads.append([other.query.given for other in others])
    seconds = (time.perf_counter() - begin) / len(drawn)
    added = Additions(graph, queries, sets, heads, seed=seed)
    again = FitAgain(added.graph, added.tests, base.model.config, base.settings, folder, Silent())
    measured = added.trained_with(again, folder / "additions.jsonl", seeds=seeds)
    for kind, name in _ROWS.items():
        each_s = seconds if kind == SETS else 0.0
        first, mrr = measured.hits_at_1(kind), measured.mrr(kind)
        yield Added(name, measured.changed[kind], each_s, len(added.tests), first, mrr)
