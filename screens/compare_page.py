"""Runs side by side as rows: who they are, what differs, what came of it with ratios to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kgops.cli.output import UNKNOWN, amount, fitted, padded, width_of
from kgops.jobs.text import one_line
from screens.rows import BLANK, Piece, Row, said
from screens.widgets.overlay import Spot, on_axis, overlay
from screens.wording import short_amount, sign_of, state_of, took

if TYPE_CHECKING:
    from kgops.views.comparison import Comparison, Difference, Metric

__all__ = ["LETTERS", "Curves", "detail_rows", "run_rows"]

LETTERS = "ABCDEFGH"  # a sign for each run that any terminal has, and that needs no colour
_GAP = "  "
_NUMBER, _RATIO = 10, 8  # columns
_NARROWEST, _HEIGHT, _AXIS = 50, 7, 8  # of a chart


class Curves(NamedTuple):
    """One curve of each run: steps and values; empty where a run has none."""

    name: str
    runs: tuple[tuple[Spot, ...], ...]
    by_clock: bool = False  # its steps are seconds


def run_rows(found: Comparison, width: int) -> list[Row]:
    """Who they are; the keys are the runs' numbers."""
    out = []
    room = max(width - 34, 12)
    who = [f"{run.id} {run.workload}" for run in found.runs]
    aligned = max(map(len, who))
    names = [
        fitted(f"{padded(whom, aligned)}  {one_line(run.label)}", room)
        for whom, run in zip(who, found.runs, strict=True)
    ]
    longest = max(map(width_of, names))
    for letter, name, run in zip(LETTERS, names, found.runs, strict=False):
        end = f" {state_of(run)}  {took(run)}".rstrip()
        pieces = (Piece(f"{letter}  ", "accent"), Piece(padded(name, longest)), Piece("  "), sign_of(run))
        out.append(Row((*pieces, Piece(fitted(end, 28), "dim")), run.id))
    return out


def detail_rows(found: Comparison, curves: Sequence[Curves], chosen: int, width: int) -> list[Row]:
    table = _Table(found, width)
    sections = [
        _cautions(found, width),
        table.differences("SETTINGS", [row for row in found.settings if not found.is_of_one_workload(row)]),
        table.differences("LEVERS IN EFFECT", found.options),
        table.metrics("METRICS", found.metrics),
        _charts(curves, chosen, width),
        table.differences("ENVIRONMENT", found.environment),
        table.differences(
            "OF ONE WORKLOAD", [row for row in found.settings if found.is_of_one_workload(row)]
        ),
    ]
    out: list[Row] = []
    for section in sections:
        if section:
            out += [BLANK, *section] if out else section
    return out


def _cautions(found: Comparison, width: int) -> list[Row]:
    out = []
    if not found.same_machine:
        out.append("other or unknown machines or GPUs: ratios of time say nothing of settings")
    if any(run.state != "succeeded" for run in found.runs):
        out.append("not all of them succeeded: their metrics are of what they did until then")
    return [Row((Piece("! ", "warn"), *said(text, width - 2).pieces)) for text in out]


# --- curves ---


