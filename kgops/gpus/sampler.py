"""Samples GPUs in a separate thread, so that no caller waits for the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kgops.gpus.nvml import Nvml, ReadingAbandoned, open_nvml
from kgops.gpus.readings import NvmlProblem, Snapshot


class GpuSampler:
    """Reads the GPUs in a separate thread, so that no caller waits for the driver.

    The thread opens NVML, reads, and shuts NVML down itself: no call can be under way at the shutdown,
    however slow the driver is.
    """

    # A driver that could not be opened may be loaded later; asking again costs a failed dlopen.
    retry_s = 10.0

    def __init__(
        self,
        interval_s: float = 1.0,
        *,
        for_people: bool = False,
        opener: Callable[[], Nvml | NvmlProblem] = open_nvml,
    ) -> None:
        """`for_people`: reads what `Nvml.gpus` reads for people."""
        self._for_people = for_people
        self._interval_s = interval_s
        self._opener = opener
        self._newest: Snapshot | None = None
        self._nvml: Nvml | None = None
        self._stopping = threading.Event()
        self._has_read = threading.Event()
        # A daemon, since a driver that hangs for good must not keep the program from ending.
        self._thread = threading.Thread(target=self._sample, name="kgops-gpus", daemon=True)

    def __enter__(self) -> GpuSampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def newest(self) -> Snapshot | None:
        """The last complete round, at once; None until the first one is there."""
        return self._newest

    def first(self, timeout_s: float) -> Snapshot | None:
        """Waits up to `timeout_s` for the first round; Ctrl-C ends the waiting."""
        self._has_read.wait(timeout_s)
        return self._newest

    def stop(self, timeout_s: float = 2.0) -> bool:
        """Waits up to `timeout_s` for the driver call under way; True once the thread has ended."""
        self._stopping.set()
        if (nvml := self._nvml) is not None:
            nvml.abandon()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _sample(self) -> None:
        number = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            opened = self._opener()
            if isinstance(opened, Nvml):
                with opened:
                    self._rounds(opened, number)
                return
            number += 1
            took_s = time.monotonic() - started
            self._publish(Snapshot(number, time.time(), took_s, (), None, None, opened))
            self._stopping.wait(max(self.retry_s, self._interval_s))

    def _publish(self, snapshot: Snapshot) -> None:
        self._newest = snapshot
        self._has_read.set()

    def _rounds(self, nvml: Nvml, number: int) -> None:
        self._nvml = nvml
        try:
            driver = cuda = None
            while not self._stopping.is_set():
                started = time.monotonic()
                gpus = nvml.gpus(for_people=self._for_people)
                if driver is None:
                    driver, cuda = nvml.driver_version(), nvml.cuda_version()
                took_s = time.monotonic() - started
                number += 1
                self._publish(Snapshot(number, time.time(), took_s, gpus, driver, cuda, None))
                # A driver slower than the interval gets a rest between rounds all the same.
                self._stopping.wait(max(self._interval_s - took_s, min(took_s, self._interval_s)))
        except ReadingAbandoned:
            pass  # stop() asked for it; what was read so far is no complete round


SILENT = NvmlProblem(
    "silent", "the NVIDIA driver does not answer.", "if `nvidia-smi` hangs as well, restart the machine."
)
DRIVER_WITHIN_S = 20.0  # without persistence mode a driver starts each GPU anew
_ASK_AGAIN_S = 60.0
_waited_s, _silent_until = 0.0, 0.0  # for a driver that did not answer


def read_within(limit_s: float = DRIVER_WITHIN_S) -> Snapshot:
    """One reading, or what is in the way: also a driver that does not answer in time. A plan reads several times and
    waits once: for a minute a driver that was silent for so long is not asked again."""
    global _waited_s, _silent_until
    if limit_s <= _waited_s and time.monotonic() < _silent_until:
        return silent(limit_s)
    snapshot = read_once(limit_s)
    if snapshot is not None:
        return snapshot
    _waited_s, _silent_until = limit_s, time.monotonic() + _ASK_AGAIN_S
    return silent(limit_s)


def silent(took_s: float) -> Snapshot:
    return Snapshot(0, time.time(), took_s, (), None, None, SILENT)


def read_once(limit_s: float) -> Snapshot | None:
    """One reading; None if the driver does not answer in time, as one whose GPU fell off the bus may never do."""
    sampler = GpuSampler()
    try:
        sampler.start()
    except RuntimeError:  # no room for another thread
        return None
    snapshot = sampler.first(limit_s)
    sampler.stop(0.0 if snapshot is None else 2.0)
    return snapshot
