"""Batches of windows: normalised on the device, augmented, in an order determined by the seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from kgops.maths.regress.flights import Flight
from kgops.maths.regress.settings import RegressionSettings
from kgops.maths.regress.stages import Stage
from kgops.maths.regress.windows import Batch, Windows, ahead

VALIDATION_SHARE = 0.15
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
            valid_start = len(numbers) - int(VALIDATION_SHARE * len(numbers))
            # Windows that share frames with a validation window are left out of training.
            train_stop = max(valid_start - frames + 1, 0) if valid_start < len(numbers) else valid_start
            if not train_stop:
                valid_start = train_stop = len(numbers)
            train += numbers[:train_stop]
            valid += numbers[valid_start:]
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
