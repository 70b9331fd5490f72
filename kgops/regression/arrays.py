"""Lazy reading of named arrays in a flight's .npz, .npy or HDF5 files.

Uncompressed `.npz` members and `.npy` files of a folder are memory-mapped; h5py, from the extra `flights`, reads slices
of `.h5` files. Compressed members are unpacked.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kgops.errors import BadInput, KgopsError, Unavailable

__all__ = ["HDF5", "SUFFIXES", "ArrayFile", "open_arrays"]

HDF5 = (".h5", ".hdf5")
SUFFIXES = (".npz", *HDF5)
_LOCAL_HEADER = struct.Struct("<26xHH")  # lengths of the name and extra field of a zip member


class ArrayFile:
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


def open_arrays(path: Path, wanted: tuple[str, ...]) -> ArrayFile:
    """Those of the `wanted` arrays that a file or a folder of `.npy` files has."""
    try:
        if path.is_dir():
            return ArrayFile(path, {file.stem: _npy(file) for file in sorted(path.glob("*.npy"))})
        if path.suffix in HDF5:
            return ArrayFile(path, _hdf5(path))
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


def _npz(path: Path, wanted: tuple[str, ...]) -> ArrayFile:
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
    return ArrayFile(path, arrays, unpacked)


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
