"""Print the answers of a predict run, as its end and `kgops show` do."""

from __future__ import annotations

from pathlib import Path

from kgops.jobs.text import one_line
from kgops.present.formats import table
from kgops.present.predictions import COLUMNS, NUMBERS, AnsweredQuestion, read_answers

_ANSWERS = 10  # shown of each question
_QUESTIONS = 3
_HEADS = tuple(map(str.upper, COLUMNS))
_RIGHT = frozenset(map(str.upper, NUMBERS))


def summary(results: Path) -> list[str]:
    """Return the first questions with their best answers, and where all of them are; nothing without answers."""
    found = read_answers(results, questions=_QUESTIONS + 1, answers=_ANSWERS + 1)
    lines = [line for one in found[:_QUESTIONS] for line in _page(one)]
    is_more = len(found) > _QUESTIONS or any(len(one.answers) > _ANSWERS for one in found)
    return [*lines, *([f"all answers: {results / 'predictions.csv'}"] if is_more else [])]


def _page(one: AnsweredQuestion) -> list[str]:
    rows = [answer.cells for answer in one.answers[:_ANSWERS]]
    asked = " · ".join(map(one_line, one.text))
    return [f"question {one.number} · {asked}", *("  " + line for line in table(_HEADS, rows, right=_RIGHT))]
