"""Profiles: named sets of option values. A value that a person gave stays; a profile fills in the rest."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kgops.errors import BadJob, Usage
from kgops.gpus.facts import GpuFacts
from kgops.gpus.known import known_by_name, known_by_short_name, short_names
from kgops.jobs import toml
from kgops.jobs.files import read_named
from kgops.jobs.job import Job
from kgops.jobs.on_device import AUTO, CPU
from kgops.jobs.option import Option
from kgops.jobs.option_reading import first_of, joined, nearest, read_table, unreadable, unwritable
from kgops.workloads.catalog import option_problems
from kgops.workloads.job_files import LARGEST_JOB_FILE
from kgops.workloads.registry import workload_of

_KEYS = (
    Option("summary", "str", required=True),
    Option("gpus", "strings", []),
    Option("options", "table", {}),
    Option("environment", "table", {}),
)


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    summary: str
    gpus: tuple[str, ...]  # short names of the GPUs it was made for; none: any machine
    options: dict[str, Any]
    environment: dict[str, str]  # variables for the worker
    path: Path


def names() -> list[str]:
    return sorted(path.stem for path in shipped())


def find(name: str) -> Profile:
    """A shipped profile by name, or the one in a file of the person's."""
    if name.endswith(".toml"):
        return read(Path(name))
    for path in shipped():
        if path.stem == name:
            return read(path)
    raise Usage(f"there is no profile {name!r:.60}{nearest(name, dict.fromkeys(names()))}")


def default_for(job: Job, facts: GpuFacts | None) -> str | None:
    """Default profile on this GPU, or on the CPU (None); `auto` where the machine is unknown. A command has none."""
    if workload_of(job).is_command:
        return None
    if facts is not None:
        return suited_to_model(facts.model)
    return AUTO if job.on.where == "slurm" else CPU


def apply(job: Job) -> Job:
    """The job with its profile's options where the person gave none; `resolve` adds what rules say."""
    if job.profile is None:
        return job
    options = find(job.profile).options
    if not workload_of(job).with_profile:
        # Options of other workloads do not apply here; the worker reports those that a person requests.
        own = workload_of(job).optimizations
        options = {name: value for name, value in options.items() if name in own}
    return replace(job, options={**options, **job.options})


def read(path: Path) -> Profile:
    """The profile in a file; BadJob names all problems."""
    text = read_named(path, "profile", LARGEST_JOB_FILE)
    try:
        table = toml.loads(text)
    except ValueError as error:
        raise BadJob(str(path), [f"not TOML: {error}"]) from error
    if problems := unreadable(table):
        raise BadJob(str(path), problems)
    values = read_table("", table, _KEYS, problems)
    problems += option_problems(values["options"])
    known = dict.fromkeys(short_names())
    problems += first_of(
        [gpu for gpu in values["gpus"] if known_by_short_name(gpu) is None],
        lambda gpu: f"gpus: there is no GPU {gpu!r:.60}{nearest(gpu, known)}",
        "gpus",
        "gpus",
    )
    for variable, value in values["environment"].items():
        if not isinstance(value, str):
            problems.append(f"{joined('environment', variable)}: expected text")
        elif not variable or "=" in variable:
            problems.append(f"{joined('environment', variable)}: not a variable name")
    problems += unwritable(table)
    if problems:
        raise BadJob(str(path), problems)
    gpus = tuple(values["gpus"])
    return Profile(path.stem, values["summary"], gpus, values["options"], values["environment"], path)


def shipped() -> Iterator[Path]:
    """Files of the profiles that ship: in kgops/profiles in a wheel, and next to kgops in a checkout."""
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
