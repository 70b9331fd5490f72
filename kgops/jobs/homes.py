"""Whether a path is in a kgops home, whichever home that is."""

from __future__ import annotations

from pathlib import Path


def home_of(path: Path) -> Path | None:
    """The home that the path is, or whose `runs/` or `pending/` it is in; links are not followed."""
    for above in (path, *path.parents):
        inside = path.relative_to(above).parts[:1]
        if inside in ((), ("runs",), ("pending",)) and (above / "kgops.db").is_file():
            return above
    return None


def run_of(path: Path) -> Path | None:
    """The run's folder that the path is in, or is; it may be outside any home."""
    for above in (path, *path.parents):
        if (above / "plan.json").is_file() and (
            (above / "outcome.slot").is_file() or (above / "record.json").is_file()
        ):
            return above
    return None
