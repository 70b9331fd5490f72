"""Markers for what is being made or deleted right now. One whose lock is free was left by a process that died."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kgops.jobs.files import sync_folder
from kgops.runs import locks
from kgops.runs.folder import number_of
from kgops.settings import Home

_NEW, _DELETE = ".new", ".delete"


@dataclass(frozen=True, slots=True)
class Marker:
    path: Path
    lock: int

    @property
    def folder(self) -> str:
        return self.path.name.removesuffix(_NEW).removesuffix(_DELETE)

    @property
    def is_deletion(self) -> bool:
        return self.path.name.endswith(_DELETE)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self.lock)


@contextmanager
def announce(home: Home, folder: str, *, deletion: bool = False) -> Iterator[None]:
    """The marker stands while the work goes on, and stays if the work does not come to its end."""
    path = home.pending / (folder + (_DELETE if deletion else _NEW))
    lock = locks.take(path)
    if lock is None:
        raise RuntimeError(f"{path} is somebody else's")
    sync_folder(home.pending)
    try:
        yield
        path.unlink()
    finally:
        os.close(lock)


def abandoned(home: Home) -> list[Marker]:
    markers = []
    for path in _listed(home):
        if path.suffix in (_NEW, _DELETE) and (lock := locks.take(path)) is not None:
            markers.append(Marker(path, lock))
    return markers


def highest_number(home: Home) -> int:
    """Of all runs being made: their numbers are given though no row has them yet."""
    return max((number_of(path.name) or 0 for path in _listed(home)), default=0)


def _listed(home: Home) -> list[Path]:
    try:
        return sorted(home.pending.iterdir())
    except FileNotFoundError:
        return []
