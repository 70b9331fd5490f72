"""The graphs that PyKEEN ships: there without a network."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["BUNDLED", "bundled_folder"]

BUNDLED = ("nations", "kinships", "umls")


def bundled_folder(name: str) -> Path | None:
    """Folder of the graph. Finding PyKEEN does not import it, which would take seconds."""
    spec = find_spec("pykeen") if name.lower() in BUNDLED else None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "datasets" / name.lower()
    return folder if (folder / "train.txt").is_file() else None
