"""Recipes: whole jobs that ship with kgops, each a file that can be read, copied and changed, and what each was
measured to reach."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from kgops.errors import Usage
from kgops.jobs.option_reading import nearest
from kgops.workloads.shared_options import TRIPLES

FLAG, METAVAR = "recipe", "NAME"  # of `kgops train`


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run of a recipe. `curve` has (epoch, seconds of training until then, validation MRR)."""

    seed: int
    seconds: float  # from start to end, evaluation included
    epochs: int
    test: dict[str, float]  # mrr, hits_at_1, hits_at_10, by kgops
    pykeen: dict[str, float]  # the same model by PyKEEN's evaluator
    curve: list[tuple[int, float, float]]


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of `python -m benchmarks.recipes`; `fingerprint` belongs to the recipe it ran."""

    date: str
    machine: str
    fingerprint: str
    runs: list[MeasuredRun]


def names() -> list[str]:
    return [path.stem for path in _shipped()]


def find(name: str) -> Path:
    """The file of a shipped recipe."""
    for path in _shipped():
        if path.stem == name:
            return path
    raise Usage(f"there is no recipe {name!r:.60}{nearest(name, dict.fromkeys(names()))}")


def measured(name: str) -> Measured | None:
    """Measured results of the recipe; None where nobody has measured it as it is now."""
    path = find(name).with_suffix(".json")
    if not path.exists():
        return None
    table = json.loads(path.read_text("utf-8"))
    runs = [MeasuredRun(**{**run, "curve": [(e, s, m) for e, s, m in run["curve"]]}) for run in table["runs"]]
    found = Measured(**{**table, "runs": runs})
    return found if found.fingerprint == fingerprint_of(name) else None


def fingerprint_of(name: str) -> str:
    """Of a recipe's values; comments may change, and what was measured stays true."""
    table = tomllib.loads(find(name).read_text("utf-8"))
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def graph_of(name: str) -> str | None:
    """The dataset of the recipe; None for one that takes any graph."""
    dataset: str | None = tomllib.loads(find(name).read_text("utf-8"))["train"].get("dataset")
    return dataset


def with_changes(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The recipe's table with what a person gave on top; data they name replaces the recipe's."""
    recipe = tomllib.loads(find(name).read_text("utf-8"))
    settings, given = recipe["train"], changes["train"]
    if given.keys() & {"dataset", *TRIPLES}:
        settings = {key: value for key, value in settings.items() if key not in ("dataset", *TRIPLES)}
    return {
        **recipe,
        "train": {**settings, **given},
        "options": {**recipe.get("options", {}), **changes["options"]},
    }


def _shipped() -> Iterator[Path]:
    yield from sorted((Path(str(files("kgops"))) / "recipes").glob("*.toml"), key=lambda path: path.stem)


def help_text() -> str:
    return f"Start from a job that ships with kgops: {', '.join(names())}. `script` takes your own graph."
