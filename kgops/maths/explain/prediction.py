"""A prediction that is explained, its rivals, and the triples of head and tail that it rests on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.jobs.option import not_a_triple, triple_in
from kgops.maths.graphs.triples import triple_rows
from kgops.maths.graphs.vocabulary import shown
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.predict.questions import NamedVocabulary
from kgops.maths.tracin.blocks import FisherEngine, Settings, TracinCheckpoint
from kgops.maths.tracin.curvature import Training
from kgops.maths.train.evaluate import split
from kgops.workloads.explain.job import EXPLAIN_RIVALS


@dataclass(frozen=True)
class Query:
    """A triple whose tail the model is asked for, (head, relation, ?), or its head, (?, relation, tail)."""

    triple: tuple[int, int, int]
    asks_head: bool = False

    @property
    def given(self) -> int:
        return self.triple[2 if self.asks_head else 0]

    @property
    def answer(self) -> int:
        return self.triple[0 if self.asks_head else 2]

    @property
    def question(self) -> torch.Tensor:
        """As `KnownTriples.answers` takes it."""
        return torch.tensor([[self.given, self.triple[1], int(self.asks_head)]])

    def about(self, entity: int) -> Query:
        """The same answer, asked of another entity."""
        h, r, t = self.triple
        return replace(self, triple=(h, r, entity) if self.asks_head else (entity, r, t))

    def row(self, *, inverse: bool) -> tuple[int, int, int]:
        """Entity, relation and answer as the model numbers them. Heads are asked for by the inverse relation."""
        r = self.triple[1]
        return self.given, 2 * r + self.asks_head if inverse else r, self.answer


@dataclass(frozen=True)
class Standing:
    """`margin`: the logit less the log-sum-exp over others that are no known answers; `rank`: filtered, realistic."""

    score: float
    rank: float
    margin: float


class Prediction:
    """`known` are true answers to the question in any file. A model without inverse relations is asked for tails."""

    @torch.no_grad()
    def __init__(self, model: EntityModel, query: Query, known: torch.Tensor) -> None:
        self.query = query
        self._row = given, relation, answer = query.row(inverse=model.config.inverse)
        at = torch.tensor([[given], [relation]], device=model.entities.device)
        scores = torch.addmm(model.biases, model.encode(at[0], at[1]), model.entities.t())[0]
        self._own = scores[answer].clone()
        self._scores = scores
        self._scores[known.to(scores.device)] = -torch.inf
        self._scores[answer] = -torch.inf
        true = int(torch.isfinite(self._scores).sum())
        self.rivals = self._scores.topk(min(EXPLAIN_RIVALS, true)).indices

    @property
    def rows(self) -> torch.Tensor:
        """The query's row, and the same with each rival as answer."""
        rows = torch.tensor([self._row] * (1 + len(self.rivals)))
        rows[1:, 2] = self.rivals.cpu()
        return rows

    @property
    def shares(self) -> torch.Tensor:
        """How much each rival counts: by its probability among them."""
        return self._scores[self.rivals].softmax(0)

    def lead(self, logits: torch.Tensor) -> torch.Tensor:
        """Of the answer over its rivals: `logits` are in the order of `rows`, other dimensions come behind."""
        return logits[0] - self.of_rivals(logits)

    def of_rivals(self, logits: torch.Tensor) -> torch.Tensor:
        """Their mean, by their shares."""
        return self.shares @ logits[1:]

    def standing(self) -> Standing:
        own, others = self._own, self._scores
        rank = 1 + float((others > own).sum()) + float((others == own).sum()) / 2
        return Standing(float(own), rank, float(own - others.logsumexp(0)))


_SIDES = {"head": True, "tail": False}


@dataclass(frozen=True)
class Asked:
    """Prediction `number`, from 1; `trouble` says why it cannot be explained, and then there is no `query`."""

    number: int
    texts: tuple[str, str, str]
    query: Query | None
    trouble: str | None = None


def of_text(
    text: str, entities: NamedVocabulary, relations: NamedVocabulary, *, asks_head: bool = False
) -> Asked:
    """Splits head, relation and tail at tabs. Without tabs it splits at commas, and without commas at spaces."""
    triple = triple_in(text)
    if triple is None:
        raise BadInput(f"the prediction {not_a_triple(text)}.")
    return _resolved(1, triple, entities, relations, asks_head)


