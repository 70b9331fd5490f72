"""Bar and curves of a GPU's memory: by kgops' runs, by others, reserved, predicted for waiting runs."""

from __future__ import annotations

from kgops.views.gpu_lines import memory_bar
from kgops.views.gpus import GpuUsage
from screens.rows import Piece
from screens.widgets.curve_panels import Values, level_of

__all__ = ["gpu_bar", "small_curve"]

_LEFT, _RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)  # dots of a column, from the bottom


def gpu_bar(usage: GpuUsage, waiting_mib: float, width: int) -> list[Piece]:
    return [Piece(*one) for one in memory_bar(usage, waiting_mib, width)]


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
