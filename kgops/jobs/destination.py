"""Writes exports atomically; overwrites files only with --force."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kgops.errors import Usage

__all__ = ["must_be_free", "plain_name", "written"]

_LONGEST_NAME = 120


def must_be_free(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise Usage(f"{path} is there already", "--force writes over it")


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name once it is whole, also where the name is a link's. What is no file, as a pipe or
    /dev/stdout, has to stay what it is."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    half = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        with half.open("xb") as file:  # in a shared folder a link may have this name
            yield file
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def plain_name(name: str, taken: set[str]) -> str:
    """`name` as a file's name that means nothing to a shell or a path, and is not in `taken` yet."""
    cleaned = re.sub(r"[^A-Za-z0-9_. -]", "_", name)[:_LONGEST_NAME].strip(". ") or "_"
    free_name, n = cleaned, 1
    while free_name in taken:
        n += 1
        free_name = f"{cleaned}_{n}"
    taken.add(free_name)
    return free_name
