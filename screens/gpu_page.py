"""Rows of the GPU screen: memory, load, MIG slices, processes and ten minutes of history."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kgops.jobs.text import one_line
from kgops.present.formats import amount, whole
from kgops.present.gpu_cells import gpu_row, load, memory_bar, pressure
from kgops.present.process_columns import OF_ONE_GPU, OF_SLICES, process_rows
from kgops.present.rows import Piece, Row, beside, stacked, text_row, text_rows
from screens.dashboard_gpus import MINUTES, expected_start_of, gpu_chart, waiting_mib_of

if TYPE_CHECKING:
    from kgops.present.gpus import GpuUsage
    from screens.feed_state import FeedState

_AXIS = 8
_LEAST_HEIGHT, _MOST_HEIGHT = 6, 48  # lines of a curve
_SIDE_BY_SIDE = 110  # columns from which both curves stand in one line


def rows(usage: GpuUsage, state: FeedState, width: int, height: int) -> list[Row]:
    """Curves are as tall as `height` allows below the processes."""
    if usage.reading.problem is not None:
        problem = usage.reading.problem
        return [text_row(problem.message, width, "bad"), text_row(f"→ {problem.hint}", width)]
    sections = [_memory(usage, state, width), _processes(usage, width)]
    if state.unusable is not None:
        why = text_rows(state.unusable.why, width)
        sections.insert(0, [text_row(state.unusable.headline, width, "warn"), *why])
    taken = sum(len(section) + 1 for section in sections)
    sections.append(_history(usage, state, width, height - taken))
    return stacked(sections)


# --- memory ---


def _memory(usage: GpuUsage, state: FeedState, width: int) -> list[Row]:
    start = expected_start_of(state)
    util, heat, power = load(gpu_row(usage))
    rows = [
        Row((Piece(f"{'MEMORY':<{_AXIS}}", "head"), *_bar(usage, waiting_mib_of(usage, start), width))),
        Row((Piece(" " * _AXIS), *_legend(usage))),
        Row(
            (
                Piece(f"{'LOAD':<{_AXIS}}", "head"),
                Piece(f"{util.text} busy · "),
                Piece(f"{heat.text} °C", heat.tone),
                Piece(f" · {power.text} W"),
            )
        ),
    ]
    for part in usage.slices:
        name = (part.reading.name or "").partition("MIG ")[2]
        bar = _bar(part, waiting_mib_of(part, start), width)
        rows.append(Row((Piece(f"{part.label:<{_AXIS}}", "head"), *bar, Piece(f"  {one_line(name, 10)}"))))
    if start is not None and start.gpu == usage.label:
        rows.append(
            text_row(f"{'':<{_AXIS}}run {start.run} waits for {start.need_mib:,} MiB", width, "accent")
        )
    return rows


def _bar(usage: GpuUsage, waiting_mib: float, width: int) -> tuple[Piece, ...]:
    reading = usage.reading
    of = f"{whole(reading.memory_used_mib)} of {whole(usage.usable_mib)} MiB"
    room = max(min(width - _AXIS - len(of) - 18, 100), 10)
    return (*memory_bar(gpu_row(usage), room, waiting_mib), Piece(f"  {of}"))


def _legend(usage: GpuUsage) -> list[Piece]:
    used, mine = usage.reading.memory_used_mib, usage.used_by_runs_mib
    others = None if used is None or mine is None else max(used - mine, 0)
    tone = pressure(gpu_row(usage))
    pieces = [
        Piece("▇", tone),
        Piece(f" by runs {amount(mine, 'MiB')}   "),
        Piece("▓", tone),
        Piece(f" by others {amount(others, 'MiB')}"),
    ]
    if usage.reserved_mib:
        pieces += [Piece("   "), Piece("░", tone), Piece(f" reserved by runs {usage.reserved_mib:,} MiB")]
    return pieces


# --- processes ---


def _processes(usage: GpuUsage, width: int) -> list[Row]:
    columns = OF_SLICES if usage.slices else OF_ONE_GPU
    rows = process_rows(columns, usage.processes or (), width, time.time())
    if usage.processes is None:
        return [*rows, text_row("n/a: the driver does not list its processes", width, "dim")]
    return rows if usage.processes else [*rows, text_row(_nobody(usage), width, "dim")]


def _nobody(usage: GpuUsage) -> str:
    used = usage.reading.memory_used_mib or 0
    return (
        "n/a: memory is in use, and no process is visible from here"
        if used > 64
        else "no process uses this GPU"
    )


# --- history ---


def _history(usage: GpuUsage, state: FeedState, width: int, room: int) -> list[Row]:
    curve = state.curves.get(usage.reading.index)
    if curve is None:
        return []
    charts = (
        ("memory MiB", curve.memory_mib, float(usage.usable_mib or 0)),
        ("utilization %", curve.utilization, 100.0),
    )
    across = 2 if width >= _SIDE_BY_SIDE else 1
    each = (width - 3 * (across - 1)) // across
    height = min(max((room - 2) * across // 2 - 2, _LEAST_HEIGHT), _MOST_HEIGHT)  # without headings and axis
    drawn = [gpu_chart(*chart, each, height) for chart in charts]
    rows = [text_row(f"LAST {MINUTES} MINUTES", width, "head")]
    if across == 1:
        return [*rows, *(Row(tuple(line)) for chart in drawn for line in chart)]
    return [*rows, *(beside(lines) for lines in zip(*drawn, strict=True))]
