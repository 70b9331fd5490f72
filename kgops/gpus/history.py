"""The last ten minutes of each GPU's memory, utilization, heat and power, in a few kilobytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kgops.gpus.readings import GpuReading

BUCKET_S = 4
KEPT = 150  # buckets: ten minutes

Values = tuple[float | None, ...]
_UNSEEN: Values = (None,) * 4


@dataclass(frozen=True, slots=True)
class GpuCurve:
    """Means of four seconds each, newest last; None where nobody looked."""

    memory_mib: Values = ()
    utilization: Values = ()
    temperature_c: Values = ()
    power_w: Values = ()


class GpuHistory:
    """Whole buckets alone are shown, so that a curve changes every four seconds and not with every reading."""

    def __init__(self) -> None:
        self._bucket: int | None = None
        self._open: dict[int, list[Values]] = {}
        self._whole: dict[int, deque[Values]] = {}
        self.curves: dict[int, GpuCurve] = {}  # replaced as a whole, by GPU index

    def add(self, taken_at: float, gpus: Sequence[GpuReading]) -> None:
        bucket = int(taken_at // BUCKET_S)
        if self._bucket is not None and bucket != self._bucket:
            self._close(max(bucket - self._bucket, 1))
        self._bucket = bucket
        for gpu in gpus:
            reading = gpu.memory_used_mib, gpu.utilization_percent, gpu.temperature_c, gpu.power_w
            self._open.setdefault(gpu.index, []).append(reading)

    def _close(self, passed: int) -> None:
        for index in {*self._open, *self._whole}:
            kept = self._whole.setdefault(index, deque(maxlen=KEPT))
            readings = self._open.get(index, [_UNSEEN])
            kept.append(tuple(map(_mean, zip(*readings, strict=True))))
            kept.extend([_UNSEEN] * min(passed - 1, KEPT))
        self._open = {}
        self.curves = {index: GpuCurve(*zip(*kept, strict=True)) for index, kept in self._whole.items()}


def _mean(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
