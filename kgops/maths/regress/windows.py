"""Windows of consecutive frames, built lazily; the target is the height at the middle frame."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from kgops.errors import BadInput
from kgops.maths.regress.flights import Flight

GAP = 5.0  # a gap of this many usual frame intervals ends a sequence

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Batch:
    """`images` (batch, frames, height, width) as stored, `angles` (batch, frames, 2) zenith and
    azimuth in degrees, `heights` (batch,) in km, and the number of each window's flight."""

    images: torch.Tensor
    angles: torch.Tensor
    heights: torch.Tensor
    flights: torch.Tensor

    def __len__(self) -> int:
        return len(self.heights)

    def to(self, device: torch.device) -> Batch:
        tensors = (self.images, self.angles, self.heights, self.flights)
        if device.type == "cuda":
            # From pinned memory, so that the copy overlaps the previous step.
            return Batch(*(tensor.pin_memory().to(device, non_blocking=True) for tensor in tensors))
        return Batch(*(tensor.to(device) for tensor in tensors))


class Windows:
    """All windows of `frames` consecutive frames of some flights, numbered flight by flight.

    Only `batch` reads frames. Windows do not span a pause of the camera.
    """

    def __init__(self, flights: Sequence[Flight], frames: int) -> None:
        self.flights, self.frames = tuple(flights), frames
        starts = [_starts(flight, frames) for flight in self.flights]
        for flight, firsts in zip(self.flights, starts, strict=True):
            if not len(firsts):
                raise BadInput(
                    f"{flight.path} has no {frames} frames (temporal_frames) in a row without a pause.",
                    hint="use fewer frames per window, or leave this flight out.",
                )
        self._starts = np.concatenate(starts) if starts else np.empty(0, np.int64)
        self.flight_of = np.repeat(np.arange(len(starts)), [len(firsts) for firsts in starts])
        heights = [
            flight.heights[firsts + frames // 2] for flight, firsts in zip(flights, starts, strict=True)
        ]
        self.heights = np.concatenate(heights) if heights else np.empty(0, np.float32)

    def __len__(self) -> int:
        return len(self._starts)

    def of(self, flight: int) -> NDArray[np.int64]:
        """The numbers of one flight's windows."""
        return np.flatnonzero(self.flight_of == flight)

    def batch(self, numbers: Sequence[int]) -> Batch:
        """The windows of these numbers, in this order."""
        positions = [(int(self.flight_of[n]), int(self._starts[n])) for n in numbers]
        images = [self.flights[f].frames[start : start + self.frames] for f, start in positions]
        angles = [
            np.stack(
                [
                    self.flights[f].zenith[start : start + self.frames],
                    self.flights[f].azimuth[start : start + self.frames],
                ],
                axis=1,
            )
            for f, start in positions
        ]
        return Batch(
            torch.from_numpy(_widened(np.stack(images))),
            torch.from_numpy(np.stack(angles)),
            torch.from_numpy(self.heights[np.asarray(numbers, np.int64)]),
            torch.tensor([f for f, _ in positions]),
        )


def ahead(make: Sequence[Callable[[], _T]], depth: int = 2) -> Iterator[_T]:
    """Results of the functions in `make`, in order, computed ahead by a thread."""
    results: queue.Queue[tuple[_T | None, BaseException | None]] = queue.Queue(depth)
    enough = threading.Event()

    def work() -> None:
        for load in make:
            if enough.is_set():
                return
            try:
                results.put((load(), None))
            except BaseException as error:  # re-raised in the consumer
                results.put((None, error))
                return

    thread = threading.Thread(target=work, name="loader", daemon=True)
    thread.start()
    try:
        for _ in make:
            item, error = results.get()
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        enough.set()
        while thread.is_alive():
            try:
                results.get_nowait()
            except queue.Empty:
                thread.join(0.001)


def _starts(flight: Flight, frames: int) -> NDArray[np.int64]:
    steps = np.diff(flight.times)
    usual = float(np.median(steps)) if len(steps) else 0.0
    pauses = np.concatenate([[0], np.cumsum(steps > GAP * usual)])  # before each frame
    first: NDArray[np.int64] = np.arange(len(flight) - frames + 1)
    unbroken: NDArray[np.int64] = first[pauses[first] == pauses[first + frames - 1]]
    return unbroken


def _widened(images: NDArray[np.generic]) -> NDArray[np.generic]:
    """Keeps uint8 images, a quarter of the bytes to transfer; converts others to float32."""
    return images if images.dtype == np.uint8 else images.astype(np.float32)
