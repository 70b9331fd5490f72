"""Runs side by side as rows: who they are, what differs, what came of it with ratios to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kgops.cli.output import UNKNOWN, figure, fitted, padded
from kgops.jobs.text import one_line
from screens.rows import BLANK, Piece, Row, said
from screens.words import sign_of, state_of, took

if TYPE_CHECKING:
    from kgops.runs.comparing import Comparison, Difference, Figure

__all__ = ["LETTERS", "rows"]

LETTERS = "ABCDEFGH"  # a sign for each run that any terminal has, and that needs no colour
_GAP = "  "
_WIDEST_CELL = 34


def rows(found: Comparison, width: int) -> list[Row]:
    table = _Table(found, width)
    sections = [
        _runs(found, width),
        table.differences("SETTINGS", found.settings),
        table.differences("LEVERS IN EFFECT", found.levers),
        table.differences("ENVIRONMENT", found.environment),
        table.figures("FIGURES", found.figures),
        _cautions(found, width),
    ]
    out: list[Row] = []
    for section in sections:
        if section:
            out += [BLANK, *section] if out else section
    return out


def _runs(found: Comparison, width: int) -> list[Row]:
    out = [said("RUNS", width, "head")]
    for letter, run in zip(LETTERS, found.runs, strict=False):
        sign = sign_of(run)
        about = f"{run.id} {run.workload}  {one_line(run.label)}"
        end = f"  {state_of(run)}  {took(run)}".rstrip()
        shown = padded(fitted(about, width - 6 - len(end)), min(width - 6 - len(end), 60))
        pieces = (Piece(f"{letter} ", "accent"), Piece(shown), Piece("  "), sign, Piece(end, "dim"))
        out.append(Row(pieces, run.id))
    return out


def _cautions(found: Comparison, width: int) -> list[Row]:
    out = []
    if not found.same_machine:
        out.append("They ran on different machines or cards: ratios of time say nothing of what was set.")
    if any(run.state != "succeeded" for run in found.runs):
        out.append("Not all of them succeeded: their figures are of what they did until then.")
    return [said(text, width, "warn") for text in out]


class _Table:
    """A name, then a cell for each run: as wide as there is room for."""

    def __init__(self, found: Comparison, width: int) -> None:
        self._count = len(found.runs)
        self._width = width
        room = width - len(_GAP) * self._count
        self._name = min(max(room // (self._count + 2), 14), 30)
        self._cell = min(max((room - self._name) // self._count, 6), _WIDEST_CELL)

    def differences(self, title: str, found: Sequence[Difference]) -> list[Row]:
        shown = [row for row in found if row.differs]
        if not found:
            return []
        if not shown:
            return [Row((Piece(title, "head"), Piece("  the same in all of them", "dim")))]
        return [self._head(title), *(self._row(row.name, [_word(v) for v in row.values]) for row in shown)]

    def figures(self, title: str, found: Sequence[Figure]) -> list[Row]:
        known = [one for one in found if any(value is not None for value in one.values)]
        if not known:
            return []
        out = [self._head(title, right=True)]
        for one in known:
            out += self._figure(one)
        return out

    def _figure(self, one: Figure) -> list[Row]:
        """The ratio beside the value, or in a line of its own where there is no room; with the spread alike."""
        name = (
            one.name
            if not one.unit or one.name.endswith(f"_{one.unit.lower()}")
            else f"{one.name} {one.unit}"
        )
        values = [figure(value) for value in one.values]
        ratios = [_ratio(one.ratio(i)) if i else "" for i in range(len(values))]
        spread = ["" if pair is None else f"{figure(pair[0])}–{figure(pair[1])}" for pair in one.spread]
        out = []
        if self._cell >= 16:
            cells = [f"{value}{ratio:>8}" for value, ratio in zip(values, ratios, strict=True)]
            out.append(self._row(name, cells, right=True))
        else:
            out.append(self._row(name, values, right=True))
            if any(ratios):
                out.append(self._row("", ratios, right=True, tone="dim"))
        if any(spread):
            pad = "        " if self._cell >= 16 else ""
            out.append(
                self._row("  half of them in", [text + pad for text in spread], right=True, tone="dim")
            )
        return out

    def _head(self, title: str, *, right: bool = False) -> Row:
        pieces = [Piece(padded(fitted(title, self._name), self._name), "head")]
        for letter in LETTERS[: self._count]:
            ends = f"{letter}        " if right and self._cell >= 16 else letter
            pieces += [Piece(_GAP), Piece(padded(ends, self._cell, right=right), "accent")]
        return Row(tuple(pieces))

    def _row(self, name: str, cells: Sequence[str], *, right: bool = False, tone: str = "text") -> Row:
        pieces = [Piece(padded(fitted(one_line(name), self._name), self._name), "dim")]
        for cell in cells:
            text = padded(fitted(one_line(cell), self._cell), self._cell, right=right)
            pieces += [Piece(_GAP), Piece(text, tone)]
        return Row(tuple(pieces))


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}×"


def _word(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
