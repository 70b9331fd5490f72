"""Questions (head, relation, ?) and (?, relation, tail): from the command line or a file of many."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kgops.errors import BadInput
from kgops.maths.graphs.vocabulary import is_comment, read_lines, shown
from kgops.maths.predict.names import NamedVocabulary

ASKED = "?"
_SUGGESTED = 20  # unknown names of a file for which nearest names are searched

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
    troubled = 0
    for n, line in enumerate(read_lines(path), 1):
        if not line.strip() or is_comment(line):
            continue
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
            suggests = troubled < _SUGGESTED
            questions.append(_resolved(number, _asked(texts), texts, entities, relations, suggests=suggests))
        except BadInput as error:
            troubled += 1
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
    *,
    suggests: bool = True,
) -> Question:
    known = entities.find(texts[2] if asked == "head" else texts[0], suggests=suggests)
    return Question(number, asked, texts, known, relations.find(texts[1], suggests=suggests))


def _asked(texts: tuple[str, str, str]) -> Side:
    return "head" if texts[0] == ASKED else "tail"
