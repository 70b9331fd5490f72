"""How runs are put into words on every screen: states with their signs, progress, rates, times."""

from __future__ import annotations

import time

from kgops.cli.output import UNKNOWN, amount, duration, fitted, width_of
from kgops.errors import KgopsError
from kgops.jobs.text import one_line
from kgops.jobs.timestamps import clock
from screens.rows import Piece
from storage.errors import StorageError
from storage.runs import Run

__all__ = [
    "in_full",
    "metric_of",
    "pace_of",
    "progress_of",
    "short_amount",
    "sign_of",
    "since",
    "state_of",
    "took",
]

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
_MANY = 1e15  # of which nobody reads every digit
_OF_WHAT = ("valid_", "val_", "test_", "train_")
_ES = ("ches", "shes", "sses", "xes")  # endings of many that are of one without two letters
_NAMES = {"cancelled": "stopped", "out_of_memory": "out of memory", "queued": "waiting"}


def in_full(error: KgopsError | StorageError) -> str:
    """What happened, and what to do next."""
    return f"{error.message} — {error.hint}" if error.hint else error.message


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
    """`5.1 it/s`, and of what takes longer than a second how long: `39.8 s/epoch`."""
    if run.rate is None:
        return ""
    unit = one_line(run.unit or "it")
    if 0 < run.rate < 1:
        return f"{_seconds(1 / run.rate)}/{_one_of(unit)}"
    return f"{run.rate:,.1f} {unit}/s" if abs(run.rate) < _MANY else f"{amount(run.rate)} {unit}/s"


def metric_of(run: Run, width: int = 40) -> str:
    """`valid_mrr 0.2870`; where there is less room the metric stays whole, and of its name what says most."""
    if run.metric is None:
        return ""
    value, name = short_amount(run.metric_value), one_line(run.metric, 24)
    room = width - len(value) - 1
    if width_of(name) > room:
        name = next((name.removeprefix(of) for of in _OF_WHAT if name.startswith(of)), name)
    return f"{fitted(name, max(room, 1))} {value}"


def took(run: Run) -> str:
    """How long a run took that has ended; nothing for one that never started."""
    if run.started_at is None or run.ended_at is None:
        return ""
    return duration(run.ended_at - run.started_at)


def since(run: Run) -> str:
    """When it started: unlike how long it has been running, it changes nothing on the screen."""
    if run.started_at is None:
        return ""
    today = clock(run.started_at, "%Y-%m-%d") == clock(time.time(), "%Y-%m-%d")
    return clock(run.started_at, "since %H:%M" if today else "since %d %b")


def short_amount(value: float | None) -> str:
    """Three or four digits that do not jump about: `0.2870`, `12.50`, `1,204`."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= _MANY:
        return amount(value)
    if size >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 10:
        return f"{value:.2f}"
    return f"{value:.4f}" if size >= 0.001 else amount(value)


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else duration(value)


def _one_of(unit: str) -> str:
    """`epochs` as one of them; the unit is a worker's, and may be any word."""
    return unit[:-2] if unit.endswith(_ES) else unit.removesuffix("s")


def _count(value: float) -> str:
    if abs(value) >= _MANY:
        return amount(value)
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
