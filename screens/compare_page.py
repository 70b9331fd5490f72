"""Rows of the compare screen: runs, differing settings, metrics with ratios to the first run, curves."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kgops.jobs.text import one_line
from kgops.present.axes import FROM_ZERO
from kgops.present.formats import UNKNOWN, amount, fitted, padded, ratio_text, value_text, width_of
from kgops.present.rows import BLANK, Piece, Row, beside, stacked, text_row
from kgops.present.wording import short_amount, sign_of, state_of, took
from screens.widgets.chart_axis import Point, on_axis
from screens.widgets.curve_panels import chart_heading
from screens.widgets.overlay import HUES, LETTERS, overlay

if TYPE_CHECKING:
    from kgops.present.comparison import Comparison, Difference, Metric

_GAP = "  "
_NUMBER, _RATIO = 10, 8  # columns
_NARROWEST, _HEIGHT, _HIGHEST, _AXIS = 50, 7, 16, 8  # of a chart
_AROUND = 3  # lines of a chart for its heading, its axis and what is between


class Curves(NamedTuple):
    """One curve per run, as steps and values; empty if a run has none."""

    name: str
    runs: tuple[tuple[Point, ...], ...]
    by_clock: bool = False  # steps are seconds


def run_rows(comparison: Comparison, width: int) -> list[Row]:
    """One row per run; keys are run numbers."""
    out = []
    room = max(width - 34, 12)
    who = [f"{run.id} {run.workload}" for run in comparison.runs]
    aligned = max(map(len, who))
    names = [
        fitted(f"{padded(whom, aligned)}  {one_line(run.label)}", room)
        for whom, run in zip(who, comparison.runs, strict=True)
    ]
    longest = max(map(width_of, names))
    for letter, hue, name, run in zip(LETTERS, HUES, names, comparison.runs, strict=False):
        end = f" {state_of(run)}  {took(run)}".rstrip()
        pieces = (Piece(f"{letter}  ", hue), Piece(padded(name, longest)), Piece("  "), sign_of(run))
        out.append(Row((*pieces, Piece(fitted(end, 28), "dim")), run.id))
    return out


def detail_rows(
    comparison: Comparison, charts: Sequence[Row], width: int, quality: Sequence[tuple[str, ...]] = ()
) -> list[Row]:
    """`quality` has rows of `compared_quality`."""
    table = _Table(comparison, width, quality)
    sections: list[Sequence[Row]] = [
        [Row((Piece("! ", "warn"), *text_row(text, width - 2).pieces)) for text in comparison.cautions],
        table.differences("SETTINGS", _settings(comparison)),
        table.differences("OPTIONS APPLIED", comparison.options),
        table.metrics("METRICS", comparison.shown, comparison.left_out),
        table.texts("MRR (RANKS)", quality),
        charts,
        table.differences("ENVIRONMENT", comparison.environment),
        table.differences(
            "SETTINGS OF ONE WORKLOAD",
            [row for row in comparison.settings if comparison.is_of_one_workload(row)],
        ),
    ]
    return stacked(sections)


def _settings(comparison: Comparison) -> list[Difference]:
    """Without options that were applied as asked: those are among the options."""
    applied = {(row.name, *map(_word, row.values)) for row in comparison.options}
    rows = [row for row in comparison.settings if not comparison.is_of_one_workload(row)]
    kept = [row for row in rows if (row.name.rpartition(".")[2], *map(_word, row.values)) not in applied]
    return kept if len(kept) == len(rows) or any(row.differs for row in kept) else []


# --- curves ---


def charts(curves: Sequence[Curves], width: int, marked: str | None, lines: int = 0) -> list[Row]:
    """Side by side, as many as fit, to fill so many lines. `marked`: the chart that Enter zooms."""
    if not curves:
        return []
    across = max(min(width // _NARROWEST, 3, len(curves)), 1)
    each = (width - 3 * (across - 1)) // across
    down = -(-len(curves) // across)
    height = min(max(lines // down - _AROUND, _HEIGHT), _HIGHEST)
    out = [text_row("CURVES", width, "head")]
    for start in range(0, len(curves), across):
        drawn = [
            [chart_heading(one.name, number, one.name == marked, each), *_chart(one, each, height)]
            for number, one in enumerate(curves[start : start + across], start + 1)
        ]
        out += [BLANK] if start else []
        out += [beside(lines) for lines in zip(*drawn, strict=True)]
    return out


def _chart(one: Curves, width: int, height: int) -> list[list[Piece]]:
    """Chart and range of steps."""
    points = [point for run in one.runs for point in run]
    known = [value for _, value in points if value is not None]
    low, high = min([0.0, *known] if one.name.endswith(FROM_ZERO) else known), max(known)
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    inner = width - _AXIS - 1
    values = [on_axis(run, first, last, 2 * inner) for run in one.runs]
    lines = overlay(values, LETTERS, inner, height, low, high)
    out = []
    for y, line in enumerate(lines):
        label = short_amount(high) if y == 0 else short_amount(low) if y == height - 1 and high > low else ""
        out.append([Piece(f"{fitted(label, _AXIS):>{_AXIS}} ", "dim"), *line])
    unit = " s" if one.by_clock else ""
    ends = f"{first:,.4g}{unit}", f"{last:,.6g}{unit}"
    gap = max(inner - len(ends[0]) - len(ends[1]), 1)
    return [*out, [Piece(" " * (_AXIS + 1) + ends[0] + " " * gap + ends[1], "dim")]]


# --- tables ---


class _Table:
    """Table with a name column and one column per run."""

    def __init__(self, comparison: Comparison, width: int, texts: Sequence[tuple[str, ...]]) -> None:
        self._count = len(comparison.runs)
        self._ratio_of, self._best = comparison.ratio, comparison.best
        workloads = {run.workload for run in comparison.runs}
        self._workload = f"{workloads.pop()}." if len(workloads) == 1 else ""
        self._width = width
        room = width - len(_GAP) * self._count
        self._name = min(max(room // (self._count + 2), 16), 30)
        differing = (
            row for row in (*comparison.settings, *comparison.options, *comparison.environment) if row.differs
        )
        words = [_word(value) for row in differing for value in row.values]
        longest = max(map(len, [*words, *(cell for _, *cells in texts for cell in cells)]), default=0)
        spreads = (_spread(pair) for one in comparison.shown for pair in one.spread)
        wanted = max([_NUMBER, *map(len, spreads)])
        self._cell = min(max((room - self._name) // self._count, 6), max(longest, wanted + _RATIO + 2))
        self._is_wide = self._cell >= _NUMBER + _RATIO
        self._number = min(wanted, self._cell - _RATIO) if self._is_wide else min(_NUMBER, self._cell)

    def differences(self, title: str, comparison: Sequence[Difference]) -> list[Row]:
        shown = [row for row in comparison if row.differs]
        if not comparison:
            return []
        if not shown:
            return [text_row(f"{title.lower()}: equal in all runs", self._width, "dim")]
        heads = {row.name.partition(".")[0] for row in shown}
        known = f"{heads.pop()}." if len(heads) == 1 else self._workload  # a common prefix is dropped
        named = [(row.name.removeprefix(known), [_word(value) for value in row.values]) for row in shown]
        if any(width_of(cell) > self._number for _, cells in named for cell in cells):
            return [self._head(title), *(self._row(name, cells) for name, cells in named)]
        aligned = ((name, [f"{cell:>{self._number}}" for cell in cells]) for name, cells in named)
        return [self._head(title, self._number), *(self._row(name, cells) for name, cells in aligned)]

    def texts(self, title: str, rows: Sequence[tuple[str, ...]]) -> list[Row]:
        return [self._head(title), *(self._row(name, cells) for name, *cells in rows)] if rows else []

    def metrics(self, title: str, known: Sequence[Metric], left_out: int) -> list[Row]:
        if not known:
            return []
        out = [self._head(title, self._number, with_ratios=True)]
        for one in known:
            out += self._metric(one)
        more = f"… and {left_out:,} more metrics: kgops compare --all"
        return [*out, text_row(more, self._width, "dim")] if left_out else out

    def _metric(self, one: Metric) -> list[Row]:
        """Value and ratio, on two lines where narrow; the IQR below."""
        number = self._number
        values = [f"{_fitting_amount(value, number):>{number}}" for value in one.values]
        ratios = [ratio_text(self._ratio_of(one, i)) if i else "" for i in range(len(values))]
        if self._is_wide:
            values = [f"{value}{ratio:>{_RATIO}}" for value, ratio in zip(values, ratios, strict=True)]
        rows = [self._row(_named(one), values, strong=self._best(one))]
        if any(ratios) and not self._is_wide:
            rows.append(self._row("", [f"{ratio:>{number}}" for ratio in ratios], tone="dim"))
        if any(one.spread):
            spread = list(map(_spread, one.spread))
            if max(map(len, spread)) <= self._cell:
                rows.append(self._row("  IQR", [f"{text:>{number}}" for text in spread], tone="dim"))
        return rows

    def _head(self, title: str, indent: int = 1, *, with_ratios: bool = False) -> Row:
        """Heading with the letters of the runs: left-aligned over text, right-aligned over numbers."""
        pieces = [Piece(padded(fitted(title, self._name), self._name), "head")]
        for i, (letter, hue) in enumerate(zip(LETTERS[: self._count], HUES, strict=False)):
            has_ratio = with_ratios and i and self._is_wide
            beside = f"{f'{letter}/{LETTERS[0]}':>{_RATIO}}" if has_ratio else ""
            pieces += [Piece(_GAP), Piece(f"{letter:>{indent}}", hue)]
            pieces.append(Piece(padded(beside, self._cell - indent), "dim"))
        return Row(tuple(pieces))

    def _row(
        self, name: str, cells: Sequence[str], *, tone: str = "text", strong: Container[int] = ()
    ) -> Row:
        """`strong`: places of the best."""
        if width_of(name) > self._name:
            name = name.partition(".")[2] or name  # keep the end of `train.embedding_dim`
        pieces = [Piece(padded(fitted(one_line(name), self._name), self._name), "dim")]
        for i, cell in enumerate(cells):
            text = padded(fitted(one_line(cell), self._cell), self._cell)
            look = "dim" if cell.strip() == UNKNOWN else "good" if i in strong else tone
            pieces += [Piece(_GAP), Piece(text, look)]
        return Row(tuple(pieces))


def _spread(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{amount(pair[0])}–{amount(pair[1])}"


def _named(one: Metric) -> str:
    return one.name if not one.unit or one.name.endswith(("_mib", "_seconds")) else f"{one.name} {one.unit}"


def _fitting_amount(value: float | None, width: int) -> str:
    """The number with as many digits as fit."""
    if value is None or len(amount(value)) <= width:
        return amount(value)
    return next((text for n in (3, 2, 1) if len(text := f"{value:.{n}g}") <= width), f"{value:.0e}")


def _word(value: Any) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.6g}" if isinstance(value, float) else value_text(value)
