"""Bar of a GPU's memory: by kgops' runs, by others, reserved, predicted for waiting runs."""

from __future__ import annotations

from kgops.views.gpu_lines import memory_bar
from kgops.views.gpus import GpuUsage
from screens.rows import Piece

__all__ = ["gpu_bar"]


def gpu_bar(usage: GpuUsage, waiting_mib: float, width: int) -> list[Piece]:
    return [Piece(*one) for one in memory_bar(usage, waiting_mib, width)]
