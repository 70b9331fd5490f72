"""Reads files of torch.save without running code and with no more memory than the file's size."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kgops.training.out_of_memory import is_out_of_memory

__all__ = ["read_saved"]


def read_saved(path: Path, device: torch.device | str = "cpu", *, mmap: bool = False) -> Any:
    """The value in `path`; ValueError unless it is a complete file of `torch.save`.

    OSError and out of memory pass through, since the file may be valid.
    """
    with path.open("rb") as file:
        _must_be_stored(file)
    try:
        value = torch.load(path, map_location=device, weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # the unpickler may raise any exception on invalid bytes
        if is_out_of_memory(error):
            raise
        raise ValueError(f"torch cannot read it: {type(error).__name__}") from error
    _must_hold_its_tensors(value)
    return value


def _must_be_stored(file: Any) -> None:
    """Refuses compressed files, which torch never writes: they may expand a thousandfold."""
    size = file.seek(0, 2)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except Exception as error:  # zipfile raises this too
        raise ValueError("it is not a complete torch file") from error
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it is compressed, which torch never does")
    if sum(member.file_size for member in members) > size:
        raise ValueError("its stated size is larger than the file")


def _must_hold_its_tensors(value: Any) -> None:
    """Refuses views larger than their storage, which would expand when copied."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, torch.Tensor):
            if one.layout != torch.strided or one.is_quantized:
                raise ValueError("a tensor in it has an unsupported layout or type")
            if one.nbytes > one.untyped_storage().nbytes():
                raise ValueError("a tensor in it is larger than its data in the file")
        elif isinstance(one, Mapping | list | tuple | set) and id(one) not in seen:
            seen.add(id(one))
            waiting += [*one.keys(), *one.values()] if isinstance(one, Mapping) else one
