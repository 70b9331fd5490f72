"""Methods that explain predictions by training triples: what `python -m benchmarks.explain` compares."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from kgops.maths.explain.prediction import Influences, Prediction, Query, effects_of, facts_of, strongest
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.curvature import Training, training_of
from kgops.maths.tracin.loss import TARGET
from kgops.maths.tracin.models import last_layers
from kgops.maths.tracin.scan import Scoring, TopTriples
from kgops.maths.train.evaluate import KnownAnswers
from kgops.maths.train.settings import TrainSettings

_LAST_LAYERS = 2
_RANKED = 2000  # influences of a prediction among which those of its head are looked for


@dataclass(frozen=True)
class Explained:
    """A trained model, how it was trained, and the predictions that are explained."""

    graph: Graph
    model: ConvE
    settings: TrainSettings
    drawn: torch.Tensor

    @cached_property
    def training(self) -> Training:
        return training_of(self.graph.train, {"name": self.settings.loss})

    @cached_property
    def influences(self) -> Influences:
        return Influences(self.model, self.training, seed=self.settings.seed)

    @cached_property
    def _known(self) -> KnownAnswers:
        return KnownAnswers(torch.cat([self.graph.train, self.graph.valid, self.graph.test]))

    def prediction(self, test: torch.Tensor) -> Prediction:
        h, r, t = test.tolist()
        answers = self._known.of(torch.tensor([h]), torch.tensor([2 * r]))[1]
        return Prediction(self.model, Query((h, r, t)), answers)

    def of_graph(self, test: torch.Tensor) -> torch.Tensor:
        return torch.arange(len(self.graph.train))

    def of_head(self, test: torch.Tensor) -> torch.Tensor:
        """Rows of the training triples that mention the head."""
        return facts_of(self.graph.train, int(test[0]))

    def of_ends(self, test: torch.Tensor) -> torch.Tensor:
        """Rows of the training triples that mention the head or the tail."""
        return facts_of(self.graph.train, int(test[0]), int(test[2]))


# Rows of training triples for each prediction.
Method = Callable[[Explained], list[list[int]]]


def methods(most: int) -> dict[str, Method]:
    """Each with one fact, and with as many as allowed."""
    named: dict[str, Callable[[int, Explained], list[list[int]]]] = {
        "random of the graph": partial(_random_of, "graph", Explained.of_graph),
        "random of the head": partial(_random_of, "head", Explained.of_head),
        "random of head and tail": partial(_random_of, "ends", Explained.of_ends),
        "last-layer influences": partial(_by_score, "tracin", last=True),
        "tracin": partial(_by_score, "tracin"),
        "tracin of the head": partial(_by_score, "tracin", of_head=True),
        "fisher": partial(_by_score, "fisher"),
        "fisher of the head": partial(_by_score, "fisher", of_head=True),
        "explain": _explain,
    }
    found: dict[str, Method] = {
        "none, another seed": lambda explained: [[] for _ in explained.drawn],
        # The most that any set of the head's own facts can do.
        "all of the head": lambda explained: [explained.of_head(test).tolist() for test in explained.drawn],
    }
    for many in dict.fromkeys((1, most)):
        found |= {f"{name}, {many}": partial(method, many) for name, method in named.items()}
    return found


def _random_of(
    name: str, pool_of: Callable[[Explained, torch.Tensor], torch.Tensor], many: int, explained: Explained
) -> list[list[int]]:
    draw = generator_of(f"explain {explained.settings.seed} {name} {many}")
    pools = [pool_of(explained, test) for test in explained.drawn]
    return [pool[torch.randperm(len(pool), generator=draw)[:many]].tolist() for pool in pools]


def _explain(many: int, explained: Explained) -> list[list[int]]:
    """As `kgops explain` does."""
    sets = []
    for test in explained.drawn:
        pool, prediction = explained.of_ends(test), explained.prediction(test)
        facts = explained.graph.train[pool]
        falls = explained.influences.falls(prediction, facts)
        best = strongest(effects_of(prediction, facts, falls), most=many)
        sets.append([int(pool[row]) for row, _ in best])
    return sets


def _by_score(
    score: str, many: int, explained: Explained, *, last: bool = False, of_head: bool = False
) -> list[list[int]]:
    """The highest scores of the last checkpoint; TracIn's under the loss of the triple's own logit, its best."""
    model, train = explained.model, explained.graph.train
    how = Settings(
        both_directions=model.config.inverse and score == "tracin",
        score=score,
        training=explained.training,
    )
    names = last_layers(model, _LAST_LAYERS) if last else None
    top = TopTriples(min(_RANKED, len(train)))
    Scoring([TracinCheckpoint(model, 1.0)], TARGET, how, names)(train, explained.drawn, top)
    ranked = list(top.proponents[1])
    if of_head:
        pools = [explained.of_head(test) for test in explained.drawn]
        ranked = [row[torch.isin(row, pool)] for row, pool in zip(ranked, pools, strict=True)]
    return [row[:many].tolist() for row in ranked]


def generator_of(what: str) -> torch.Generator:
    """One for each use: what it draws does not depend on the draws before it."""
    digest = hashlib.sha256(f"kgops {what}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
