"""The predictions of an explain run: from the command line or a file, by name, label or id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kgops.errors import BadInput
from kgops.jobs.option_checks import not_a_triple, triple_in
from kgops.maths.explain.prediction import Query
from kgops.maths.graphs.vocabulary import is_comment, read_lines, shown
from kgops.maths.predict.names import NamedVocabulary

_SIDES = {"head": True, "tail": False}
_SUGGESTED = 20  # unknown names of a file for which nearest names are searched


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
    """Head, relation and tail, separated by tabs, else by commas, else by spaces."""
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
    troubled = 0
    for n, line in enumerate(read_lines(path), 1):
        if not line.strip() or is_comment(line):
            continue
        parts = line.split("\t") if "\t" in line else re.split(r"[,\s]+", line.strip())
        if len(parts) < 3 or not all(map(str.strip, parts[:3])):
            raise BadInput(
                f"{path}, line {n}: {shown(line)} is not head, relation and tail.",
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
        suggests = troubled < _SUGGESTED
        try:
            asked.append(_resolved(number, texts, entities, relations, of_head, suggests=suggests))
        except BadInput as error:
            troubled += 1
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
    *,
    suggests: bool = True,
) -> Asked:
    head = entities.find(texts[0], suggests=suggests)
    relation = relations.find(texts[1], suggests=suggests)
    tail = entities.find(texts[2], suggests=suggests)
    return Asked(number, texts, Query((head, relation, tail), asks_head))
