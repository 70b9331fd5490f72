"""Methods that explain predictions by training triples: what `python -m benchmarks.explain` compares."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from kgops.maths.explain.prediction import Influences, Prediction, Query, effects_of, facts_of, strongest
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.curvature import Training, training_of
from kgops.maths.tracin.loss import TARGET, TracinLoss
from kgops.maths.tracin.models import last_layers
from kgops.maths.tracin.scan import Scoring, TopTriples
from kgops.maths.train.evaluate import KnownAnswers
from kgops.maths.train.settings import TrainSettings

_LAST_LAYERS = 2
_RANKED = 2000  # influences of a prediction among which those of its head are looked for


@dataclass(frozen=True)
class Explained:
    """A model, and the predictions that are explained."""

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

    def prediction(self, number: int) -> Prediction:
        h, r, t = (int(one) for one in self.drawn[number])
        answers = self._known.of(torch.tensor([h]), torch.tensor([2 * r]))[1]
        return Prediction(self.model, Query((h, r, t)), answers)

    def of_graph(self, number: int) -> torch.Tensor:
        return torch.arange(len(self.graph.train))

    def of_head(self, number: int) -> torch.Tensor:
        """Rows of the training triples that mention the head."""
        return facts_of(self.graph.train, int(self.drawn[number, 0]))

    def of_ends(self, number: int) -> torch.Tensor:
        """Rows of the training triples that mention the head or the tail."""
        h, _, t = (int(one) for one in self.drawn[number])
        return facts_of(self.graph.train, h, t)

    def strongest(self, loss: TracinLoss, how: Settings, names: frozenset[str] | None = None) -> torch.Tensor:
        """Rows of the training triples with the highest scores: (predictions, ranked)."""
        top = TopTriples(min(_RANKED, len(self.graph.train)))
        checkpoint = TracinCheckpoint(self.model, 1.0)
        Scoring([checkpoint], loss, how, names)(self.graph.train, self.drawn, top)
        return top.proponents[1]


# Rows of training triples for each prediction.
Method = Callable[[Explained], list[list[int]]]


def methods(seed: int, most: int) -> dict[str, Method]:
    """Each with one fact, and with as many as allowed."""
    named = {
        "random of the graph": _random_of(seed, "graph", Explained.of_graph),
        "random of the head": _random_of(seed, "head", Explained.of_head),
        "random of head and tail": _random_of(seed, "ends", Explained.of_ends),
        "last-layer influences": _by_score("tracin", last=True),
        "tracin": _by_score("tracin"),
        "tracin of the head": _by_score("tracin", of_head=True),
        "fisher": _by_score("fisher"),
        "fisher of the head": _by_score("fisher", of_head=True),
        "explain": _explain,
    }
    found: dict[str, Method] = {
        "none, another seed": lambda explained: [[] for _ in explained.drawn],
        # The most that any set of the head's own facts can do.
        "all of the head": lambda explained: [
            explained.of_head(number).tolist() for number in range(len(explained.drawn))
        ],
    }
    for many in dict.fromkeys((1, most)):
        found |= {f"{name}, {many}": make(many) for name, make in named.items()}
    return found


def _random_of(
    seed: int, name: str, pool_of: Callable[[Explained, int], torch.Tensor]
) -> Callable[[int], Method]:
    def make(many: int) -> Method:
        def method(explained: Explained) -> list[list[int]]:
            draw = generator_of(f"explain {seed} {name} {many}")
            pools = [pool_of(explained, number) for number in range(len(explained.drawn))]
            return [pool[torch.randperm(len(pool), generator=draw)[:many]].tolist() for pool in pools]

        return method

    return make


def _explain(many: int) -> Method:
    """As `kgops explain` does."""

    def method(explained: Explained) -> list[list[int]]:
        sets: list[list[int]] = []
        for number in range(len(explained.drawn)):
            pool, prediction = explained.of_ends(number), explained.prediction(number)
            facts = explained.graph.train[pool]
            falls = explained.influences.falls(prediction, facts)
            sets.append(
                [int(pool[row]) for row, _ in strongest(effects_of(prediction, facts, falls), most=many)]
            )
        return sets

    return method


def _by_score(score: str, *, last: bool = False, of_head: bool = False) -> Callable[[int], Method]:
    """The highest scores of the last checkpoint; TracIn's under the loss of the triple's own logit, its best."""

    def make(many: int) -> Method:
        def method(explained: Explained) -> list[list[int]]:
            model = explained.model
            how = Settings(
                both_directions=model.config.inverse and score == "tracin",
                score=score,
                training=explained.training,
            )
            names = last_layers(model, _LAST_LAYERS) if last else None
            ranked = explained.strongest(TARGET, how, names)
            if of_head:
                pools = [explained.of_head(number) for number in range(len(ranked))]
                ranked_of_head = [row[torch.isin(row, pool)] for row, pool in zip(ranked, pools, strict=True)]
                return [row[:many].tolist() for row in ranked_of_head]
            sets: list[list[int]] = ranked[:, :many].tolist()
            return sets

        return method

    return make


def generator_of(what: str) -> torch.Generator:
    """One for each use: what it draws does not depend on the draws before it."""
    digest = hashlib.sha256(f"kgops {what}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
