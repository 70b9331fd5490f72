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

__all__ = ["TOUR", "refuse_sample", "refuse_sample_folder"]

TOUR = "tour"  # kind of a sample run's origin


def refuse_sample(rows: Rows, source: str) -> None:
    """Raises Usage for an exported sample run."""
    bodies = (event["body"] for event in rows.tables["event"] if event["kind"] == IMPORTED)
    _refuse(bodies, f"{source}: {one_line(rows.run['label'], 60)!r}")


def refuse_sample_folder(folder: RunFolder) -> None:
    """Raises Usage for the folder of a sample run."""
    origins = read_json(folder.origins)
    bodies = (
        [origin.get("body") for origin in origins if isinstance(origin, dict)]
        if isinstance(origins, list)
        else []
    )
    _refuse(bodies, str(folder.path))


def _refuse(bodies: Iterable[Any], subject: str) -> None:
    if any(isinstance(body, dict) and body.get("kind") == TOUR for body in bodies):
        raise Usage(
            f"{subject} is sample data of a tour",
            "only real runs can be imported; `kgops demo --tour` creates another tour",
        )