def of_file(
    path: Path, entities: NamedVocabulary, relations: NamedVocabulary, *, asks_head: bool = False
) -> list[Asked]:
    """All predictions of the file, in order; one with an unknown name has `trouble`. A fourth column, `head` or
    `tail`, is the end that was asked for."""
    asked: list[Asked] = []
    for n, parts in triple_rows(path):
        if not all(map(str.strip, parts[:3])):
            raise BadInput(
                f"{path}, line {n}: {shown(' '.join(parts))} is not head, relation and tail.",
                hint="each line is head, relation, tail, separated by single tabs.",
            )
        texts, number = (parts[0], parts[1], parts[2]), len(asked) + 1
        side = parts[3].strip() if len(parts) > 3 else ""
        if side and side.casefold() not in _SIDES:
            raise BadInput(
                f"{path}, line {n}: the fourth column is {shown(side)}.",
                hint="it says which end was asked for, head or tail; leave it out, or empty, for --asked.",
            )
        of_head = _SIDES.get(side.casefold(), asks_head)
        try:
            asked.append(_resolved(number, texts, entities, relations, of_head))
        except BadInput as error:
            asked.append(Asked(number, texts, None, error.message))
    if not asked:
        raise BadInput(f"{path} has no predictions.", hint="each line is head, relation, tail.")
    return asked


def _resolved(
    number: int,
    texts: tuple[str, str, str],
    entities: NamedVocabulary,
    relations: NamedVocabulary,
    asks_head: bool,
) -> Asked:
    head, relation, tail = texts
    triple = entities.find(head), relations.find(relation), entities.find(tail)
    return Asked(number, texts, Query(triple, asks_head))


class Influences:
    """Of training triples on the logits of a prediction and its rivals."""

    def __init__(self, model: EntityModel, training: Training, *, seed: int = 0) -> None:
        settings = Settings(score="fisher", training=training, seed=seed)
        # Facts that are learnt well have no gradient under 1vsAll, and are forgotten all the same without their sample.
        self._engine = FisherEngine(TracinCheckpoint(model, 1.0), settings, labels=True)
        self._device, self._block = model.entities.device, settings.block

    @torch.no_grad()
    def falls(self, prediction: Prediction, triples: torch.Tensor) -> torch.Tensor:
        """(answer and rivals, triples): how far each logit falls without a triple."""
        kept = self._engine.keep_rows(prediction.rows.to(self._device))
        blocks = split(triples.to(self._device), self._block)
        return torch.cat([self._engine.scores(kept, block) for block in blocks], dim=1)


def facts_of(train: torch.Tensor, *entities: int) -> torch.Tensor:
    """Rows of the training triples that mention one of the entities."""
    return torch.isin(train[:, [0, 2]], torch.tensor(entities)).any(dim=1).nonzero()[:, 0]


def is_itself(facts: torch.Tensor, triple: tuple[int, int, int]) -> torch.Tensor:
    """Which of the facts are the prediction itself."""
    return (facts == torch.tensor(triple)).all(dim=1)


def effects_of(prediction: Prediction, facts: torch.Tensor, falls: torch.Tensor) -> torch.Tensor:
    """How far the lead changes when each fact is removed. Of a fact that is one of d about its end, 1/d of the rivals'
    fall is not taken off.

    These are a ranking, not logits: several removals together do far less than the sum says. The prediction itself,
    where it is a training triple, is infinite: it is in no set and on no path.
    """
    kept = 1 - 1 / _facts_beside(prediction.query, facts).to(falls)
    itself = is_itself(facts, prediction.query.triple).to(falls.device)
    return (kept * prediction.of_rivals(falls) - falls[0]).masked_fill(itself, torch.inf)


def strongest(effects: torch.Tensor, *, most: int) -> list[tuple[int, float]]:
    """At most `most` rows, those whose removal lowers the lead most, and by how much each does."""
    rows = effects.argsort(stable=True)[:most].tolist()
    return [(row, float(effects[row])) for row in rows if effects[row] < 0]


def _facts_beside(query: Query, triples: torch.Tensor) -> torch.Tensor:
    """For each triple, how many triples mention the given entity, or the answer if this triple lacks the given one."""
    of_given, of_answer = ((triples[:, [0, 2]] == end).any(dim=1) for end in (query.given, query.answer))
    return torch.where(of_given, of_given.sum(), of_answer.sum())
