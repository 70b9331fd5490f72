"""All answers of a run as columns: a row is made when a file is written, and gone with the next one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from kgops.maths.predict.answer_files import Answer
from kgops.maths.predict.known import NEW
from kgops.maths.predict.names import NamedVocabulary
from kgops.maths.predict.ranking import Answers
from kgops.maths.train.evaluate import split


@dataclass(frozen=True)
class Listed:
    """The answers to one question, best first. `triples` as int32: half of what torch's ids take."""

    question: int
    asked: str
    triples: torch.Tensor
    found: Answers
    known: Sequence[str]


@dataclass(frozen=True)
class Listing:
    """The answers to all questions, in their order."""

    entities: NamedVocabulary
    relations: NamedVocabulary
    listed: Sequence[Listed]

    def __len__(self) -> int:
        return sum(len(one.triples) for one in self.listed)

    def __iter__(self) -> Iterator[Answer]:
        for one in self.listed:
            yield from self.rows(one)

    @cached_property
    def of_question(self) -> Mapping[int, Listed]:
        return {one.question: one for one in self.listed}

    @property
    def new(self) -> int:
        return sum(one.known.count(NEW) for one in self.listed)

    def answers_to(self, question: int) -> Iterator[Answer]:
        one = self.of_question.get(question)
        return iter(()) if one is None else self.rows(one)

    def rows(self, one: Listed) -> Iterator[Answer]:
        entities, relations, found = self.entities, self.relations, one.found
        probabilities = found.probabilities
        columns = zip(
            one.triples.tolist(), found.ranks.tolist(), found.scores.tolist(), one.known, strict=True
        )
        for place, ((h, r, t), rank, score, known) in enumerate(columns):
            yield Answer(
                *(one.question, one.asked, rank),
                *(entities.label(h), entities.name(h), relations.label(r), relations.name(r)),
                *(entities.label(t), entities.name(t), score),
                None if probabilities is None else float(probabilities[place]),
                known,
            )

    def best_first(self, *, new_alone: bool = False) -> Iterator[tuple[str, ...]]:
        """Each triple once: first the best answer to each question, then each second best, and so on. A fourth word
        marks predicted heads, which are explained as such."""
        if not self.listed:
            return
        chosen = [
            torch.tensor([not new_alone or known == NEW for known in one.known], dtype=torch.bool)
            for one in self.listed
        ]
        pairs = zip(self.listed, chosen, strict=True)
        triples = torch.cat([_marked(one.triples[rows], one.asked == "head") for one, rows in pairs])
        places = torch.cat([torch.arange(int(rows.sum()), dtype=torch.int32) for rows in chosen])
        for h, marked, t in _in_parts(_distinct(triples[places.argsort(stable=True)])):
            r, is_head = divmod(marked, 2)
            triple = self.entities.label(h), self.relations.label(r), self.entities.label(t)
            yield (*triple, "head") if is_head else triple


def _marked(triples: torch.Tensor, is_head: bool) -> torch.Tensor:
    """With 2r, or 2r + 1 where the head is what was predicted, in the place of relation r."""
    h, r, t = triples.unbind(dim=1)
    return torch.stack([h, 2 * r + is_head, t], dim=1)


def _distinct(triples: torch.Tensor) -> torch.Tensor:
    """The first of equal rows, in their order."""
    if not len(triples):
        return triples
    h, r, t = triples.long().unbind(dim=1)
    keys, order = ((h * (r.max() + 1) + r) * (t.max() + 1) + t).sort(stable=True)
    first = torch.ones(len(keys), dtype=torch.bool)
    first[1:] = keys[1:] != keys[:-1]
    return triples[order[first].sort().values]


def _in_parts(triples: torch.Tensor) -> Iterator[list[int]]:
    for part in split(triples, 1 << 16):
        yield from part.tolist()
