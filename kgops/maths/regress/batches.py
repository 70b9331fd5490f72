"""Windows of consecutive frames in batches: normalised on the device, augmented, in an order determined by the seed.

The target is the height at the middle frame.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from kgops.errors import BadInput
from kgops.maths.regress.flights import Flight
from kgops.maths.regress.stages import RegressionSettings, Stage
from kgops.workloads.regress.job import split_windows

_AHEAD = 3  # batches read while a step runs
GAP = 5.0  # a gap of this many usual frame intervals ends a sequence

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Batch:
    """`images` (batch, frames, height, width): as stored. `angles` (batch, frames, 2): zenith and azimuth in degrees.
    `heights` (batch,): in km. `flights`: the number of each window's flight."""

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


def ahead(make: Iterable[Callable[[], _T]]) -> Iterator[_T]:
    """Results of the functions in `make`, in order, computed ahead by a thread."""
    thread = ThreadPoolExecutor(1, "loader")
    waiting: deque[Future[_T]] = deque()
    try:
        for load in make:
            waiting.append(thread.submit(load))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        for one in waiting:
            yield one.result()
    finally:
        thread.shutdown(cancel_futures=True)


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


_BRIGHTER = 0.1  # largest change, as a factor and in standard deviations


@dataclass(frozen=True)
class Scaling:
    """Normalisation of inputs and heights, and back to km; saved in every checkpoint."""

    image_mean: float
    image_std: float
    mean_frame: torch.Tensor | None
    height_mean: float
    height_std: float

    @classmethod
    def of(cls, windows: Windows, *, flat_field: bool, zscore: bool) -> Scaling:
        """Measures the normalisation on training flights only."""
        frames = np.array([len(flight) for flight in windows.flights], float)
        surveys = [flight.survey for flight in windows.flights]
        share = frames / frames.sum()
        mean = float(sum(w * s.mean for w, s in zip(share, surveys, strict=True)))
        square = float(sum(w * (s.std**2 + s.mean**2) for w, s in zip(share, surveys, strict=True)))
        frame = sum(w * s.mean_frame.astype(float) for w, s in zip(share, surveys, strict=True))
        mean_frame = torch.from_numpy(np.asarray(frame, np.float32)) if flat_field else None
        left = square - (float(np.square(frame).mean()) if flat_field else mean**2)
        std = math.sqrt(left) if left > 1e-12 * max(square, 1e-12) else 1.0
        heights = windows.heights.astype(float)
        spread = float(heights.std())
        return cls(
            mean if zscore and not flat_field else 0.0,
            std if zscore else 1.0,
            mean_frame,
            float(heights.mean()),
            spread if spread > 0 else 1.0,
        )

    def on(self, device: torch.device) -> Scaling:
        """With the mean frame there: sent with each batch, it would make the host wait for the step before."""
        frame = self.mean_frame
        return self if frame is None else replace(self, mean_frame=frame.to(device))

    def images(self, images: torch.Tensor) -> torch.Tensor:
        seen = images.float()
        if self.mean_frame is not None:
            seen = seen - self.mean_frame.to(images.device)
        return (seen - self.image_mean) / self.image_std

    def standardised(self, heights: torch.Tensor) -> torch.Tensor:
        return (heights - self.height_mean) / self.height_std

    def in_km(self, predicted: torch.Tensor) -> torch.Tensor:
        return predicted.double() * self.height_std + self.height_mean

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Training:
    """A stage's windows: for training and, from the end of each flight, for validation."""

    windows: Windows
    train: torch.Tensor
    valid: torch.Tensor
    weights: torch.Tensor  # loss weight of each flight

    @classmethod
    def of(cls, flights: Sequence[Flight], frames: int, heavier: dict[str, float] | None = None) -> Training:
        windows = Windows(flights, frames)
        train: list[int] = []
        valid: list[int] = []
        for number in range(len(flights)):
            numbers = windows.of(number).tolist()
            trained, validated = split_windows(len(numbers), frames)
            train += numbers[:trained]
            valid += numbers[len(numbers) - validated :]
        weight = [(heavier or {}).get(flight.name, 1.0) for flight in flights]
        return cls(windows, torch.tensor(train), torch.tensor(valid, dtype=torch.long), torch.tensor(weight))


