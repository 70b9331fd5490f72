"""The profile that suits a GPU, found without loading jobs and options: a dashboard shows it at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kgops.gpus.known import known_by_name
from kgops.jobs.profile_names import AUTO


def shipped() -> Iterator[Path]:
    """Files of the profiles that ship: in kgops/profiles in a wheel, and beside kgops in a checkout."""
    here = Path(__file__)
    for folder in (here.parents[1] / "profiles", here.parents[2] / "profiles"):
        if folder.is_dir():
            yield from sorted(folder.glob("*.toml"))
            return


@cache
def suited_to_gpu(name: str | None) -> str:
    """By the driver's name of a GPU or MIG slice; `auto` where no profile was made for that model."""
    known = known_by_name(name) if name else None
    return AUTO if known is None else suited_to_model(known.short_name)


def suited_to_model(short_name: str | None) -> str:
    return _by_model().get(short_name or "", AUTO)


@cache
def _by_model() -> dict[str, str]:
    tables = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in shipped()}
    return {model: name for name, table in tables.items() for model in table.get("gpus", ())}
