"""Rows of the predictions screen: the question, and its ranked answers."""

from __future__ import annotations

from kgops.views.asking import Question
from kgops.views.formats import amount
from kgops.views.predictions import AnsweredQuestion
from screens.rows import Column, Columns, Piece, Row, row, text_row
from screens.widgets.lines import MORE_BELOW

__all__ = ["answer_rows", "question_rows"]


def question_rows(question: Question, width: int) -> list[Row]:
    head, relation, tail = question.triple
    entity = "tail" if question.asks_heads else "head"
    asked = f"{'head' if question.asks_heads else 'tail'}: {head} · {relation} · {tail}"
    values = (
        ("asked", "asked", asked),
        ("entity", entity, question.entity),
        ("relation", "relation", question.relation),
    )
    rows = [text_row("QUESTION", width, "head")]
    for key, label, value in values:
        shown = text_row(value or "⏎ to type a name", width - 12, "strong" if value else "dim")
        rows.append(row([Piece(f"{label:<8}", "dim"), *shown.pieces], key=key))
    return rows


def answer_rows(answered: AnsweredQuestion, width: int) -> list[Row]:
    """New ones are marked; keys are their places in the list."""
    columns = Columns(
        (
            Column("RANK", 6, right=True),
            Column("answer", 24, grows=True),
            Column("known", 6),
            Column("score", 8, right=True),
            Column("probability", 11, right=True),
        ),
        width - len(MORE_BELOW),  # beside numbers, not over them
    )
    rows = [columns.heading()]
    for place, one in enumerate(answered.answers):
        is_new = one.known == "new"
        name = one.head if answered.asked == "head" else one.tail
        score = "n/a" if one.score is None else f"{one.score:+.3f}"
        cells = (
            Piece(amount(one.rank)),
            Piece(name, "good" if is_new else "text"),
            Piece(one.known, "good" if is_new else "dim"),
            Piece(score),
            Piece(amount(one.probability), "dim"),
        )
        rows.append(columns.row(cells, key=place))
    return rows
