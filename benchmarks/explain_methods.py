"""Methods that explain predictions by training triples: what `python -m benchmarks.explain` compares."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from kgops.explanations.necessary import Influences, explain, facts_of
from kgops.explanations.prediction import Prediction, Query
from kgops.graphs.triples import Graph
from kgops.models.conve import ConvE
from kgops.tracin.blocks import Settings, TracinCheckpoint
from kgops.tracin.curvature import Training, training_of
from kgops.tracin.loss import TARGET, TracinLoss
from kgops.tracin.models import last_layers
from kgops.tracin.scan import TopTriples, scan
from kgops.training.batches import inverse_triples
from kgops.training.evaluate import KnownAnswers
from kgops.training.settings import TrainSettings

_LAST_LAYERS = 2
_POISON = 0.1  # length of data poisoning's step, of the head's vector
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
        scan([checkpoint], loss, self.graph.train, self.drawn, top, settings=how, names=names)
        return top.proponents[1]


# Rows of training triples for each prediction.
Method = Callable[[Explained], list[list[int]]]


def methods(seed: int, most: int) -> dict[str, Method]:
    """Each with one fact, and with as many as allowed."""
    named = {
        "random of the graph": _random_of_graph(seed),
        "random of the head": _random_of(seed, "head", Explained.of_head),
        "random of head and tail": _random_of(seed, "ends", Explained.of_ends),
        "data poisoning": _poisoning,
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


def _random_of_graph(seed: int) -> Callable[[int], Method]:
    def make(many: int) -> Method:
        def method(explained: Explained) -> list[list[int]]:
            draw, of = _generator(seed, f"graph {many}"), len(explained.graph.train)
            return [torch.randperm(of, generator=draw)[:many].tolist() for _ in explained.drawn]

        return method

    return make


def _random_of(
    seed: int, name: str, pool_of: Callable[[Explained, int], torch.Tensor]
) -> Callable[[int], Method]:
    def make(many: int) -> Method:
        def method(explained: Explained) -> list[list[int]]:
            draw = _generator(seed, f"{name} {many}")
            pools = [pool_of(explained, number) for number in range(len(explained.drawn))]
            return [pool[torch.randperm(len(pool), generator=draw)[:many]].tolist() for pool in pools]

        return method

    return make


def _explain(many: int) -> Method:
    """As `kgops run explain` does."""

    def method(explained: Explained) -> list[list[int]]:
        sets: list[list[int]] = []
        for number in range(len(explained.drawn)):
            pool, prediction = explained.of_ends(number), explained.prediction(number)
            facts = explained.graph.train[pool]
            falls = explained.influences.falls(prediction, facts)
            sets.append([int(pool[row]) for row, _ in explain(prediction, facts, falls, most=many)])
        return sets

    return method


def _poisoning(many: int) -> Method:
    """Data poisoning (Zhang et al. 2019): facts of the head that lose most of their score when the head's vector takes
    a step against the gradient of the prediction's."""

    def method(explained: Explained) -> list[list[int]]:
        return [_lost_by_step(explained, number)[:many].tolist() for number in range(len(explained.drawn))]

    return method


def _lost_by_step(explained: Explained, number: int) -> torch.Tensor:
    """Rows of the facts of the prediction's head, those that lose most first."""
    model, pool = explained.model, explained.of_head(number)
    head = int(explained.drawn[number, 0])
    own = _asked_of(head, explained.drawn[number : number + 1], inverse=model.config.inverse)
    facts = _asked_of(head, explained.graph.train[pool], inverse=model.config.inverse)
    (gradient,) = torch.autograd.grad(model.score_triples(own).sum(), model.entities)
    with torch.no_grad():
        vector = model.entities[head].clone()
        before = model.score_triples(facts)
        model.entities[head] -= _POISON * vector.norm() * F.normalize(gradient[head], dim=0)
        lost = before - model.score_triples(facts)
        model.entities[head] = vector
    return pool[lost.argsort(descending=True)]


def _asked_of(head: int, facts: torch.Tensor, *, inverse: bool) -> torch.Tensor:
    """As rows of the model, with this entity as the head where the model has inverse relations."""
    if not inverse:
        return facts
    forward = torch.stack([facts[:, 0], 2 * facts[:, 1], facts[:, 2]], dim=1)
    return torch.where((facts[:, 0] == head)[:, None], forward, inverse_triples(facts))


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


def _generator(seed: int, what: str) -> torch.Generator:
    """One for each method: what it draws does not depend on the methods before it."""
    digest = hashlib.sha256(f"kgops explain {seed} {what}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
