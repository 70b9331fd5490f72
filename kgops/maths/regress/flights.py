"""Reads flights from a folder and validates them before training: every fault with file and reason."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kgops.errors import BadInput, KgopsError, Unavailable

FRAMES, ZENITH, AZIMUTH, HEIGHT, TIME = DATASETS = (
    *("frames", "solar_zenith", "solar_azimuth", "height", "time"),
)
_BLOCK_BYTES = 16 << 20  # of frames checked at once
_MOST_LISTED = 8
_LARGEST = float(np.finfo(np.float32).max)  # larger values become infinite in training

Floats = NDArray[np.float32]
_HDF5 = (".h5", ".hdf5")
_SUFFIXES = (".npz", *_HDF5)
_LOCAL_HEADER = struct.Struct("<26xHH")  # lengths of the name and extra field of a zip member


class _ArrayFile:
    """The arrays of one flight: `names` without opening them, `[name]` sliced like a numpy array."""

    def __init__(self, path: Path, arrays: dict[str, Any], unpacked: Iterable[str] = ()) -> None:
        self.path, self._arrays = path, arrays
        self.unpacked = tuple(unpacked)  # read whole, since they are compressed

    @property
    def names(self) -> list[str]:
        return sorted(self._arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]


def _open_arrays(path: Path, wanted: tuple[str, ...]) -> _ArrayFile:
    """Opens the `wanted` arrays that a file or a folder of `.npy` files has.

    Uncompressed `.npz` members and `.npy` files are memory-mapped; h5py, from the extra `flights`, reads slices of
    `.h5` files. Compressed members are unpacked.
    """
    try:
        if path.is_dir():
            return _ArrayFile(path, {file.stem: _npy(file) for file in sorted(path.glob("*.npy"))})
        if path.suffix in _HDF5:
            return _ArrayFile(path, _hdf5(path))
        return _npz(path, wanted)
    except (KgopsError, MemoryError):
        raise
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.", hint="copy it again.") from error
    except (
        Exception
    ) as error:  # zipfile, its decompressors and numpy's header parser raise various exceptions
        raise BadInput(
            f"{path} is damaged or has no arrays: {str(error)[:120]}.",
            hint="write it with numpy.savez.",
        ) from error


def _npz(path: Path, wanted: tuple[str, ...]) -> _ArrayFile:
    arrays: dict[str, Any] = {}
    unpacked = []
    with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name not in wanted:
                arrays[name] = None
            elif member.compress_type == zipfile.ZIP_STORED:
                raw.seek(member.header_offset)
                skipped = sum(_LOCAL_HEADER.unpack(raw.read(_LOCAL_HEADER.size)))
                start = member.header_offset + _LOCAL_HEADER.size + skipped
                arrays[name] = _mapped(path, raw, start, start + member.file_size)
            else:
                with archive.open(member) as packed:
                    _header(packed, member.file_size)
                with archive.open(member) as packed:
                    arrays[name] = np.lib.format.read_array(packed, allow_pickle=False)
                unpacked.append(name)
    return _ArrayFile(path, arrays, unpacked)


def _npy(path: Path) -> Any:
    with path.open("rb") as raw:
        return _mapped(path, raw, 0, path.stat().st_size)


def _mapped(path: Path, raw: Any, start: int, end: int) -> Any:
    """The array whose `.npy` header is at `start`, memory-mapped."""
    raw.seek(start)
    shape, order, dtype = _header(raw, end)
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, mode="r", offset=raw.tell(), shape=shape, order=order)  # type: ignore[call-overload]


def _header(raw: Any, end: int) -> tuple[tuple[int, ...], str, np.dtype[Any]]:
    """Dtype and shape in a `.npy` header, checked against the bytes up to `end`."""
    version = np.lib.format.read_magic(raw)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(raw)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > end - raw.tell():
        raise ValueError(f"the shape {shape!r:.60} is larger than its data")
    return shape, "F" if by_columns else "C", dtype


def _hdf5(path: Path) -> dict[str, Any]:
    try:
        h5py: Any = import_module("h5py")
    except ImportError as error:
        raise Unavailable(
            f"{path} is an HDF5 file, and h5py is not installed.",
            hint="install it with pip install 'kgops[flights]', or use .npz files.",
        ) from error
    file = h5py.File(path, "r")
    return {name: file[name] for name in file if isinstance(file[name], h5py.Dataset)}


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

    A flight is an `.npz` or HDF5 file with the arrays `DATASETS`, or a folder of as many `.npy` files. It must have at
    least one window of `window` frames. All frames are read once, to find NaN before training starts.
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
    paths = [path for path in inside if path.suffix in _SUFFIXES and path.is_file()]
    paths += [path for path in inside if path.is_dir() and any(path.glob("*.npy"))]
    if not paths:
        raise BadInput(
            f"{folder} has no flights.",
            hint=f"a flight is a file ending in {', '.join(_SUFFIXES)}, or a folder of .npy files; "
            "`kgops data flights --make DIR` writes small ones.",
        )
    names = [path.stem for path in paths]
    twice = next((path for path in paths if names.count(path.stem) > 1), None)
    if twice is not None:
        raise BadInput(f"{twice}: there are two flights called {twice.stem!r}.", hint="rename one of them.")
    return sorted(paths, key=lambda path: path.stem)


def _read(path: Path, window: int) -> Flight:
    arrays = _open_arrays(path, DATASETS)
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


def _column(arrays: _ArrayFile, name: str, frames: int) -> NDArray[np.float64]:
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
