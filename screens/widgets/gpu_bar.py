"""Bar and curves of a GPU's memory: by kgops' runs, by others, reserved, predicted for waiting runs."""

from __future__ import annotations

from kgops.jobs.numbers import share_between
from kgops.views.gpus import GpuUsage
from screens.rows import Piece
from screens.widgets.curve_panels import Values, level_of

__all__ = ["LEGEND", "SHORT_LEGEND", "gpu_bar", "small_curve"]

LEGEND, SHORT_LEGEND = "▇runs ▓others ░reserved", "▇runs ▓other"
_RUNS, _OTHERS, _UNKNOWN, _RESERVED, _WAITING, _TRACK, _END = "▇", "▓", "▒", "░", "┄", "·", "│"
_LEFT, _RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)  # dots of a column, from the bottom


def gpu_bar(usage: GpuUsage, waiting_mib: float, width: int) -> list[Piece]:
    """`width` columns on a track that ends with │. ▒ is memory of whom nobody knows."""
    used, total = usage.reading.memory_used_mib, usage.usable_mib
    if used is None or not total or width < 4:
        return [Piece(" " * width, "dim")]
    runs = usage.used_by_runs_mib
    mine, others = (min(runs, used), max(used - runs, 0)) if runs is not None else (0, used)
    reserved = max(usage.reserved_mib - (mine if runs is not None else used), 0)
    room = width - 1
    columns: list[tuple[int, str, str]] = []
    far = 0.0
    for part, sign, tone in (
        (mine, _RUNS, "accent"),
        (others, *((_OTHERS, "other") if runs is not None else (_UNKNOWN, "text"))),
        (reserved, _RESERVED, "accent"),
        (waiting_mib, _WAITING, "accent"),
    ):
        before = round(share_between(far, 0.0, total) * room)
        far = min(far + part, float(total))
        length = round(share_between(far, 0.0, total) * room) - before
        if part > 0 and length == 0 and before < room:
            length = 1  # what is there is seen
        length = min(length, room - sum(count for count, _, _ in columns))
        columns.append((max(length, 0), sign, tone))
    rest = room - sum(count for count, _, _ in columns)
    pieces = [Piece(sign * count, tone) for count, sign, tone in columns]
    return [*pieces, Piece(_TRACK * rest + _END, "dim")]


def small_curve(values: Values, width: int, high: float | None) -> str:
    """The newest `2 * width` values as a filled curve from zero to `high`; blank where nobody looked."""
    if not high or width < 1:
        return " " * width
    newest = [*[None] * (2 * width - len(values)), *values[-2 * width :]]
    levels = [None if value is None else level_of(value, 0.0, high, 4) for value in newest]
    out = []
    for left, right in zip(levels[::2], levels[1::2], strict=True):
        dots = sum(_LEFT[: left + 1] if left is not None else ())
        dots += sum(_RIGHT[: right + 1] if right is not None else ())
        out.append(chr(0x2800 + dots) if dots else " ")
    return "".join(out)
