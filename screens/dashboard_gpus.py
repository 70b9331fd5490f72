"""GPU rows of the dashboard: free memory, profile, load and users of each GPU, and all processes on them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kgops.gpus.history import BUCKET_S, KEPT
from kgops.jobs.text import one_line
from kgops.present import gpu_cells, process_columns
from kgops.present.areas import Values, dotted_area, toned
from kgops.present.formats import whole
from kgops.present.gpu_cells import LEGEND, SHORT_LEGEND, gpu_row, pressure
from kgops.present.gpus import expected_start
from kgops.present.process_columns import OF_ALL_GPUS
from kgops.present.rows import Column, Columns, Piece, Row, beside, joined, text_row

if TYPE_CHECKING:
    from kgops.present.gpus import ExpectedStart, GpuUsage
    from screens.feed_state import FeedState

_WHO, _MEMORY_CURVE, _UTIL_CURVE = "who", "MiB, 2 min", "util, 2 min"
_WIDE = 112  # columns from which the legend is whole
_ROOMY = 160  # columns
_LEAST_PROCESSES = 5  # lines
_LEAST_CHART, _FEWEST, _MOST_CHART = 28, 4, 24  # columns, lines
_AXIS = 8
_PARTS = {"▇": "", "▓": "-others", "░": "-reserved"}
MINUTES = BUCKET_S * KEPT // 60


def gpu_rows(state: FeedState, width: int) -> list[Row]:
    if state.gpus is None:
        return [text_row("GPUS", width, "head"), text_row("reading GPUs …", width, "dim")]
    if state.gpu_problem is not None:
        problem = state.gpu_problem
        if problem.kind == "no-library":
            return []  # the host takes their place
        return [
            text_row("GPUS", width, "head"),
            text_row(problem.message, width, "bad"),
            text_row(f"→ {problem.hint}", width),
        ]
    if not state.gpus:
        return [text_row("GPUS", width, "head"), text_row("the driver reports no GPU", width, "dim")]
    columns = gpu_columns(width)
    start = expected_start_of(state)
    rows = [Row(tuple(_legend(columns.heading().pieces, state.gpus[0])))]
    for usage in state.gpus:
        rows.append(_gpu(usage, columns, state, start))
        rows += [_gpu(part, columns, state, start) for part in usage.slices]
    return rows


def _legend(heads: Sequence[Piece], first: GpuUsage) -> Iterator[Piece]:
    """The signs of the memory bar, in the colour of the first."""
    tone = pressure(gpu_row(first)).replace("dim", "good")
    for head in heads:
        if not head.text.startswith(SHORT_LEGEND[:1]):
            yield head
            continue
        for text in re.split("([▇▓░])", head.text):
            yield Piece(text, tone + _PARTS[text] if text in _PARTS else "dim")


def gpu_columns(width: int) -> Columns:
    """Columns of GPUs, from the left as many as fit."""
    wide = width >= _WIDE
    roomy = width >= _ROOMY
    return Columns(
        (
            Column("GPUS", 24 if roomy else 18 if wide else 15 if width >= 80 else 13),
            Column(LEGEND if wide else SHORT_LEGEND, 26 if wide else 12, grows=True),
            Column("memory", 13, right=True),
            Column("profile", 10),
            Column("util", 4, right=True),
            Column("°C", 3, right=True),
            Column(_WHO, 28 if roomy else 12 if wide else 10),
            Column(_MEMORY_CURVE, 20 if roomy else 13),
            Column(_UTIL_CURVE, 20 if roomy else 11),
            Column("W of cap", 8, right=True),
        ),
        width,
    )


def _gpu(usage: GpuUsage, columns: Columns, state: FeedState, start: ExpectedStart | None) -> Row:
    gpu, key = gpu_row(usage), gpu_key(usage)
    if gpu.problem is not None:
        name = f"{one_line(gpu_cells.name(gpu).text, 15):<15}  "
        return Row((Piece(name), Piece(one_line(gpu.problem), "bad")), key)
    bar_width = columns.width_of(LEGEND) or columns.width_of(SHORT_LEGEND)
    curve = state.curves.get(usage.reading.index)
    util, heat, power = gpu_cells.load(gpu)
    cells: tuple[Piece | list[Piece], ...] = (
        gpu_cells.name(gpu),
        gpu_cells.memory_bar(gpu, bar_width, waiting_mib_of(usage, start)),
        Piece("") if usage.slices else gpu_cells.free(gpu),
        profile_of(usage, state),
        util,
        heat,
        gpu_cells.users(gpu, columns.width_of(_WHO)),
        *gpu_cells.curves(gpu, curve, columns.width_of(_MEMORY_CURVE), columns.width_of(_UTIL_CURVE)),
        power,
    )
    return columns.row(cells, key)


def profile_of(usage: GpuUsage, state: FeedState) -> Piece:
    """The profile that suits a GPU; of one that MIG divides, its slices have it."""
    if state.unusable is not None:
        return Piece("CPU only", "warn")
    return Piece("" if usage.slices else usage.profile)


def process_rows(state: FeedState, width: int, room: int) -> list[Row]:
    """Of all GPUs, where the runs leave lines for them; those with most memory first."""
    listed = [one for usage in state.gpus or () for one in usage.processes or ()]
    if not listed or room < _LEAST_PROCESSES:
        return []
    heading, *rows = process_columns.process_rows(OF_ALL_GPUS, listed, width, time.time())
    shown = [row._replace(key=None) for row in rows[: room - 1]]
    more = len(rows) - len(shown)
    return [heading, *shown, *([text_row(f"and {more} more", width, "dim")] if more else [])]


def chart_rows(state: FeedState, width: int, room: int) -> list[Row]:
    """Memory of each GPU over ten minutes, where all else leaves lines for it."""
    shown = [
        (
            f"GPU {usage.label} MiB",
            state.curves[usage.reading.index],
            usage,
        )
        for usage in state.gpus or ()
        if usage.reading.index in state.curves
    ]
    across = min(len(shown), width // _LEAST_CHART)
    height = min(room - 3, _MOST_CHART)  # without heading, title and axis
    if not shown or width < _WIDE or height < _FEWEST:
        return []
    each = (width - 3 * (across - 1)) // across
    drawn = [
        gpu_chart(title, curve.memory_mib, float(usage.usable_mib or 0), each, height)
        for title, curve, usage in shown[:across]
    ]
    more = f"  of the first {across} GPUs" if across < len(shown) else ""
    heading = Row((Piece(f"LAST {MINUTES} MINUTES", "head"), Piece(more, "dim")))
    return [heading, *(beside(lines) for lines in zip(*drawn, strict=True))]


def gpu_chart(title: str, values: Values, high: float, width: int, height: int) -> list[list[Piece]]:
    """From zero to the most there can be; each line `width` wide."""
    room = width - _AXIS - 1
    padding: list[float | None] = [None] * (KEPT - len(values))
    lines = dotted_area([*padding, *values], room, height, 0.0, high or 1.0)
    labels = [f"{high:,.0f}", *[""] * (height - 2), "0"]
    last = whole(values[-1] if values else None)
    out = [[Piece(f"{title:<{width - len(last)}}"), Piece(last, "strong")]]
    out += [
        [Piece(f"{label:>{_AXIS}} ", "dim"), *joined(toned(line, y, height))]
        for y, (label, line) in enumerate(zip(labels, lines, strict=True))
    ]
    left, middle, right = f"-{MINUTES} min", f"-{MINUTES // 2} min", "now"
    gap = room - len(left) - len(middle) - len(right)
    axis = f"{left}{' ' * (gap // 2)}{middle}{' ' * (gap - gap // 2)}{right}"
    return [*out, [Piece(f"{'':<{_AXIS}} {axis}"[:width].ljust(width), "dim")]]


def gpu_key(usage: GpuUsage) -> tuple[str, int, str]:
    """Of the row of a GPU or slice; Enter opens the GPU."""
    return "gpu", usage.reading.index, usage.label


def requestable(usage: GpuUsage, state: FeedState) -> str | None:
    """What `--gpu` calls it; None where no run can have it."""
    is_given = state.unusable is None and not usage.slices and usage.reading.problem is None
    return usage.reading.names[0] if is_given else None


def waiting_mib_of(usage: GpuUsage, start: ExpectedStart | None) -> int:
    """What the first waiting run is predicted to need of this GPU."""
    return start.need_mib if start is not None and start.gpu == usage.label else 0


def expected_start_of(state: FeedState) -> ExpectedStart | None:
    if state.overview is None or not state.overview.waiting or not state.gpus:
        return None
    ends = {
        one.run.id: one.run.reported_at + one.eta_s
        for one in state.overview.running
        if one.eta_s is not None and one.run.reported_at is not None
    }
    return expected_start(state.overview.waiting, state.gpus, ends)
