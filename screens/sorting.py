"""Columns by which a list is sorted, and their heading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kgops.present.formats import padded
from kgops.present.rows import Column, Columns, Piece, Row


class Sortable(NamedTuple):
    column: Column
    by: str | None  # the sort key; None: not sortable
    descending: bool = False  # of the first sort


def sorts(sortable: Sequence[Sortable], columns: Columns) -> list[str]:
    """Sort keys of the visible columns, from the left."""
    return [one.by for one in sortable if one.by is not None and columns.width_of(one.column.head)]


def heading(
    sortable: Sequence[Sortable],
    columns: Columns,
    sort: str,
    *,
    descending: bool,
    renamed: Mapping[str, tuple[str, str]] | None = None,
) -> Row:
    """Column heads; ▼ or ▲ marks the sorted one, and a click sorts. `renamed`: another head and sort key, by head."""
    pieces: list[Piece] = []
    for one in sortable:
        across = columns.width_of(one.column.head)
        if not across:
            break
        head = one.column.head.strip()
        name, by = (renamed or {}).get(head, (head, one.by))
        sorted_by = sort == by
        text = f"{name}{('▼' if descending else '▲') if sorted_by else ''}"
        tone = "accent" if sorted_by else "dim" if pieces else "head"
        action = f"screen.sort({by!r})" if by is not None else None
        pieces += [Piece("  ")] if pieces else []
        pieces.append(Piece(padded(text, across, right=one.column.right), tone, action))
    return Row(tuple(pieces))
