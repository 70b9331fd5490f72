"""Scores of all entities as answers: by matrix products for kgops' own models, question by question for PyKEEN's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kgops.maths.models.entity_model import EntityModel
from kgops.maths.train.evaluate import HeadScores, TailScores, split
from kgops.workloads.predict.job import PREDICT_ENCODED, PREDICT_SCORES

_VALUES_AT_ONCE = 1 << 25  # of vectors that a PyKEEN model multiplies one by one


class Scores(Protocol):
    """Scores of a block of questions."""

    def roughly(self, start: int, stop: int, out: torch.Tensor) -> None:
        """Writes the scores of entities from `start` to `stop`: (entities, questions), up to rounding."""

    def exactly(self, questions: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """The score of each pair, in PyKEEN's arithmetic."""

    def margin(self) -> torch.Tensor:
        """For each question, how far the two may differ at most."""


class Scorer(Protocol):
    num_entities: int
    like: torch.Tensor  # has the dtype and device of the scores

    def blocks(self, asked: torch.Tensor) -> Iterator[tuple[torch.Tensor, Scores]]:
        """Blocks of questions, rows (known entity, relation, 1 where heads are asked): which rows, their scores."""

    def tails(self, heads: torch.Tensor, relation: int) -> Scores:
        """Scores of the tails of these heads."""

    def heads_at_once(self, chunk: int) -> int:
        """Heads for which `tails` is called at once, where `chunk` entities are scored at a time."""


def scorer_of(model: Any, chunk: int) -> Scorer:
    """For a model of kgops or of PyKEEN, in evaluation mode; the latter scores `chunk` entities at a time."""
    return _Own(model) if isinstance(model, EntityModel) else _Pykeen(model, chunk)


class _Own:
    def __init__(self, model: EntityModel) -> None:
        self.model, self.num_entities, self.like = model, model.config.num_entities, model.entities.detach()
        self._at_once = max(1, min(PREDICT_ENCODED, PREDICT_SCORES // self.num_entities))

    def blocks(self, asked: torch.Tensor) -> Iterator[tuple[torch.Tensor, Scores]]:
        for_heads = asked[:, 2] == 1
        if self.model.config.inverse:
            # The heads of a relation are the tails of its inverse.
            rows, relations = torch.arange(len(asked)), 2 * asked[:, 1] + asked[:, 2]
        else:
            rows, relations = (~for_heads).nonzero()[:, 0], asked[:, 1]
        for some in split(rows, self._at_once):
            yield some, TailScores(self.model, self._vectors(asked[some, 0], relations[some]))
        if not self.model.config.inverse:
            yield from self._by_relation(asked, for_heads.nonzero()[:, 0])

    def _by_relation(self, asked: torch.Tensor, rows: torch.Tensor) -> Iterator[tuple[torch.Tensor, Scores]]:
        """Without inverse relations, every entity is encoded as a head: once for each relation."""
        for relation in torch.unique(asked[rows, 1]).tolist():
            vectors = self._encoded(torch.arange(self.num_entities), relation)
            for some in split(rows[asked[rows, 1] == relation], self._at_once):
                yield some, HeadScores(self.model, vectors, asked[some, 0].to(self.like.device))

    def tails(self, heads: torch.Tensor, relation: int) -> Scores:
        row = 2 * relation if self.model.config.inverse else relation
        return TailScores(self.model, self._encoded(heads, row))

    def heads_at_once(self, chunk: int) -> int:
        return PREDICT_ENCODED

    def _encoded(self, heads: torch.Tensor, relation: int) -> torch.Tensor:
        return torch.cat(
            [self._vectors(some, torch.full_like(some, relation)) for some in split(heads, PREDICT_ENCODED)]
        )

    def _vectors(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        device = self.like.device
        return self.model.encode(heads.to(device), relations.to(device))


class _Pykeen:
    """Asks as PyKEEN's `predict_target` does, a question at a time: the scores are the same, bit for bit."""

    def __init__(self, model: Any, chunk: int) -> None:
        self.model, self.num_entities = model, int(model.num_entities)
        self.like = next(p for p in model.parameters() if p.is_floating_point()).detach()
        self._chunk = chunk

    def blocks(self, asked: torch.Tensor) -> Iterator[tuple[torch.Tensor, Scores]]:
        for row, (known, relation, heads) in enumerate(asked.tolist()):
            pair = torch.tensor([[relation, known] if heads else [known, relation]], device=self.like.device)
            yield torch.tensor([row]), self._scores(pair, "head" if heads else "tail")

    def tails(self, heads: torch.Tensor, relation: int) -> Scores:
        pairs = torch.stack([heads, torch.full_like(heads, relation)], dim=1)
        return self._scores(pairs.to(self.like.device), "tail")

    def heads_at_once(self, chunk: int) -> int:
        width: int = math.prod(self.model.entity_representations[0].shape)
        return max(1, min(PREDICT_ENCODED, _VALUES_AT_ONCE // (width * min(chunk, self.num_entities))))

    def _scores(self, pairs: torch.Tensor, target: str) -> Scores:
        if self.num_entities <= self._chunk:
            return _Given(self.model.predict(pairs, target, full_batch=False))
        every = torch.arange(self.num_entities, device=self.like.device)
        parts = [
            self.model.predict(pairs, target, full_batch=False, ids=ids) for ids in split(every, self._chunk)
        ]
        return _Given(torch.cat(parts, dim=1))


@dataclass(frozen=True)
class _Given:
    """Scores (questions, entities) that a model has computed in its own way."""

    scores: torch.Tensor

    def roughly(self, start: int, stop: int, out: torch.Tensor) -> None:
        out.copy_(self.scores[:, start:stop].t())

    def exactly(self, questions: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        return self.scores[questions, candidates]

    def margin(self) -> torch.Tensor:
        return self.scores.new_zeros(len(self.scores))
