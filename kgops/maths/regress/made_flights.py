"""Writes small synthetic flights from which height can be learned: `python -m kgops.maths.regress.made_flights DIR`.

A layer of clouds over ground, seen from above: each cloud casts a shadow away from the sun, at a distance of its
height times the tangent of the sun's zenith angle. So height follows only from image and angles together.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kgops.errors import BadInput
from kgops.maths.regress.flights import DATASETS

SECONDS_A_FRAME = 2.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sky:
    """Content of the images of one flight."""

    frames: int = 256
    size: int = 32
    lowest_km: float = 0.5
    highest_km: float = 3.0
    pixels_a_km: float = 3.0  # for an image of 32 pixels
    clouds: int = 4

    def __post_init__(self) -> None:
        if self.frames < 1 or self.size < 8:
            raise BadInput(
                f"{self.frames} frames of {self.size} pixels make no flight; at least 1 frame of 8 pixels is needed."
            )


def make_flights(folder: Path, count: int = 4, sky: Sky | None = None, seed: int = 0) -> list[Path]:
    """Writes `count` flights with different weather and sun; equal seeds give equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(1, count + 1):
        path = folder / f"flight_{number:02}.npz"
        arrays = make_flight(sky or Sky(), np.random.default_rng([seed, number]))
        np.savez(path, allow_pickle=False, **arrays)  # uncompressed, so that it can be memory-mapped
        paths.append(path)
    return paths


def make_flight(sky: Sky, random: np.random.Generator) -> dict[str, NDArray[np.generic]]:
    """The arrays of one flight by name."""
    when = np.linspace(0, 1, sky.frames)
    heights = sky.lowest_km + (sky.highest_km - sky.lowest_km) * _wandering(when, random)
    zenith = random.uniform(25, 50) + random.uniform(-12, 12) * (2 * when - 1)
    azimuth = random.uniform(140, 220) + random.uniform(-20, 20) * (2 * when - 1)
    frames = _Painter(sky, random).paint(heights, zenith, azimuth)
    columns = (frames, zenith, azimuth, heights, SECONDS_A_FRAME * np.arange(sky.frames))
    return dict(zip(DATASETS, columns, strict=True))


def _wandering(when: Array, random: np.random.Generator) -> Array:
    """Slow waves between 0 and 1, about uniformly distributed, so that each flight covers all heights."""
    waves = sum(
        random.uniform(0.5, 1) * np.sin(2 * math.pi * (turns * when + random.uniform()))
        for turns in random.uniform(2, 9, 4)
    )
    ranks = np.asarray(waves).argsort().argsort()
    return (ranks + 0.5) / len(when)


class _Painter:
    """A periodic image: a cloud that leaves on one side enters on the other with its shadow."""

    def __init__(self, sky: Sky, random: np.random.Generator) -> None:
        self.sky, self.random = sky, random
        scale = sky.size / 32
        self.places = random.uniform(0, sky.size, (sky.clouds, 2))
        self.radii = random.uniform(1.2, 2.0, sky.clouds) * scale
        self.wind = random.uniform(-0.4, 0.4, 2) * scale
        self.pixels_a_km = sky.pixels_a_km * scale
        self.ground = _smooth(random.normal(size=(sky.size, sky.size)))

    def paint(self, heights: Array, zenith: Array, azimuth: Array) -> NDArray[np.uint8]:
        frames = np.empty((len(heights), self.sky.size, self.sky.size), np.uint8)
        for i, height in enumerate(heights):
            self._drift()
            distance = self.pixels_a_km * height * math.tan(math.radians(zenith[i]))
            away = math.radians(azimuth[i]) + math.pi
            # Rows count from north to south, columns from west to east.
            shift = distance * np.array([-math.cos(away), math.sin(away)])
            clouds, shadows = self._blobs(self.places), self._blobs(self.places + shift)
            ground = (0.5 + 0.05 * self.ground) * (1 - 0.8 * shadows)
            light = ground * (1 - clouds) + 0.95 * clouds
            noise = self.random.normal(0, 0.01, light.shape)
            frames[i] = np.clip(255 * (light + noise), 0, 255).astype(np.uint8)
        return frames

    def _drift(self) -> None:
        size = self.sky.size
        self.places = (self.places + self.wind + self.random.normal(0, 0.3, self.places.shape)) % size
        # Replaces some clouds at random, so that a network cannot memorise their positions.
        fresh = self.random.uniform(size=len(self.places)) < 0.1
        self.places[fresh] = self.random.uniform(0, size, (int(fresh.sum()), 2))

    def _blobs(self, places: Array) -> Array:
        size = self.sky.size
        axis = np.arange(size)
        apart = (axis[None, :, None] - places[:, None, :] + size / 2) % size - size / 2  # cloud, pixel, axis
        fall = np.exp(-np.square(apart / self.radii[:, None, None]) / 2)
        return np.asarray(1 - np.prod(1 - fall[:, :, None, 0] * fall[:, None, :, 1], axis=0))


def _smooth(noise: Array) -> Array:
    """Periodic low-frequency noise of variance 1."""
    frequency = np.fft.fftfreq(len(noise))
    kept = np.exp(-40 * (frequency[:, None] ** 2 + frequency[None, :] ** 2))
    smooth = np.fft.ifft2(np.fft.fft2(noise) * kept).real
    return np.asarray((smooth - smooth.mean()) / smooth.std())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kgops data flights", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--flights", type=int, default=4, help="number of flights")
    parser.add_argument("--frames", type=int, default=Sky.frames, help="frames of each flight")
    parser.add_argument("--size", type=int, default=Sky.size, help="pixels on each side of an image")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    for path in make_flights(given.folder, given.flights, Sky(given.frames, given.size), given.seed):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