class Stream:
    """An epoch's batches on the device, read ahead by a thread."""

    def __init__(self, training: Training, batch_size: int, device: torch.device) -> None:
        self.training, self.batch_size, self.device = training, batch_size, device

    def __len__(self) -> int:
        """Batches in an epoch."""
        return -(-len(self.training.train) // self.batch_size)

    def epoch(self, key: str, skip: int = 0) -> Iterator[Batch]:
        """Training batches in the order of `key`, without the first `skip`."""
        order = torch.randperm(len(self.training.train), generator=generator_for(f"order {key}"))
        return self._read(self.training.train[order], skip)

    def validation(self) -> Iterator[Batch]:
        return self._read(self.training.valid)

    def everything(self) -> Iterator[Batch]:
        """All windows in order, for a held-out flight."""
        return self._read(torch.arange(len(self.training.windows)))

    def _read(self, numbers: torch.Tensor, skip: int = 0) -> Iterator[Batch]:
        def make(start: int) -> Batch:
            chosen = numbers[start : start + self.batch_size].tolist()
            return self.training.windows.batch(chosen).to(self.device)

        return ahead([partial(make, n) for n in range(skip * self.batch_size, len(numbers), self.batch_size)])


class Prepared:
    """A stage's windows with their normalisation, in batches on the device."""

    def __init__(self, stage: Stage, frames: int, settings: RegressionSettings, device: torch.device) -> None:
        self.training = Training.of(stage.flights, frames, stage.heavier)
        self.scaling = Scaling.of(
            Windows(stage.scaled_by, frames),
            flat_field=settings.flat_field_correction,
            zscore=settings.zscore_normalize,
        ).on(device)
        self.stream = Stream(self.training, settings.batch_size, device)
        self.weights = self.training.weights.to(device)
        self.augment, self._device = settings.augment, device

    def inputs(self, batch: Batch, key: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Input of a step: images, angles, standardised heights and weights; `key` determines the augmentation."""
        images, angles = self.scaling.images(batch.images), batch.angles
        if self.augment:
            images, angles = augmented(images, angles, generator_for(f"augment {key}"))
        return images, angles, self.scaling.standardised(batch.heights), self.weights[batch.flights]


def augmented(
    images: torch.Tensor, angles: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Randomly mirrors each window along both axes and changes its brightness and contrast. Rows run from north to
    south, so mirrored images have a mirrored azimuth."""
    batch = len(images)
    mirrored = torch.randint(0, 2, (2, batch), generator=generator).bool()
    changed = _BRIGHTER * (2 * torch.rand(2, batch, generator=generator) - 1)
    # Blocking copies would wait for the step before.
    upside, sideways = mirrored.to(images.device, non_blocking=True)
    contrast, light = changed.to(images.device, non_blocking=True)
    images = torch.where(upside[:, None, None, None], images.flip(2), images)
    images = torch.where(sideways[:, None, None, None], images.flip(3), images)
    azimuth = torch.where(upside[:, None], 180 - angles[..., 1], angles[..., 1])
    azimuth = torch.where(sideways[:, None], -azimuth, azimuth)
    images = images * (1 + contrast)[:, None, None, None] + light[:, None, None, None]
    return images, torch.stack([angles[..., 0], azimuth], dim=-1)


def generator_for(key: str) -> torch.Generator:
    """Random generator that depends only on `key`: equal on every device and in every attempt."""
    digest = hashlib.sha256(f"kgops regress {key}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def flights_digest(flights: Sequence[Flight]) -> str:
    """Digest of the training flights, from statistics, to check that a checkpoint belongs to them."""
    digest = hashlib.sha256()
    for flight in flights:
        digest.update(f"{flight.name} {tuple(flight.frames.shape)} {flight.survey.mean!r}".encode())
        for array in (flight.heights, flight.zenith, flight.azimuth, flight.times, flight.survey.mean_frame):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
