"""The page of `kgops gpus --watch` on a terminal: the host, GPUs with bars, processes with their users."""

from __future__ import annotations

from collections.abc import Iterator

from kgops.cli.full_screen import Line
from kgops.cli.gpus_page import View, notes, problem_lines, processes
from kgops.views.formats import fitted, padded, width_of
from kgops.views.gpu_lines import (
    LEGEND,
    SHORT_LEGEND,
    Toned,
    host_line,
    load_of,
    memory_bar,
    name_of,
    users_of,
    whole,
)
from kgops.views.gpus import GpuUsage
from kgops.views.host import HostUse

__all__ = ["watch_page"]

_WIDE, _ROOMY = 120, 160  # columns, as on the dashboard
_MIB, _UTIL, _HEAT, _POWER = 15, 4, 3, 8
_GAP, _LEAST_BAR = "  ", 12
_HEADS = ("MiB", "util", "°C", "W of cap")
_WIDTHS = (_MIB, _UTIL, _HEAT, _POWER)


def watch_page(view: View, host: HostUse, columns: int) -> list[Line]:
    columns -= 1  # the last column stays free: a terminal may wrap there
    return [
        host_line(host),
        [],
        *_gpus(view, columns),
        *([(line, "head" if i == 1 else "text")] for i, line in enumerate(processes(view, columns))),
        *([(line, "dim")] for line in notes(view, columns)),
    ]


def _gpus(view: View, columns: int) -> Iterator[Line]:
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
        yield _gpu(usage, columns)
        for part in usage.slices:
            yield _gpu(part, columns)


def _widths(columns: int) -> tuple[int, int, int]:
    """Of name, bar and users; the bar takes what is left."""
    name = 24 if columns >= _ROOMY else 15
    who = 28 if columns >= _ROOMY else 12 if columns >= _WIDE else 10
    taken = name + who + sum(_WIDTHS) + len(_GAP) * (len(_WIDTHS) + 2)
    return name, max(columns - taken, _LEAST_BAR), who


def _heading(columns: int) -> Line:
    name, bar, who = _widths(columns)
    legend = LEGEND if bar >= width_of(LEGEND) else SHORT_LEGEND
    cells = [padded("GPU", name), padded(fitted(legend, bar), bar)]
    cells += [padded(head, width, right=True) for head, width in zip(_HEADS, _WIDTHS, strict=True)]
    return [(_GAP.join([*cells, padded("who", who)]).rstrip(), "head")]


def _gpu(usage: GpuUsage, columns: int) -> Line:
    """Each cell is a text of its own: of a line that changed, what stands before the change is not sent again."""
    name, bar, who = _widths(columns)
    reading = usage.reading
    first = padded(fitted(name_of(usage), name), name)
    if reading.problem is not None:
        return [(first + _GAP, "text"), (reading.problem.message, "bad")]
    memory = f"{whole(reading.memory_used_mib)}/{whole(usage.usable_mib)}"
    cells: list[Toned] = [(memory, "text"), *load_of(usage)]
    line: list[Toned] = [(first + _GAP, "text"), *memory_bar(usage, 0, bar)]
    for (text, tone), width in zip(cells, _WIDTHS, strict=True):
        line.append((_GAP + padded(fitted(text, width), width, right=True), tone))
    return [*line, (_GAP, "text"), *users_of(usage, who)]
