"""Rows of the explanation screen: predictions, and one's triples, picture, paths and what training again found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgops.jobs.text import one_line
from kgops.views.explained_run import ExplainedRun, prediction_of, verdict_of
from kgops.views.explanation_pictures import text_lines
from kgops.views.explanations import ExplainedPrediction
from kgops.views.formats import amount
from kgops.views.influences import Step
from screens.influences_page import path_lines
from screens.rows import BLANK, Column, Columns, Piece, Row, text_row, text_rows

__all__ = ["Found", "detail_rows", "notes_of", "prediction_rows"]

_RETRAINED = (
    ("retrained_all", "with all"),
    ("retrained", "without them"),
    ("retrained_put_back", "one put back"),
    ("retrained_random", "random"),
)


class Found(NamedTuple):
    """Of one prediction: the drawing, for this width, and the paths through its triples."""

    number: str
    width: int
    drawing: tuple[str, ...]
    paths: tuple[tuple[Step, ...], ...]


def draw(explained: ExplainedRun, one: ExplainedPrediction, width: int) -> Found:
    """Searches paths, which takes a while in a large graph."""
    drawing = text_lines(explained.graph(one), max(width, 40)) if one.facts else []
    return Found(one.number, width, tuple(drawing), tuple(explained.paths(one)))


def prediction_rows(explained: ExplainedRun, width: int) -> list[Row]:
    more = f"  the first {amount(len(explained.predictions))}; kgops report has them all"
    heading = (Piece("PREDICTIONS", "head"), Piece(more if explained.has_more else "", "dim"))
    rows = [Row(heading)]
    for one in explained.predictions:
        tone = "warn" if one.trouble else "text"
        words = f"{one_line(one.number):>3}  {prediction_of(one)}"
        rows.append(text_row(f"{words}  {one_line(one.known)}", width, tone, key=one.number))
    return rows


def notes_of(one: ExplainedPrediction, messages: Sequence[str]) -> list[str]:
    """What the worker noted of this prediction; its verdict says what trouble there was."""
    own = f"prediction {one.number}: "
    return [] if one.trouble else [text.removeprefix(own) for text in messages if text.startswith(own)]


def detail_rows(
    explained: ExplainedRun,
    one: ExplainedPrediction,
    found: Found | None,
    width: int,
    notes: Sequence[str] = (),
) -> list[Row]:
    sections = [_verdict(one, width)]
    sections += [text_rows(text, width, "warn") for text in notes]
    if one.facts:
        drawing = [text_row(line, width) for line in found.drawing] if found is not None else []
        sections += [drawing, _triples(one, width), _paths(explained, found, width)]
    sections.append(_retrained(explained, one, width))
    out: list[Row] = []
    for section in sections:
        if section:
            out += [BLANK, *section] if out else section
    return out


def _verdict(one: ExplainedPrediction, width: int) -> list[Row]:
    tone = "warn" if one.trouble else "strong" if one.lost else "text"
    return text_rows(verdict_of(one), width, tone)


def _triples(one: ExplainedPrediction, width: int) -> list[Row]:
    columns = Columns(
        (
            Column("EFFECT", 8, right=True),
            Column("head · relation · tail", 30, grows=True),
            Column("about", 12),
        ),
        width,
    )
    rows = [columns.heading()]
    for fact in one.facts:
        effect = "n/a" if fact.effect is None else f"{fact.effect:+.3g}"
        words = " · ".join(map(one_line, fact.triple))
        about = "same two" if fact.pair else ""
        rows.append(columns.row((Piece(effect, "strong"), Piece(words), Piece(about, "dim"))))
    return rows


def _paths(explained: ExplainedRun, found: Found | None, width: int) -> list[Row]:
    head = Row((Piece("PATHS", "head"), Piece("  from head to tail, through each triple", "dim")))
    if explained.without_paths is not None:
        return [head, text_row(explained.without_paths, width, "dim")]
    if found is None:
        return [head, text_row("searching", width, "dim")]
    names = {**explained.names, **{k: v for one in explained.predictions for k, v in one.names.items()}}
    rows = [head]
    for path in found.paths:
        nothing = [text_row("none of at most 4 edges", width, "dim")]
        rows += path_lines(lambda label: names.get(label, label), path, width) if path else nothing
    return rows


def _retrained(explained: ExplainedRun, one: ExplainedPrediction, width: int) -> list[Row]:
    """What --verify found: the sentence about all predictions, and this one's mean ranks."""
    found = explained.verification
    if found is None:
        return [text_row("TRAINED AGAIN  not verified: kgops run explain … --verify", width, "dim")]
    ranks = found.ranks.get(one.number, {})
    ranks_shown = [f"{name} {amount(ranks[key])}" for key, name in _RETRAINED if key in ranks]
    rows = [text_row("TRAINED AGAIN", width, "head")]
    rows += (
        [text_row(f"mean rank of this one: {', '.join(ranks_shown)}", width, "strong")] if ranks_shown else []
    )
    return rows + text_rows(found.sentence, width)
