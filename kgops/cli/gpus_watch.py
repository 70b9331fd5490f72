"""The page of `kgops gpus --watch` on a terminal: the host, GPUs with bars, processes with their users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kgops.cli.full_screen import Line
from kgops.cli.gpus_page import View, notes, problem_lines, processes
from kgops.gpus.history import GpuCurve
from kgops.jobs.text import clock
from kgops.present.formats import fitted, padded, whole, width_of
from kgops.present.gpu_lines import (
    LEGEND,
    SHORT_LEGEND,
    Toned,
    curves_of,
    host_line,
    load_of,
    memory_bar,
    name_of,
    users_of,
)
from kgops.present.gpus import ExpectedStart, GpuUsage
from kgops.present.host import HostUse

Curves = Mapping[int, GpuCurve]  # by GPU index
_WIDE, _ROOMY = 119, 159  # columns, as on the dashboard, but for the last
_MIB, _UTIL, _HEAT, _POWER = 15, 4, 3, 8
_GAP, _LEAST_BAR = "  ", 12
_HEADS = ("MiB", "util", "°C", "W of cap")
_WIDTHS = (_MIB, _UTIL, _HEAT, _POWER)


def watch_page(
    view: View, host: HostUse, columns: int, curves: Curves, start: ExpectedStart | None
) -> list[Line]:
    """`start`: of the first waiting run, whose predicted memory is drawn where it would go."""
    columns -= 1  # the last column stays free: a terminal may wrap there
    return [
        host_line(host),
        [],
        *_gpus(view, columns, curves, start),
        *_starts(start),
        *([(line, "head" if i == 1 else "text")] for i, line in enumerate(processes(view, columns))),
        *([(line, "dim")] for line in notes(view, columns)),
    ]


def _starts(start: ExpectedStart | None) -> Iterator[Line]:
    if start is not None and start.at is not None:
        yield [(f"Run {start.run} starts about {clock(start.at, '%H:%M')} on GPU {start.gpu}.", "text")]


def _gpus(view: View, columns: int, curves: Curves, start: ExpectedStart | None) -> Iterator[Line]:
    snapshot = view.snapshot
    if snapshot.problem is not None:
        for line in problem_lines(snapshot.problem, columns):
            yield [(line, "text" if snapshot.problem.kind == "no-library" else "bad")]
        return
    if not snapshot.gpus:
        yield [("The driver finds no GPU.", "text")]
        return
    yield _heading(columns)
    for usage in view.gpus:
        for part in (usage, *usage.slices):
            waiting_mib = start.need_mib if start is not None and start.gpu == part.label else 0
            yield _gpu(part, columns, curves.get(usage.reading.index), waiting_mib)


def _widths(columns: int) -> tuple[int, int, int]:
    """Of name, bar and users; the bar takes what is left."""
    name = 24 if columns >= _ROOMY else 15
    who = 28 if columns >= _ROOMY else 12 if columns >= _WIDE else 10
    taken = name + who + sum(_WIDTHS) + len(_GAP) * (len(_WIDTHS) + 2)
    taken += sum(width + len(_GAP) for width in _curve_widths(columns))
    return name, max(columns - taken, _LEAST_BAR), who


def _curve_widths(columns: int) -> tuple[int, ...]:
    return (20, 20) if columns >= _ROOMY else (13, 11) if columns >= _WIDE else ()


def _heading(columns: int) -> Line:
    name, bar, who = _widths(columns)
    legend = LEGEND if bar >= width_of(LEGEND) else SHORT_LEGEND
    cells = [padded("GPU", name), padded(fitted(legend, bar), bar)]
    cells += [padded(head, width, right=True) for head, width in zip(_HEADS, _WIDTHS, strict=True)]
    heads = zip(("MiB, 2 min", "util, 2 min"), _curve_widths(columns), strict=False)
    cells += [padded("who", who), *(padded(head, width) for head, width in heads)]
    return [(_GAP.join(cells).rstrip(), "head")]


def _gpu(usage: GpuUsage, columns: int, curve: GpuCurve | None, waiting_mib: float) -> Line:
    """Each cell is a separate text: of a changed line, only the changed end is sent."""
    name, bar, who = _widths(columns)
    reading = usage.reading
    first = padded(fitted(name_of(usage), name), name)
    if reading.problem is not None:
        return [(first + _GAP, "text"), (reading.problem.message, "bad")]
    memory = f"{whole(reading.memory_used_mib)}/{whole(usage.usable_mib)}"
    cells: list[Toned] = [(memory, "text"), *load_of(usage)]
    line: list[Toned] = [(first + _GAP, "text"), *memory_bar(usage, waiting_mib, bar)]
    for (text, tone), width in zip(cells, _WIDTHS, strict=True):
        line.append((_GAP + padded(fitted(text, width), width, right=True), tone))
    line += [(_GAP, "text"), *users_of(usage, who)]
    if _curve_widths(columns):
        for shown, tone in curves_of(usage, curve, *_curve_widths(columns)):
            line += [(_GAP, "text"), (shown, tone)]
    return line
