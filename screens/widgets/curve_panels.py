"""A run's curves beside each other: loss, metrics, pace, and memory with the memory estimate as a line."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kgops.cli.output import fitted
from kgops.jobs.text import one_line
from screens.rows import BLANK, Piece, Row, said
from screens.widgets.curve import braille, level_of
from screens.wording import short_amount

if TYPE_CHECKING:
    from kgops.views.run_detail import Curve, RunDetail

__all__ = ["panels"]

_HEIGHT = 5
_AXIS = 8
_NARROWEST = 34
_MOST = 8
_QUIET = ("learning_rate",)  # seldom worth a look
_ESTIMATE = "─"


def panels(known: RunDetail, width: int) -> list[Row]:
    """As many beside each other as there is room for."""
    curves = _chosen(known)
    still = _unchanging(known, width)
    if not curves:
        return [said("CURVES", width, "head"), *still] if still else []
    across = max(min(width // _NARROWEST, 3, len(curves)), 1)
    each = (width - 3 * (across - 1)) // across
    out = [said("CURVES", width, "head")]
    for start in range(0, len(curves), across):
        drawn = [
            _panel(curve, known.estimate_mib(curve.name), each) for curve in curves[start : start + across]
        ]
        out += [BLANK] if start else []
        for together in zip(*drawn, strict=True):
            pieces: list[Piece] = []
            for line in together:
                pieces += [Piece("   "), *line] if pieces else line
            out.append(Row(tuple(pieces)))
    return [*out, BLANK, *still] if still else out


def _chosen(known: RunDetail) -> list[Curve]:
    """The most telling first. A single point is no curve, and what never changes is none to look at."""
    drawable = [curve for curve in known.curves if curve.n > 1 and not _is_still(curve, known)]
    return sorted(drawable, key=lambda curve: _rank(curve.name, known))[:_MOST]


def _is_still(curve: Curve, known: RunDetail) -> bool:
    """A loss that stays the same is news, and so is memory beside its prediction."""
    is_news = curve.name in ("loss", known.run.metric) and curve.name not in _QUIET
    if is_news or (curve.last and known.estimate_mib(curve.name) is not None):
        return False
    least = {bucket.min for bucket in curve.buckets}
    return len(least) == 1 and least == {bucket.max for bucket in curve.buckets} and None not in least


def _unchanging(known: RunDetail, width: int) -> list[Row]:
    still = [one for one in known.curves if one.n > 1 and one.last and _is_still(one, known)]
    if not still:
        return []
    told = ", ".join(f"{_called(curve.name)} {short_amount(curve.last)}" for curve in still)
    return [said(f"unchanged: {told}", width, "dim")]


def _rank(name: str, known: RunDetail) -> tuple[int, str]:
    if name == "loss":
        return 0, name
    if name == known.run.metric or name.endswith("_mrr"):
        return 1, name
    if name == "gpu_memory_mib" or (name == "host_memory_mib" and known.run.gpu is None):
        return 2, name
    if name.endswith(("_per_s", "_seconds")):
        return 3, name
    return (6 if name in _QUIET else 5 if name.endswith("_mib") else 4), name


def _panel(curve: Curve, estimate: float | None, width: int) -> list[list[Piece]]:
    """A heading and the lines of the chart, all of them `width` wide."""
    values = [bucket.mean for bucket in curve.buckets]
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    if curve.name.endswith("_mib"):
        low, high = 0.0, max(high, 1.0)  # memory is read from the ground up
    if estimate is not None:
        high = max(high, estimate) * 1.02
    inner = width - _AXIS - 1
    lines = braille(values, inner, _HEIGHT, low, high)
    at = None if estimate is None else _HEIGHT - 1 - level_of(estimate, low, high, 4 * _HEIGHT) // 4
    out = [_heading(curve, estimate, width)]
    for y, line in enumerate(lines):
        label = short_amount(high) if y == 0 else short_amount(low) if y == _HEIGHT - 1 and high > low else ""
        axis = Piece(f"{fitted(label, _AXIS):>{_AXIS}} ", "dim")
        out.append([axis, *(_with_estimate(line) if y == at else [Piece(line, "accent")])])
    return out


def _heading(curve: Curve, estimate: float | None, width: int) -> list[Piece]:
    last, called = short_amount(curve.last), _called(curve.name)
    beside = "" if estimate is None else f" ─ predicted {estimate:,.0f}"
    if len(called) + len(beside) + len(last) >= width:
        beside = beside.replace("predicted", "estimate")
    name = fitted(called, max(width - len(last) - len(beside) - 1, 4))
    gap = max(width - len(name) - len(beside) - len(last), 1)
    return [
        Piece(name),
        Piece(beside, "warn"),
        Piece(" " * gap),
        Piece(last, "strong" if curve.last is not None else "bad"),
    ]


def _called(name: str) -> str:
    for ending, unit in (("_mib", " MiB"), ("_per_s", "/s")):
        if name.endswith(ending):
            return one_line(name.removesuffix(ending)).replace("_", " ") + unit
    return one_line(name).replace("_", " ")


def _with_estimate(line: str) -> list[Piece]:
    """The line of the prediction shows wherever the curve does not pass."""
    filled = line.replace(" ", _ESTIMATE)
    return [
        Piece("".join(group), "warn" if is_estimate else "accent")
        for is_estimate, group in groupby(filled, key=lambda char: char == _ESTIMATE)
    ]
