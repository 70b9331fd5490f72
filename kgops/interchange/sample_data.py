"""Sample data of a tour: runs known by their origin, wherever they are exported to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kgops.errors import Usage
from kgops.jobs.files import read_json
from kgops.jobs.text import one_line
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.run_json import IMPORTED
from storage.transfer import Rows

__all__ = ["TOUR", "refuse_sample", "refuse_sample_folder"]

TOUR = "tour"  # kind of the origin that such a run's mark tells


def refuse_sample(rows: Rows, source: str) -> None:
    """Sample data never becomes part of a person's history."""
    marks = (event["body"] for event in rows.tables["event"] if event["kind"] == IMPORTED)
    _refuse(marks, f"{source}: {one_line(rows.run['label'], 60)!r}")


def refuse_sample_folder(folder: RunFolder) -> None:
    """The same of a run's folder."""
    told = read_json(folder.origins)
    marks = [mark.get("body") for mark in told if isinstance(mark, dict)] if isinstance(told, list) else []
    _refuse(marks, str(folder.path))


def _refuse(marks: Iterable[Any], what: str) -> None:
    if any(isinstance(mark, dict) and mark.get("kind") == TOUR for mark in marks):
        raise Usage(
            f"{what} is sample data of a tour",
            "a record holds what took place; `kgops demo --tour` makes another tour",
        )
