"""Sections of rows drawn as titled panels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kgops.present.formats import fitted, width_of
from kgops.present.rows import BLANK, Piece, Row

EDGES = 4  # columns that a panel takes of a row
_LEAST = (100, 30)  # columns and lines of a terminal with panels


def has_panels(columns: int, lines: int) -> bool:
    return columns >= _LEAST[0] and lines >= _LEAST[1]


def boxed(rows: Sequence[Row], width: int, height: int) -> list[Row]:
    """Each section in a panel with its heading as title; the last reaches down to `height`. Rows before the first
    heading get no panel."""
    out: list[Row] = []
    is_titled = False
    for section in _sections(rows):
        first = section[0].pieces[0] if section[0].pieces else Piece("")
        is_titled = first.tone == "head"
        out += _panel(section, width) if is_titled else [_indented(row) for row in section]
    if out and is_titled:
        out[-1:-1] = [_inside(BLANK, width)] * (height - len(out))
    return out


def _indented(row: Row) -> Row:
    """Aligned with the rows within panels."""
    return row._replace(pieces=(Piece("  "), *row.pieces))


def _sections(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """A section begins with a heading behind a blank row, which is left out."""
    section: list[Row] = []
    for row in rows:
        is_heading = bool(row.pieces) and row.pieces[0].tone == "head"
        if is_heading and section and section[-1] == BLANK:
            yield section[:-1]
            section = []
        if section or row != BLANK:
            section.append(row)
    if section:
        yield section


def _panel(section: Sequence[Row], width: int) -> Iterator[Row]:
    """Beside a heading are the names of columns, values, or a remark."""
    title, *rest = section[0].pieces
    is_remark = len(rest) == 1
    yield _top(title.text.strip(), rest[0] if is_remark else None, width)
    if rest and not is_remark:
        values = any(piece.tone == "text" and piece.text.strip() for piece in rest)
        blank = Piece("" if values else " " * width_of(title.text))
        yield _inside(section[0]._replace(pieces=(blank, *rest)), width)
    for row in section[1:]:
        yield _inside(row, width)
    yield Row((Piece(f"╰{'─' * (width - 2)}╯", "edge"),))


def _top(title: str, remark: Piece | None, width: int) -> Row:
    name = fitted(title, width - 6)
    said = fitted(remark.text.strip(), width - 9 - width_of(name)) if remark is not None else ""
    used = 4 + width_of(name) + (3 + width_of(said) if said else 0)
    words = [Piece("─ ", "edge"), Piece(said, remark.tone), Piece(" ", "edge")] if remark and said else []
    line = Piece(f"{'─' * (width - used - 1)}╮", "edge")
    return Row((Piece("╭─ ", "edge"), Piece(name, "head"), Piece(" ", "edge"), *words, line))


def _inside(row: Row, width: int) -> Row:
    gap = width - EDGES - sum(width_of(piece.text) for piece in row.pieces)
    return Row((Piece("│ ", "edge"), *row.pieces, Piece(" " * max(gap, 0)), Piece(" │", "edge")), row.key)
