"""Refuse to import sample data: runs of `demo --tour`, recognised by their origin in exports and folders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kgops.errors import Usage
from kgops.jobs.files import read_json
from kgops.jobs.text import one_line
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.run_json import IMPORTED
from storage.transfer import Rows

__all__ = ["TOUR", "refuse_made_up", "refuse_made_up_folder"]

TOUR = "tour"  # kind of a sample run's origin


def refuse_made_up(rows: Rows, source: str) -> None:
    """Raises Usage for an exported sample run."""
    marks = (event["body"] for event in rows.tables["event"] if event["kind"] == IMPORTED)
    _refuse(marks, f"{source}: {one_line(rows.run['label'], 60)!r}")


def refuse_made_up_folder(folder: RunFolder) -> None:
    """Raises Usage for the folder of a sample run."""
    told = read_json(folder.origins)
    marks = [mark.get("body") for mark in told if isinstance(mark, dict)] if isinstance(told, list) else []
    _refuse(marks, str(folder.path))


def _refuse(marks: Iterable[Any], what: str) -> None:
    if any(isinstance(mark, dict) and mark.get("kind") == TOUR for mark in marks):
        raise Usage(
            f"{what} is sample data of a tour",
            "only real runs can be imported; `kgops demo --tour` creates another tour",
        )
