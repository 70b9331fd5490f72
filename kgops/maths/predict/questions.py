"""Questions (head, relation, ?) and (?, relation, tail): and the entities that may answer them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from kgops.errors import BadInput
from kgops.maths.graphs.vocabulary import (
    Vocabulary,
    bare,
    is_comment,
    is_id,
    read_lines,
    shown,
    written_lines,
)
from kgops.workloads.graphs.names import close_to, folded

_MOST_AMBIGUOUS = 5  # labels listed that have one name
_SUGGESTED = 20  # unknown names for which nearest names are searched: a second in 100,000 names


def did_you_mean(offered: Iterable[str]) -> str:
    """The end of a sentence that says what is unknown."""
    named = " or ".join(map(shown, offered))
    return f": did you mean {named}?" if named else "."


class NamedVocabulary:
    """The `kind` is entity or relation; `names`: label → readable name, for those that have one."""

    def __init__(self, kind: str, vocabulary: Vocabulary, names: Mapping[str, str]) -> None:
        self.kind, self.vocabulary, self.names = kind, vocabulary, names
        self._searches = 0  # for nearest names

    def label(self, number: int) -> str:
        return self.vocabulary.labels[number]

    def name(self, number: int) -> str:
        """The readable name; the label where there is none."""
        label = self.label(number)
        return self.names.get(label, label)

    def find(self, text: str, *, suggests: bool = True) -> int:
        """The id of a label. Tries labels, then names, then both in other case, then a number as an id. BadInput offers
        names similar to the first unknown ones."""
        exact = self.vocabulary.id_of(text)
        if exact is not None:
            return exact
        text = text.strip()  # of what is written in a table, or typed
        for spelled, numbers in ((text, self._by_name), (folded(text), self._by_folded)):
            if spelled in numbers:
                return self._only(text, numbers[spelled])
        vocabulary = self.vocabulary
        if is_id(text) and int(text) < len(vocabulary) and vocabulary.takes_ids:
            return int(text)
        suggests = suggests and self._searches < _SUGGESTED
        self._searches += suggests
        names = "label, readable name or id" if vocabulary.takes_ids else "label or readable name"
        raise BadInput(
            f"no {self.kind} is named {shown(text)}{self._nearest(text) if suggests else '.'}",
            hint=f"the graph has {len(vocabulary):,} {self._plural}; names are {names}.",
        )

    def _only(self, text: str, numbers: list[int]) -> int:
        if len(numbers) == 1:
            return numbers[0]
        labels = [shown(self.label(number)) for number in numbers[:_MOST_AMBIGUOUS]]
        more = ", …" if len(numbers) > _MOST_AMBIGUOUS else ""
        raise BadInput(
            f"{len(numbers)} {self._plural} are named {shown(text)}: {', '.join(labels)}{more}.",
            hint="give the label of the one you mean.",
        )

    def _nearest(self, text: str) -> str:
        near = close_to(text, self._by_folded)
        offered = dict.fromkeys(self._as_written(name, self._by_folded[name][0]) for name in near)
        return did_you_mean(offered)

    def _as_written(self, name: str, number: int) -> str:
        label = self.label(number)
        return label if folded(label) == name else self.name(number)

    @property
    def _plural(self) -> str:
        return "entities" if self.kind == "entity" else f"{self.kind}s"

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for number, label in enumerate(self.vocabulary.labels):
            if label in self.names:
                numbers.setdefault(self.names[label], []).append(number)
        return numbers

    @cached_property
    def _by_folded(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for number, label in enumerate(self.vocabulary.labels):
            for spelled in {folded(label), folded(self.names.get(label, label))}:
                numbers.setdefault(spelled, []).append(number)
        return numbers


_TYPE_COLUMNS = ("type", "types", "category", "categories", "node_type", "class", "kind", ":label")
_ID_COLUMNS = ("id", "node", "node_id", "entity", "entity_id", "label", "curie", "id:id")
_LISTED = 5  # types that a message lists


@dataclass(frozen=True)
class NodeTypes:
    """Types of the entities that the file names; spelled as there, without the prefix `biolink:`."""

    path: Path
    of_entity: Mapping[int, tuple[str, ...]]

    def entities(self, wanted: str) -> torch.Tensor:
        """Ids of the entities of a type, in upper or lower case."""
        folded = bare(wanted).casefold()
        ids = [one for one, types in self.of_entity.items() if folded in map(str.casefold, types)]
        if not ids:
            known = {one.casefold(): one for one in self.counts(self.of_entity)}
            near = [known[one] for one in close_to(folded, known)]
            raise BadInput(
                f"no entity has the type {shown(wanted)}{did_you_mean(near)}",
                hint=f"{self.path} has: {self.listed(self.of_entity)}.",
            )
        return torch.tensor(sorted(ids))

    def counts(self, entities: Iterable[int]) -> Counter[str]:
        return Counter(one for entity in entities for one in self.of_entity.get(entity, ()))

    def listed(self, entities: Iterable[int]) -> str:
        """`Drug (120), Disease (80)`, the most frequent types of these entities."""
        counts = self.counts(entities)
        words = [f"{name} ({count:,})" for name, count in counts.most_common(_LISTED)]
        return ", ".join([*words, *(["…"] if len(counts) > _LISTED else [])]) or "no types"


def read_node_types(path: Path, entities: Vocabulary) -> NodeTypes:
    """Reads a table with tabs. The types are in the column that a header names, or in the second. Several types of a
    node are separated by `|` or `;`. Nodes that the graph does not have are left out."""
    of_entity: dict[int, tuple[str, ...]] = {}
    column: int | None = None
    first_column = 0
    for n, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        parts = line.split("\t")
        if column is None:
            folded = [part.strip().lower() for part in parts]
            named = next((folded.index(name) for name in _TYPE_COLUMNS if name in folded), None)
            ids = next((folded.index(name) for name in _ID_COLUMNS if name in folded), None)
            if named is not None and ids is not None:
                column, first_column = named, ids
                continue
            column = 1
        if len(parts) <= max(column, first_column):
            raise BadInput(
                f"{path}, line {n}: expected an entity and its type, found {shown(line)}.",
                hint="separate the columns by tabs; a header may name the columns: id, type.",
            )
        number = entities.id_of(parts[first_column])
        if number is not None:
            types = parts[column].replace(";", "|").split("|")
            of_entity[number] = tuple(bare(one.strip()) for one in types if one.strip())
    if not of_entity:
        raise BadInput(
            f"{path} has the type of none of the {len(entities):,} entities.",
            hint="its first column, or the column id, has the labels of the graph.",
        )
    return NodeTypes(path, of_entity)


def candidates_of_file(path: Path, entities: NamedVocabulary) -> torch.Tensor:
    """Ids of the entities of a file, one a line; further columns are ignored."""
    ids: set[int] = set()
    for n, line in enumerate(read_lines(path), 1):
        text = line.split("\t")[0]
        if not text.strip():
            continue
        try:
            ids.add(entities.find(text))
        except BadInput as error:
            if not is_comment(line):  # of one column: the name of an entity may look like one
                raise BadInput(f"{path}, line {n}: {error.message}", hint=error.hint) from error
    if not ids:
        raise BadInput(f"{path} has no entities.", hint="give one entity a line.")
    return torch.tensor(sorted(ids))


def read_marks(path: Path, entities: NamedVocabulary) -> tuple[dict[tuple[int, int], str], int]:
    """A word for each pair of head and tail, and how many lines name an entity that the graph lacks."""
    marks: dict[tuple[int, int], str] = {}
    unknown = 0
    for n, line in written_lines(path):
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) < 2 or not all(parts[:2]):
            raise BadInput(
                f"{path}, line {n}: {shown(line)} is not head, tail and a word.",
                hint="separate the columns by tabs; without a word, pairs are marked as listed.",
            )
        try:
            pair = entities.find(parts[0], suggests=False), entities.find(parts[1], suggests=False)
        except BadInput:
            unknown += 1
            continue
        marks[pair] = parts[2] if len(parts) > 2 and parts[2] else "listed"
    if not marks:
        raise BadInput(f"{path} has no pair of entities of the graph.", hint="each line is head, tail, word.")
    return marks, unknown


ASKED = "?"

Side = Literal["head", "tail"]


@dataclass(frozen=True)
class Question:
    """Question `number`, from 1. `known` is the entity that it names; `trouble` says why it cannot be answered."""

    number: int
    asked: Side
    texts: tuple[str, str, str]  # head, relation, tail as given, with ? for what is asked
    known: int = -1
    relation: int = -1
    trouble: str | None = None

    @property
    def asks_heads(self) -> bool:
        return self.asked == "head"


def question(
    head: str | None, relation: str, tail: str | None, entities: NamedVocabulary, relations: NamedVocabulary
) -> Question:
    """The one question of a command; BadInput names what is unknown."""
    texts = (head or ASKED, relation, tail or ASKED)
    return _resolved(1, "head" if tail else "tail", texts, entities, relations)


def of_file(path: Path, entities: NamedVocabulary, relations: NamedVocabulary) -> list[Question]:
    """All questions of the file; one with an unknown name has `trouble`, and the others are answered."""
    questions: list[Question] = []
    for n, line in written_lines(path):
        parts = [ASKED if part.strip() == ASKED else part for part in line.split("\t")]
        parts += [ASKED] * (len(parts) == 2)
        if (
            len(parts) != 3
            or not all(map(str.strip, parts))
            or parts[1] == ASKED
            or (parts[0] == ASKED) == (parts[2] == ASKED)
        ):
            raise BadInput(
                f"{path}, line {n}: {shown(line)} is not a question.",
                hint="each line is head, relation and ?, or ?, relation and tail, separated by tabs.",
            )
        texts = (parts[0], parts[1], parts[2])
        number = len(questions) + 1
        try:
            questions.append(_resolved(number, _asked(texts), texts, entities, relations))
        except BadInput as error:
            questions.append(Question(number, _asked(texts), texts, trouble=error.message))
    if not questions:
        raise BadInput(f"{path} has no questions.", hint="each line is head, relation, ?.")
    return questions


def _resolved(
    number: int,
    asked: Side,
    texts: tuple[str, str, str],
    entities: NamedVocabulary,
    relations: NamedVocabulary,
) -> Question:
    known = entities.find(texts[2] if asked == "head" else texts[0])
    return Question(number, asked, texts, known, relations.find(texts[1]))


def _asked(texts: tuple[str, str, str]) -> Side:
    return "head" if texts[0] == ASKED else "tail"
