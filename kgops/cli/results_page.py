"""Print what predict and explain runs found, as their end and `kgops show` do."""

from __future__ import annotations

from pathlib import Path

from kgops.jobs.text import one_line
from kgops.present import result_sections
from kgops.present.rows import Section, printed

_ANSWERS, _QUESTIONS, _PREDICTIONS, _PATHS = 10, 3, 5, 3  # shown


def answers(results: Path) -> list[str]:
    """Return the first questions with their best answers, and where all of them are; nothing without answers."""
    found, is_more = result_sections.answers(results, questions=_QUESTIONS, most=_ANSWERS)
    lines = [line for title, shown in found for line in (title, *_indented(shown))]
    return [*lines, *([f"all answers: {results / 'predictions.csv'}"] if is_more else [])]


def _indented(shown: Section) -> list[str]:
    return [f"  {line}" for line in printed(shown)[1:]]


def explanations(results: Path) -> list[str]:
    """Return the first explanations, where all of them are, and what retraining found; nothing without them."""
    # With it come pictures of graphs, for no other run.
    from kgops.present.explained_run import limits_of, title_of_prediction, verdict_of
    from kgops.present.explanations import read_explanations, read_verification

    found, has_more = read_explanations(results, predictions=_PREDICTIONS)
    lines = []
    for one in found:
        listed = [*_indented(result_sections.facts(one)), *_indented(result_sections.paths(one, _PATHS))]
        lines += [title_of_prediction(one), *listed, f"  {verdict_of(one)}"]
    if any(one.facts for one in found):
        lines.append(limits_of(found[0]))
    verified = read_verification(results) if found else None
    return [
        *lines,
        *([one_line(verified.sentence)] if verified is not None else []),
        *([f"all explanations: {results / 'explanations.csv'}"] if has_more else []),
    ]
