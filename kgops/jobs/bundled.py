"""What PyKEEN has, read from its files: importing it would take seconds."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

BUNDLED = ("nations", "kinships", "umls")  # graphs that are there without a network


def bundled_folder(name: str) -> Path | None:
    """Folder of the graph."""
    package = _package() if name.lower() in BUNDLED else None
    if package is None:
        return None
    folder = package / "datasets" / name.lower()
    return folder if (folder / "train.txt").is_file() else None


def class_names(kind: Literal["datasets", "models"]) -> set[str]:
    """Names of all classes, more than those that can be asked for; none without PyKEEN."""
    package = _package()
    files = () if package is None else (package / kind).rglob("*.py")
    return {
        name
        for file in files
        for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }


def _package() -> Path | None:
    spec = find_spec("pykeen")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
