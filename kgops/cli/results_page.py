"""Print what predict and explain runs found, as their end and `kgops show` do."""

from __future__ import annotations

from pathlib import Path

from kgops.jobs.text import one_line
from kgops.present.formats import table
from kgops.present.predictions import COLUMNS, NUMBERS, AnsweredQuestion, read_answers

_ANSWERS, _QUESTIONS, _PREDICTIONS, _PATHS = 10, 3, 5, 3  # shown
_HEADS = tuple(map(str.upper, COLUMNS))
_RIGHT = frozenset(map(str.upper, NUMBERS))
_PAIRS = {"parallel": "same two entities", "inverse": "same two entities, turned round"}


def answers(results: Path) -> list[str]:
    """Return the first questions with their best answers, and where all of them are; nothing without answers."""
    found = read_answers(results, questions=_QUESTIONS + 1, answers=_ANSWERS + 1)
    lines = [line for one in found[:_QUESTIONS] for line in _question(one)]
    is_more = len(found) > _QUESTIONS or any(len(one.answers) > _ANSWERS for one in found)
    return [*lines, *([f"all answers: {results / 'predictions.csv'}"] if is_more else [])]


def _question(one: AnsweredQuestion) -> list[str]:
    rows = [answer.cells for answer in one.answers[:_ANSWERS]]
    asked = " · ".join(map(one_line, one.text))
    return [f"question {one.number} · {asked}", *("  " + line for line in table(_HEADS, rows, right=_RIGHT))]


def explanations(results: Path) -> list[str]:
    """Return the first explanations, where all of them are, and what retraining found; nothing without them."""
    # With it come pictures of graphs, for no other run.
    from kgops.present.explained_run import limits_of, title_of_prediction, verdict_of
    from kgops.present.explanations import read_explanations, read_verification

    found, has_more = read_explanations(results, predictions=_PREDICTIONS)
    lines = []
    for one in found:
        rows = [
            (
                str(n),
                "n/a" if fact.effect is None else f"{fact.effect:+.4g}",
                *map(one_line, fact.triple),
                _PAIRS.get(fact.pair, ""),
            )
            for n, fact in enumerate(one.facts, 1)
        ]
        heads = ("NO.", "EFFECT", "HEAD", "RELATION", "TAIL", "ABOUT")
        listed = table(heads, rows, right=frozenset(heads[:2])) if rows else []
        paths = [(f"{path.effect:+.4g}", one_line(str(path))) for path in one.evidence[:_PATHS]]
        listed += table(("EFFECT", "PATH"), paths, right=frozenset(["EFFECT"])) if paths else []
        lines += [title_of_prediction(one), *(f"  {line}" for line in listed), f"  {verdict_of(one)}"]
    if any(one.facts for one in found):
        lines.append(limits_of(found[0]))
    verified = read_verification(results) if found else None
    return [
        *lines,
        *([one_line(verified.sentence)] if verified is not None else []),
        *([f"all explanations: {results / 'explanations.csv'}"] if has_more else []),
    ]
