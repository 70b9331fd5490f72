"""Reads flights from a folder and validates them before training: every fault with file and reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kgops.errors import BadInput
from kgops.regression.arrays import SUFFIXES, ArrayFile, open_arrays

__all__ = ["DATASETS", "Flight", "Survey", "read_flights"]

FRAMES, ZENITH, AZIMUTH, HEIGHT, TIME = DATASETS = (
    *("frames", "solar_zenith", "solar_azimuth", "height", "time"),
)
_BLOCK_BYTES = 16 << 20  # of frames checked at once
_MOST_LISTED = 8
_LARGEST = float(np.finfo(np.float32).max)  # larger values become infinite in training

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Survey:
    """Statistics of all frames of a flight: mean and variance of a pixel, and the mean frame."""

    mean: float
    std: float
    mean_frame: Floats


@dataclass(frozen=True, eq=False)
class Flight:
    """One flight: lazy frames (n, height, width); degrees, kilometres and seconds per frame."""

    name: str
    path: Path
    frames: Any
    zenith: Floats
    azimuth: Floats
    heights: Floats
    times: NDArray[np.float64]
    survey: Survey
    unpacked: tuple[str, ...] = ()  # compressed datasets that were read whole

    def __len__(self) -> int:
        return len(self.heights)

    @property
    def image_size(self) -> tuple[int, int]:
        return int(self.frames.shape[1]), int(self.frames.shape[2])


def read_flights(folder: Path, window: int) -> list[Flight]:
    """All flights of `folder` by name, or BadInput with the faults of each file.

    A flight is an `.npz` or HDF5 file with the arrays `DATASETS`, or a folder of as many `.npy` files; it must
    have at least one window of `window` frames. All frames are read once, to find NaN before training starts.
    """
    paths = _flight_paths(folder)
    flights, problems = [], []
    for path in paths:
        try:
            flights.append(_read(path, window))
        except BadInput as error:
            problems.append(error.message)
    sizes = {flight.image_size for flight in flights}
    if len(sizes) > 1:
        first = flights[0]
        other = next(f for f in flights if f.image_size != first.image_size)
        problems.append(
            f"{other.path} has images of {_size(other)}, {first.path} of {_size(first)}: "
            "all images must have one size."
        )
    if problems:
        more = [f"and {len(problems) - _MOST_LISTED} more files"] if len(problems) > _MOST_LISTED else []
        raise BadInput(
            "\n".join([*problems[:_MOST_LISTED], *more]),
            hint=f"each flight has {', '.join(DATASETS)}; `kgops data flights --make DIR` writes examples.",
        )
    return flights


def _flight_paths(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise BadInput(f"{folder} cannot be read: {error.strerror}.", hint="check the path.") from error
    paths = [path for path in inside if path.suffix in SUFFIXES and path.is_file()]
    paths += [path for path in inside if path.is_dir() and any(path.glob("*.npy"))]
    if not paths:
        raise BadInput(
            f"{folder} has no flights.",
            hint=f"a flight is a file ending in {', '.join(SUFFIXES)}, or a folder of .npy files; "
            "`kgops data flights --make DIR` writes small ones.",
        )
    names = [path.stem for path in paths]
    twice = next((path for path in paths if names.count(path.stem) > 1), None)
    if twice is not None:
        raise BadInput(f"{twice}: there are two flights called {twice.stem!r}.", hint="rename one of them.")
    return sorted(paths, key=lambda path: path.stem)


def _read(path: Path, window: int) -> Flight:
    arrays = open_arrays(path, DATASETS)
    missing = [name for name in DATASETS if name not in arrays]
    if missing:
        what = f"no dataset {missing[0]!r}" if len(missing) == 1 else f"no datasets {', '.join(missing)}"
        raise BadInput(f"{path} has {what}; it has {', '.join(arrays.names) or 'none'}.")
    frames = arrays[FRAMES]
    if len(frames.shape) != 3 or 0 in frames.shape[1:] or frames.dtype.kind not in "fiu":
        raise BadInput(
            f"{path}: {FRAMES} has shape {tuple(frames.shape)} of {frames.dtype}; expected numbers, "
            "(frames, height, width)."
        )
    if len(frames) < window:
        raise BadInput(f"{path} has {len(frames)} frames, fewer than a window of {window} (temporal_frames).")
    columns = {name: _column(arrays, name, len(frames)) for name in DATASETS[1:]}
    times = columns[TIME]
    if (np.diff(times) <= 0).any():
        late = int((np.diff(times) <= 0).argmax()) + 1
        raise BadInput(f"{path}: {TIME} does not rise at frame {late}.")
    return Flight(
        path.stem,
        path,
        frames,
        columns[ZENITH].astype(np.float32),
        columns[AZIMUTH].astype(np.float32),
        columns[HEIGHT].astype(np.float32),
        times,
        _survey(path, frames),
        arrays.unpacked,
    )


def _column(arrays: ArrayFile, name: str, frames: int) -> NDArray[np.float64]:
    column = arrays[name]
    if tuple(column.shape) not in ((frames,), (frames, 1)) or column.dtype.kind not in "fiu":
        raise BadInput(
            f"{arrays.path}: {name} has shape {tuple(column.shape)} of {column.dtype}; expected a number for "
            f"each of {frames} frames."
        )
    values = np.asarray(column[:], np.float64).reshape(-1)
    faulty = np.flatnonzero(~(np.abs(values) <= _LARGEST))
    if len(faulty):
        raise BadInput(
            f"{arrays.path}: {name} is NaN or infinite at {len(faulty)} of {frames} frames, first at frame {faulty[0]}."
        )
    return values


def _survey(path: Path, frames: Any) -> Survey:
    at_once = max(1, _BLOCK_BYTES // (8 * frames.shape[1] * frames.shape[2]))
    faulty: list[int] = []
    # Relative to the first frame's mean: squares of large values would lose small differences.
    first = np.asarray(frames[0], np.float64)
    sound = first[np.abs(first) <= _LARGEST]
    origin = float(sound.mean()) if len(sound) else 0.0
    total = np.zeros(frames.shape[1:], np.float64)
    squares = 0.0
    for start in range(0, len(frames), at_once):
        block = np.asarray(frames[start : start + at_once], np.float64) - origin
        whole = (np.abs(block) <= _LARGEST).all(axis=(1, 2))
        faulty += [start + int(i) for i in np.flatnonzero(~whole)]
        if faulty:
            continue
        total += block.sum(axis=0)
        squares += float(np.square(block).sum())
    if faulty:
        raise BadInput(
            f"{path}: {len(faulty)} of {len(frames)} frames hold NaN or infinity, the first is frame {faulty[0]}."
        )
    pixels = len(frames) * total.size
    mean = float(total.sum()) / pixels
    std = max(squares / pixels - mean**2, 0.0) ** 0.5
    return Survey(origin + mean, std, (origin + total / len(frames)).astype(np.float32))


def _size(flight: Flight) -> str:
    return "x".join(map(str, flight.image_size))
