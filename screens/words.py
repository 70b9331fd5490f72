"""How runs are put into words on every screen: states with their signs, progress, rates, times."""

from __future__ import annotations

import time

from kgops.cli.output import UNKNOWN, duration, figure
from kgops.jobs.text import one_line
from screens.rows import Piece
from storage.runs import Run

__all__ = ["metric_of", "pace_of", "progress_of", "short_figure", "sign_of", "since", "state_of", "took"]

_SIGNS = {
    "succeeded": ("✓", "good"),
    "failed": ("✗", "bad"),
    "out_of_memory": ("✗", "bad"),
    "interrupted": ("✗", "bad"),
    "cancelled": ("■", "dim"),
    "queued": ("·", "dim"),
    "starting": ("›", "accent"),
    "running": ("›", "accent"),
}
_NAMES = {"cancelled": "stopped", "out_of_memory": "out of memory", "queued": "waiting"}


def sign_of(run: Run, *, stepped_down: bool = False) -> Piece:
    """A sign beside the colour: some people see no difference between red and green."""
    if run.state == "succeeded" and stepped_down:
        return Piece("▼", "warn")
    return Piece(*_SIGNS.get(run.state, ("?", "dim")))


def state_of(run: Run) -> str:
    return _NAMES.get(run.state, run.state)


def progress_of(run: Run, width: int = 80) -> str:
    """`epoch 37/100`, with what of it is known and, of the phase, what there is room for."""
    count = ""
    if run.done is not None:
        count = _count(run.done) + (f"/{_count(run.total)}" if run.total is not None else "")
    words = f"{one_line(run.phase)} {count}".strip() if run.phase else count
    return words if len(words) <= width or not count else count


def pace_of(run: Run) -> str:
    if run.rate is None:
        return ""
    shown = f"{run.rate:,.1f}" if abs(run.rate) >= 1 else figure(run.rate)
    return f"{shown} {one_line(run.unit or 'it')}/s"


def metric_of(run: Run) -> str:
    return "" if run.metric is None else f"{one_line(run.metric, 24)} {short_figure(run.metric_value)}"


def took(run: Run) -> str:
    """How long a run took that has ended; nothing for one that never started."""
    if run.started_at is None or run.ended_at is None:
        return ""
    return duration(run.ended_at - run.started_at)


def since(run: Run) -> str:
    """When it started: unlike how long it has been running, it changes nothing on the screen."""
    if run.started_at is None:
        return ""
    when = time.localtime(run.started_at)
    today = when[:3] == time.localtime(time.time())[:3]
    return time.strftime("since %H:%M" if today else "since %d %b", when)


def short_figure(value: float | None) -> str:
    """Three or four digits that do not jump about: `0.2870`, `12.50`, `1,204`."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 10:
        return f"{value:.2f}"
    return f"{value:.4f}" if size >= 0.001 else figure(value)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
