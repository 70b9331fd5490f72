"""What torch saved, read without running code and without more memory than the file has bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kgops.training.out_of_memory import is_out_of_memory

__all__ = ["read_saved"]


def read_saved(path: Path, device: torch.device | str = "cpu", *, mmap: bool = False) -> Any:
    """The value in `path`; ValueError for whatever is no whole file of `torch.save`.

    What cannot be opened is an OSError, and a lack of memory comes as it is: the file may be all right.
    """
    with path.open("rb") as file:
        _must_be_stored(file)
    try:
        value = torch.load(path, map_location=device, weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # of bytes that torch did not write its unpickler may raise anything
        if is_out_of_memory(error):
            raise
        raise ValueError(f"torch cannot read it: {type(error).__name__}") from error
    _must_hold_its_tensors(value)
    return value


def _must_be_stored(file: Any) -> None:
    """As torch writes it: a compressed file may be a thousand times as large once it is read."""
    size = file.seek(0, 2)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except Exception as error:  # zipfile, too
        raise ValueError("it is no whole file of torch") from error
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it is compressed, which torch never does")
    if sum(member.file_size for member in members) > size:
        raise ValueError("it says it is larger than it is")


def _must_hold_its_tensors(value: Any) -> None:
    """A view may say it has more numbers than its storage: copying it would make them."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, torch.Tensor):
            if one.layout != torch.strided or one.is_quantized:
                raise ValueError("a tensor in it is of a kind that is never saved")
            if one.nbytes > one.untyped_storage().nbytes():
                raise ValueError("a tensor in it is larger than what is saved of it")
        elif isinstance(one, Mapping | list | tuple | set) and id(one) not in seen:
            seen.add(id(one))
            waiting += [*one.keys(), *one.values()] if isinstance(one, Mapping) else one
