"""Recipes: whole jobs that ship with kgops, each a file that can be read, copied and changed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from kgops.errors import Usage
from kgops.options.reading import nearest
from kgops.options.train import FILES

__all__ = ["find", "names", "with_changes"]


def names() -> list[str]:
    return [path.stem for path in _shipped()]


def find(name: str) -> Path:
    """The file of a shipped recipe."""
    for path in _shipped():
        if path.stem == name:
            return path
    raise Usage(f"there is no recipe {name!r:.60}{nearest(name, dict.fromkeys(names()))}")


def with_changes(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The recipe's table with what a person gave on top; data they name replaces the recipe's."""
    recipe = tomllib.loads(find(name).read_text("utf-8"))
    settings, given = recipe["train"], changes["train"]
    if given.keys() & {"dataset", *FILES}:
        settings = {key: value for key, value in settings.items() if key not in ("dataset", *FILES)}
    return {
        **recipe,
        "train": {**settings, **given},
        "options": {**recipe.get("options", {}), **changes["options"]},
    }


def _shipped() -> Iterator[Path]:
    yield from sorted((Path(str(files("kgops"))) / "recipes").glob("*.toml"))
