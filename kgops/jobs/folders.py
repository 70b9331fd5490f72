"""Folders whose files are attributes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Folder(NamedTuple):
    path: Path


class Inside:
    """The path of this name in a folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Folder, owner: object = None) -> Path:
        return folder.path / self._name
