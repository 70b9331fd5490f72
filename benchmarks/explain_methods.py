"""Methods that explain predictions by training triples: what `python -m benchmarks.explain` compares."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from kgops.explanations.head_encoder import HeadEncoder
from kgops.explanations.head_row import HeadRow, Surroundings
from kgops.explanations.necessary import explain, gradient_order
from kgops.explanations.prediction import Prediction
from kgops.explanations.targets import targets_of
from kgops.explanations.training_queries import Background, TrainingQueries
from kgops.graphs.triples import Graph
from kgops.models.conve import ConvE
from kgops.tracin.blocks import Settings, TracinCheckpoint
from kgops.tracin.curvature import Training
from kgops.tracin.loss import TARGET, TracinLoss
from kgops.tracin.models import last_layers
from kgops.tracin.scan import TopTriples, scan
from kgops.training.evaluate import KnownAnswers
from kgops.training.settings import TrainSettings

__all__ = ["Explained", "Method", "methods", "surroundings", "training_of"]

_LAST_LAYERS = 2
_RANKED = 2000  # influences of a prediction among which those of its head are looked for


@dataclass(frozen=True)
class Explained:
    """A model, and the predictions that are explained."""

    graph: Graph
    model: ConvE
    settings: TrainSettings
    drawn: torch.Tensor
    damping: float

    @cached_property
    def around(self) -> Surroundings:
        return surroundings(self.graph, self.model, self.settings, self.damping)

    @cached_property
    def _known(self) -> KnownAnswers:
        return KnownAnswers(torch.cat([self.graph.train, self.graph.valid, self.graph.test]))

    def prediction(self, number: int) -> Prediction:
        h, r, t = (int(one) for one in self.drawn[number])
        row = 2 * r if self.model.config.inverse else r
        answers = self._known.of(torch.tensor([h]), torch.tensor([row]))[1]
        return Prediction(self.model, self.around.encoder, (h, r, t), answers)

    def head(self, number: int) -> HeadRow:
        return HeadRow(self.around, int(self.drawn[number, 0]))

    def of_head(self, number: int) -> torch.Tensor:
        """Rows of the training triples that mention the head, in the order of its facts."""
        head, train = self.drawn[number, 0], self.graph.train
        return ((train[:, 0] == head) | (train[:, 2] == head)).nonzero()[:, 0]

    def strongest(self, loss: TracinLoss, how: Settings, names: frozenset[str] | None = None) -> torch.Tensor:
        """Rows of the training triples with the highest scores: (predictions, ranked)."""
        top = TopTriples(min(_RANKED, len(self.graph.train)))
        checkpoint = TracinCheckpoint(self.model, 1.0)
        scan([checkpoint], loss, self.graph.train, self.drawn, top, settings=how, names=names)
        return top.proponents[1]


# Rows of training triples for each prediction.
Method = Callable[[Explained], list[list[int]]]


def methods(seed: int, most: int, overshoot: float) -> dict[str, Method]:
    """Each with one fact, and with as many as allowed."""
    named = {
        "random of the graph": _random_of_graph(seed),
        "random of the head": _random_of_head(seed),
        "gradient at the head": _by_gradient,
        "last-layer influences": _by_score("tracin", last=True),
        "tracin": _by_score("tracin"),
        "tracin of the head": _by_score("tracin", of_head=True),
        "fisher": _by_score("fisher"),
        "fisher of the head": _by_score("fisher", of_head=True),
        "newton": _newton(overshoot),
    }
    found: dict[str, Method] = {"none, another seed": lambda explained: [[] for _ in explained.drawn]}
    for many in dict.fromkeys((1, most)):
        found |= {f"{name}, {many}": make(many) for name, make in named.items()}
    return found


def _random_of_graph(seed: int) -> Callable[[int], Method]:
    def make(many: int) -> Method:
        def method(explained: Explained) -> list[list[int]]:
            draw, of = _generator(seed, f"graph {many}"), len(explained.graph.train)
            return [torch.randperm(of, generator=draw)[:many].tolist() for _ in explained.drawn]

        return method

    return make


def _random_of_head(seed: int) -> Callable[[int], Method]:
    def make(many: int) -> Method:
        def method(explained: Explained) -> list[list[int]]:
            draw = _generator(seed, f"head {many}")
            pools = [explained.of_head(number) for number in range(len(explained.drawn))]
            return [pool[torch.randperm(len(pool), generator=draw)[:many]].tolist() for pool in pools]

        return method

    return make


def _by_gradient(many: int) -> Method:
    return _of_head(lambda head, prediction: gradient_order(head, prediction)[:many])


def _newton(overshoot: float) -> Callable[[int], Method]:
    def make(many: int) -> Method:
        beyond = overshoot if many > 1 else 0.0
        return _of_head(lambda head, prediction: explain(head, prediction, most=many, overshoot=beyond).facts)

    return make


def _of_head(choose: Callable[[HeadRow, Prediction], Sequence[int]]) -> Method:
    def method(explained: Explained) -> list[list[int]]:
        sets: list[list[int]] = []
        for number in range(len(explained.drawn)):
            pool = explained.of_head(number)
            facts = choose(explained.head(number), explained.prediction(number)) if len(pool) else ()
            sets.append(pool[list(facts)].tolist())
        return sets

    return method


def _by_score(score: str, *, last: bool = False, of_head: bool = False) -> Callable[[int], Method]:
    """The highest scores of the last checkpoint; TracIn's under the loss of the triple's own logit, its best."""

    def make(many: int) -> Method:
        def method(explained: Explained) -> list[list[int]]:
            model, settings = explained.model, explained.settings
            training = training_of(explained.graph, settings)
            how = Settings(
                both_directions=model.config.inverse and score == "tracin", score=score, training=training
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


def training_of(graph: Graph, settings: TrainSettings) -> Training:
    return Training(graph.train, "bce" if settings.loss.endswith("bce") else "softmax", settings.one_positive)


def surroundings(graph: Graph, model: ConvE, settings: TrainSettings, damping: float) -> Surroundings:
    encoder, c = HeadEncoder(model), model.config
    recorded = {"name": settings.loss, "label_smoothing": settings.label_smoothing}
    targets = targets_of(recorded, c.num_entities)
    queries = TrainingQueries(graph.train, relation_rows=c.relation_rows, inverse=c.inverse)
    background = Background(queries, encoder, model, targets, seed=settings.seed)
    return Surroundings(model, targets, queries, encoder, background, damping)


def _generator(seed: int, what: str) -> torch.Generator:
    """One for each method: what it draws does not depend on the methods before it."""
    digest = hashlib.sha256(f"kgops explain {seed} {what}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