def _charts(curves: Sequence[Curves], chosen: int, width: int) -> list[Row]:
    """As many beside each other as there is room for."""
    if not curves:
        return []
    across = max(min(width // _NARROWEST, 3, len(curves)), 1)
    each = (width - 3 * (across - 1)) // across
    out = [said("CURVES", width, "head")]
    for start in range(0, len(curves), across):
        drawn = [_chart(one, chosen, each) for one in curves[start : start + across]]
        out += [BLANK] if start else []
        for together in zip(*drawn, strict=True):
            pieces: list[Piece] = []
            for line in together:
                pieces += [Piece("   "), *line] if pieces else line
            out.append(Row(tuple(pieces)))
    return out


def _chart(one: Curves, chosen: int, width: int) -> list[list[Piece]]:
    """A heading, the chart, and the steps that it goes over."""
    places = [place for run in one.runs for place in run]
    known = [value for _, value in places if value is not None]
    low, high = min(known), max(known)
    first, last = min(step for step, _ in places), max(step for step, _ in places)
    inner = width - _AXIS - 1
    values = [on_axis(run, first, last, 2 * inner) for run in one.runs]
    lines = overlay(values, LETTERS, inner, _HEIGHT, low, high, chosen=chosen)
    out = [[Piece(padded(fitted(one_line(one.name), width), width))]]
    for y, line in enumerate(lines):
        label = short_amount(high) if y == 0 else short_amount(low) if y == _HEIGHT - 1 and high > low else ""
        out.append([Piece(f"{fitted(label, _AXIS):>{_AXIS}} ", "dim"), *line])
    unit = " s" if one.by_clock else ""
    ends = f"{first:,.4g}{unit}", f"{last:,.6g}{unit}"
    gap = max(inner - len(ends[0]) - len(ends[1]), 1)
    return [*out, [Piece(" " * (_AXIS + 1) + ends[0] + " " * gap + ends[1], "dim")]]


# --- tables ---


class _Table:
    """A name, then a cell for each run: as wide as there is room for."""

    def __init__(self, found: Comparison, width: int) -> None:
        self._count = len(found.runs)
        workloads = {run.workload for run in found.runs}
        self._workload = f"{workloads.pop()}." if len(workloads) == 1 else ""
        self._width = width
        room = width - len(_GAP) * self._count
        self._name = min(max(room // (self._count + 2), 16), 30)
        differing = (row for row in (*found.settings, *found.options, *found.environment) if row.differs)
        longest = max((len(_word(value)) for row in differing for value in row.values), default=0)
        self._cell = min(max((room - self._name) // self._count, 6), max(longest, _NUMBER + _RATIO + 2))

    def differences(self, title: str, found: Sequence[Difference]) -> list[Row]:
        shown = [row for row in found if row.differs]
        if not found:
            return []
        if not shown:
            return [Row((Piece(title, "head"), Piece("  the same in all of them", "dim")))]
        heads = {row.name.partition(".")[0] for row in shown}
        known = f"{heads.pop()}." if len(heads) == 1 else self._workload  # goes without saying
        named = [(row.name.removeprefix(known), [_word(value) for value in row.values]) for row in shown]
        return [self._head(title), *(self._row(name, cells) for name, cells in named)]

    def metrics(self, title: str, found: Sequence[Metric]) -> list[Row]:
        known = [one for one in found if any(value is not None for value in one.values)]
        if not known:
            return []
        out = [self._head(title, self._number)]
        for one in known:
            out += self._metric(one)
        return out

    def _metric(self, one: Metric) -> list[Row]:
        """The ratio beside the value, or in a line of its own where there is no room; the spread beneath."""
        wide, number = self._cell >= _NUMBER + _RATIO, self._number
        values = [f"{_in(value, number):>{number}}" for value in one.values]
        ratios = [_ratio(one.ratio(i)) if i else "" for i in range(len(values))]
        if wide:
            values = [f"{value}{ratio:>{_RATIO}}" for value, ratio in zip(values, ratios, strict=True)]
        rows = [self._row(_named(one), values)]
        if any(ratios) and not wide:
            rows.append(self._row("", [f"{ratio:>{number}}" for ratio in ratios], tone="dim"))
        if any(one.spread):
            spread = ["" if pair is None else f"{amount(pair[0])}–{amount(pair[1])}" for pair in one.spread]
            if max(map(len, spread)) <= self._cell:
                rows.append(self._row("  half of them", [f"{text:>{number}}" for text in spread], tone="dim"))
        return rows

    @property
    def _number(self) -> int:
        return min(_NUMBER, self._cell)

    def _head(self, title: str, indent: int = 1) -> Row:
        """A letter stands where the text begins, or where the numbers end."""
        pieces = [Piece(padded(fitted(title, self._name), self._name), "head")]
        for letter in LETTERS[: self._count]:
            pieces += [Piece(_GAP), Piece(padded(f"{letter:>{indent}}", self._cell), "accent")]
        return Row(tuple(pieces))

    def _row(self, name: str, cells: Sequence[str], *, tone: str = "text") -> Row:
        if width_of(name) > self._name:
            name = name.partition(".")[2] or name  # of `train.embedding_dim` the end says more
        pieces = [Piece(padded(fitted(one_line(name), self._name), self._name), "dim")]
        for cell in cells:
            text = padded(fitted(one_line(cell), self._cell), self._cell)
            pieces += [Piece(_GAP), Piece(text, "dim" if cell.strip() == UNKNOWN else tone)]
        return Row(tuple(pieces))


def _named(one: Metric) -> str:
    return one.name if not one.unit or one.name.endswith(("_mib", "_seconds")) else f"{one.name} {one.unit}"


def _in(value: float | None, width: int) -> str:
    """As many digits as there is room for."""
    if value is None or len(amount(value)) <= width:
        return amount(value)
    return next((text for n in (3, 2, 1) if len(text := f"{value:.{n}g}") <= width), f"{value:.0e}")


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if abs(ratio) >= 1e4:
        return f"{ratio:.0e}×"
    return f"{ratio:.2f}×" if ratio == 0 or abs(ratio) >= 0.01 else f"{ratio:.1g}×"


def _word(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
