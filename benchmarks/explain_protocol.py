"""The protocol: a model, test triples that it ranks first, and what is left of them without a method's sets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean

import torch

from benchmarks.explain_methods import Explained, Method, methods
from benchmarks.measure import Silent
from kgops.errors import BadInput
from kgops.maths.explain.explanation_files import pair_of
from kgops.maths.explain.prediction import Query
from kgops.maths.explain.verify import put_back, ranks_without, seeds_after, smallest
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.checkpoint_set import load_checkpoint
from kgops.maths.tracin.retraining import FitAgain, Journal, union_of
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.loop import fit
from kgops.maths.train.settings import TrainSettings
from kgops.workloads.train.models import ConvEConfig


def explained_tests(
    graph: Graph, config: ConvEConfig, settings: TrainSettings, base: Path | None, folder: Path, tests: int
) -> Explained:
    """Test triples whose tail the model in the file `base` ranks first, drawn by the seed of its training; without
    a file, a model is trained."""
    if base is None:
        torch.manual_seed(settings.seed)
        model = ConvE(config)
        fit(model, graph, settings, folder / "base", Silent())
    else:
        loaded = load_checkpoint(base, graph, device=torch.device("cpu"), learning_rate=1.0)
        read = loaded.checkpoint.model
        if not isinstance(read, ConvE) or loaded.settings is None or loaded.epoch is None:
            raise BadInput(
                f"{base} is no checkpoint of a ConvE that kgops trained.", hint="name a best_model.pt."
            )
        model, settings = read, replace(TrainSettings(**loaded.settings), num_epochs=loaded.epoch)
    known = torch.cat([graph.train, graph.valid, graph.test])
    evaluation = Evaluator(known, graph.num_entities)(model.eval(), graph.test)
    assert evaluation is not None
    first = (evaluation.tail_ranks == 1).nonzero()[:, 0]
    if not len(first):
        raise BadInput("the model ranks no test triple first.", hint="train it for more --epochs.")
    order = torch.randperm(len(first), generator=torch.Generator().manual_seed(settings.seed))
    return Explained(graph, model, settings, graph.test[first[order[:tests]]])


@dataclass(frozen=True)
class Removed:
    """The drawn predictions after training again without a method's sets.

    `hits_at_1` and `mrr`: one value for each seed. `hits_of_pairs` and `hits_of_others`: hits@1 of the predictions
    whose set has a fact about the same two entities, and of the others; None where there are none.
    """

    method: str
    removed: int
    mean_size: float
    with_pair: int
    seconds_each: float
    hits_at_1: list[float]
    mrr: list[float]
    hits_of_pairs: float | None
    hits_of_others: float | None

    @property
    def fall(self) -> float:
        return 1 - mean(self.hits_at_1)

    def line(self) -> str:
        return (
            f"{self.method:37} {self.removed:7,} {self.mean_size:5.2f} {self.seconds_each:7.3f} "
            f"{-self.fall:+7.3f} {mean(self.mrr) - 1:+7.3f} {self.with_pair:6} "
            f"{_fall(self.hits_of_pairs)} {_fall(self.hits_of_others)}   "
            + " ".join(f"{value - 1:+.3f}" for value in self.hits_at_1)
        )


REMOVED_HEADS = (
    f"{'':37} {'':7} {'':5} {'':7} {'':7} {'':7} {'hits@1 of sets':^24}\n"
    f"{'method':37} removed  size  s each  hits@1     MRR   with pair    without   hits@1 by seed\n"
    + "-"
    * 115
)


def removals(
    explained: Explained, folder: Path, *, seeds: int, most: int, names: Sequence[str]
) -> Iterator[Removed]:
    """A row for each method, or for those with these names; trainings that are in `folder` are not done again. All
    are trained again with the same seeds, which are not that of the model."""
    protocol = _Protocol(explained, folder, seeds)
    offered: dict[str, Method] = {
        **methods(most),
        f"explain, smallest of {most}": lambda explained: protocol.smallest(
            offered[f"explain, {most}"](explained)
        ),
    }
    unknown = [name for name in names if name not in offered]
    if unknown:
        raise BadInput(f"no method is named {unknown[0]!r}.", hint=f"choose of: {'; '.join(offered)}.")
    chosen = [name for name in offered if name in names or not names]
    for name in chosen:
        begin = time.perf_counter()
        sets = offered[name](explained)
        whole = protocol.without(name, sets, (time.perf_counter() - begin) / len(explained.drawn))
        yield whole
    fewer = put_back(sets, torch.Generator().manual_seed(explained.settings.seed))
    less = protocol.without(f"{chosen[-1]}, less one fact", fewer, 0.0)
    shrinks = "n/a" if not whole.fall else f"{1 - less.fall / whole.fall:.0%}"
    yield less
    print(f"with one fact of each set put back, the fall of hits@1 shrinks by {shrinks}", flush=True)


@dataclass(frozen=True)
class _Protocol:
    explained: Explained
    folder: Path
    seeds: int

    @cached_property
    def queries(self) -> list[Query]:
        return [Query(_triple(test)) for test in self.explained.drawn]

    @cached_property
    def journal(self) -> Journal:
        graph, drawn, config = self.explained.graph, self.explained.drawn, self.explained.model.config
        again = FitAgain(graph, drawn, config, self.explained.settings, self.folder, Silent())
        return Journal(self.folder / "removals.jsonl", graph.train, drawn, again)

    def without(self, name: str, sets: Sequence[Sequence[int]], seconds_each: float) -> Removed:
        train, rows = self.journal.train, union_of(sets)
        seeds = seeds_after(self.explained.settings.seed, self.seeds)
        ranks = ranks_without(self.journal, {name: rows}, seeds, self.queries)[name]
        pairs = [
            any(pair_of(_triple(train[row]), query.triple) for row in one)
            for query, one in zip(self.queries, sets, strict=True)
        ]
        return Removed(
            name,
            len(rows),
            mean(map(len, sets)),
            sum(pairs),
            seconds_each,
            [mean(map(_hit, one)) for one in ranks],
            [mean(1 / rank for rank in one) for one in ranks],
            _hits_where(ranks, pairs),
            _hits_where(ranks, [not pair for pair in pairs]),
        )

    def smallest(self, sets: list[list[int]]) -> list[list[int]]:
        """As `kgops explain --smallest` does; its trainings are timed with it."""
        how = {"seed": self.explained.settings.seed, "seeds": self.seeds}
        sizes, _ = smallest(self.journal, self.queries, sets, [1.0] * len(sets), **how)
        return [one[:size] for one, size in zip(sets, sizes, strict=True)]


def _hit(rank: float) -> float:
    return float(rank <= 1)


def _hits_where(ranks: Sequence[Sequence[float]], chosen: Sequence[bool]) -> float | None:
    hits = [_hit(rank) for one in ranks for rank, here in zip(one, chosen, strict=True) if here]
    return mean(hits) if hits else None


def _triple(row: torch.Tensor) -> tuple[int, int, int]:
    h, r, t = row.tolist()
    return h, r, t


def _fall(hits: float | None) -> str:
    return "       n/a" if hits is None else f"{hits - 1:+10.3f}"
