"""Sizes of a regression: its flight files and its windows."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from kgops.gpus.facts import GpuFacts
from kgops.jobs.files import open_regular
from kgops.jobs.job import Job
from kgops.jobs.on_device import WorkerDevice, skips_compile
from kgops.workloads.regress.job import RegressionConfig, config_of, image_size, split_windows
from kgops.workloads.regress.options import REGRESS_BATCH

_FRAMES = "frames"  # name of the array of images, as in kgops.maths.regress.flights
_HDF5 = (".h5", ".hdf5")
_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 16
_PATIENCE_S = 30.0
_UNKNOWN_FRAMES = 1000  # of a flight, where a plan is made without data


@dataclass(frozen=True, slots=True)
class Flights:
    """`frames` of each flight by its name; `pixel` is the bytes of a pixel in a batch."""

    height: int
    width: int
    pixel: int
    frames: Mapping[str, int]

    def windows(self, length: int) -> dict[str, int]:
        """Of so many frames, in each flight; pauses of the camera are not seen here."""
        return {name: max(0, frames - length + 1) for name, frames in self.frames.items()}


def flights_of(settings: Mapping[str, Any]) -> Flights | str:
    """Flights of a job's folder, otherwise of its image size; or why they are unknown."""
    size = image_size(settings)
    if settings["data_directory"]:
        flights = flights_in(Path(settings["data_directory"]))
        if not isinstance(flights, str) or size is None:
            return flights
    if size is None:
        return "the job names neither flights nor an image size"
    return Flights(*size, 1, {"first": _UNKNOWN_FRAMES, "last": _UNKNOWN_FRAMES})


def flights_in(folder: Path) -> Flights | str:
    """Flights in a folder, or why they cannot be read; the worker reports broken files in detail."""
    try:
        shapes = dict(_shapes(folder))
    except MemoryError:
        raise
    except (
        Exception
    ) as error:  # zipfile, what unpacks for it and literals of Python: the worker reads it, too
        return f"its flights cannot be read: {' '.join(str(error).split())[:100]}"
    if not shapes:
        return f"{folder} has no flights"
    if len({shape[1:] for shape, _ in shapes.values()}) > 1:
        return "its flights have images of several sizes"
    shape, pixel = next(iter(shapes.values()))
    frames = {name: shapes[name][0][0] for name in sorted(shapes)}
    return Flights(shape[1], shape[2], pixel, frames)


def _shapes(folder: Path) -> Iterator[tuple[str, tuple[tuple[int, int, int], int]]]:
    hdf5 = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".npz":
            with (
                _opened(path) as raw,
                zipfile.ZipFile(raw) as archive,
                archive.open(f"{_FRAMES}.npy") as file,
            ):
                yield path.stem, _header(file)
        elif path.suffix in _HDF5:
            hdf5.append(path)
        elif (path / f"{_FRAMES}.npy").is_file():
            with _opened(path / f"{_FRAMES}.npy") as file:
                yield path.stem, _header(file)
    if hdf5:
        yield from _hdf5(hdf5)


def _opened(path: Path) -> IO[bytes]:
    return os.fdopen(open_regular(path, follow=True), "rb")


def _header(file: IO[bytes]) -> tuple[tuple[int, int, int], int]:
    """Shape, and bytes of a pixel as `kgops.maths.regress.batches` hands them on."""
    if file.read(6) != _MAGIC:
        raise ValueError("not a numpy array")
    major = file.read(2)[0]
    length = int.from_bytes(file.read(2 if major == 1 else 4), "little")
    if length > _LONGEST_HEADER:
        raise ValueError("the header of an array is too long")
    header = ast.literal_eval(file.read(length).decode("latin1"))
    return _checked(header["shape"], header["descr"])


def _checked(shape: Any, dtype: Any) -> tuple[tuple[int, int, int], int]:
    if len(shape) != 3 or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ValueError(f"frames have the shape {shape!r:.40}")
    return (shape[0], shape[1], shape[2]), 1 if dtype == "|u1" else 4


_H5PY_SCRIPT = """
import h5py, json, sys
for path in sys.argv[1:]:
    with h5py.File(path, "r") as file:
        print(json.dumps([list(file["frames"].shape), file["frames"].dtype.str]))
"""


def _hdf5(paths: list[Path]) -> Iterator[tuple[str, tuple[tuple[int, int, int], int]]]:
    """Reads HDF5 headers in a separate process, since h5py imports numpy."""
    command = [sys.executable, "-P", "-c", _H5PY_SCRIPT, *map(str, paths)]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"HDF5 files took longer than {_PATIENCE_S:.0f} s") from error
    if process.returncode:
        raise ValueError(process.stderr.strip().rpartition("\n")[2])
    for path, line in zip(paths, process.stdout.splitlines(), strict=True):
        yield path.stem, _checked(*json.loads(line))


@dataclass(frozen=True, slots=True)
class RegressShape:
    """An epoch has `train` windows. After it the model predicts `valid` windows, and at the end `held_out` ones.
    `at_once` windows are computed at a time. `low`: bytes of a number in convolutions and products. `pixel`: bytes of a
    number in a batch as it is read."""

    workload: ClassVar[str] = "regress"

    model: RegressionConfig
    on_gpu: bool
    train: int
    valid: int
    held_out: int
    pixel: int
    batch_size: int
    at_once: int
    precision: str
    low: int
    optimizer: str
    checkpointing: bool
    compile: str
    augment: bool

    @property
    def examples(self) -> int:
        """Of an epoch."""
        return self.train

    @property
    def batch(self) -> int:
        """Windows of a usual batch."""
        return max(1, min(self.batch_size, self.train))

    @property
    def computed(self) -> int:
        """Windows in one pass through the network."""
        return min(self.at_once, self.batch)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return max(1, math.ceil(self.train / self.batch_size))


def regress_shape(job: Job, flights: Flights, gpu: GpuFacts | None, precision: str) -> RegressShape:
    """Of a job `regress`; `precision` is the number format that its options come to on this GPU (None: the CPU)."""
    settings, options = job.settings, job.options
    model = config_of(settings, options, (flights.height, flights.width))
    windows = flights.windows(model.temporal_frames)
    held = settings["validation_flight"] or max(windows)
    parts = [split_windows(own, model.temporal_frames) for name, own in windows.items() if name != held]
    batch_size = options.get("batch_size", REGRESS_BATCH)
    microbatch = options.get("microbatch", "auto")
    return RegressShape(
        model,
        gpu is not None,
        max(1, sum(train for train, _ in parts)),
        sum(valid for _, valid in parts),
        windows.get(held, 0),
        flights.pixel,
        batch_size,
        batch_size if microbatch == "auto" else min(microbatch, batch_size),
        precision,
        2 if precision in ("fp16", "bf16") else 4,
        settings["optimizer"],
        bool(options.get("gradient_checkpointing", False)),
        "off" if gpu is None and skips_compile(job, WorkerDevice()) else options.get("compile", "off"),
        settings["augment"],
    )
