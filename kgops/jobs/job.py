"""Jobs: what a person asks for, as a validated value that can be written as TOML and read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kgops.errors import BadJob
from kgops.jobs import cluster, toml
from kgops.jobs.cluster import HERE, PlaceAsk
from kgops.jobs.keys import Key, at_least, describe, joined, nearest, read_table, unreadable, unwritable
from kgops.jobs.named_file import read_named
from kgops.jobs.options import option_problems
from kgops.jobs.secrets import masked_arguments, masked_text, secret_in
from kgops.jobs.workloads import WORKLOADS

LARGEST_JOB_FILE = 4 << 20
LONGEST_LABEL = 100


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What a job asks of a GPU. Without `wanted` and memory it asks for none."""

    wanted: str | None = None  # "auto", an index, or a UUID
    memory_mib: int | None = None
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    attempts: int = 1  # worker processes that may be lost before the run is given up as interrupted
    grace_s: float = 30.0  # between asking a worker to stop and killing it
    log_mib: float = 256.0  # of worker.log kept on disk, the newest part
    memory_mib: int | None = None  # of host memory, for each process of the worker
    allow_approximate: bool = False  # after an out-of-memory, options that change results may give way too


@dataclass(frozen=True, slots=True)
class Job:
    workload: str
    label: str
    settings: dict[str, Any]
    profile: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    gpu: GpuRequest = GpuRequest()
    limits: Limits = Limits()
    on: PlaceAsk = HERE

    def as_table(self) -> dict[str, Any]:
        """Plain data: what job.toml holds and what the database keeps. What is not set is not there."""
        whole = {
            "workload": self.workload,
            "label": self.label,
            "profile": self.profile,
            self.workload: {name: value for name, value in self.settings.items() if value is not None},
            "options": dict(self.options),
            "gpu": {name: value for name, value in asdict(self.gpu).items() if value is not None},
            "limits": {name: value for name, value in asdict(self.limits).items() if value is not None},
            "on": self._place(),
        }
        return {name: value for name, value in whole.items() if value is not None}

    def _place(self) -> dict[str, Any] | None:
        told = {name: value for name, value in asdict(self.on).items() if value not in (None, ())}
        if self.on.options:
            told["options"] = list(self.on.options)
        return told if self.on.where else None

    def as_toml(self) -> str:
        return toml.dumps(self.as_table())


def _label(value: str) -> str | None:
    if not value.strip():
        return "must not be empty"
    return None if len(value) <= LONGEST_LABEL else f"longer than {LONGEST_LABEL} characters"


_TOP = (
    Key("workload", "str", required=True),
    Key("label", "str", check=_label),
    Key("profile", "str"),
    Key("options", "table"),
    Key("gpu", "table"),
    Key("limits", "table"),
    Key("on", "table"),
)
_GPU = (
    Key("wanted", "str"),
    Key("memory_mib", "int", check=at_least(1)),
    Key("exclusive", "bool", False),
)
_LIMITS = (
    Key("attempts", "int", check=at_least(1)),
    Key("grace_s", "float", 30.0, check=at_least(0)),
    Key("log_mib", "float", 256.0, check=at_least(1, 1 << 30)),
    Key("memory_mib", "int", check=at_least(1, 1 << 30)),
    Key("allow_approximate", "bool", False),
)


def read_job(table: object, source: str) -> Job:
    """The job in `table`, or BadJob with every problem in it."""
    if problems := unreadable(table):
        raise BadJob(source, problems)
    if not isinstance(table, Mapping):
        raise BadJob(source, [f"expected a table, found {describe(table)}"])
    table = _in_todays_words(table)
    name = table.get("workload")
    workload = WORKLOADS.get(name) if isinstance(name, str) else None
    if isinstance(name, str) and workload is None:
        problems.append(f"workload: there is no {name!r:.60}{nearest(name, WORKLOADS)}")
    # Without a known workload its table cannot be judged; the rest still is.
    own = (Key(workload.name, "table"),) if workload else tuple(Key(key, "table") for key in WORKLOADS)
    top = read_table("", table, (*_TOP, *own), problems)
    found_before = len(problems)
    settings = (
        read_table(workload.name, table.get(workload.name, {}), workload.keys, problems) if workload else {}
    )
    if workload and len(problems) == found_before:
        problems += workload.check(settings)
    gpu = read_table("gpu", top["gpu"] or {}, _GPU, problems)
    limits = read_table("limits", top["limits"] or {}, _LIMITS, problems)
    on = read_table("on", top["on"] or {}, cluster.KEYS, problems)
    problems += cluster.problems_of(on, str(name))
    options = dict(top["options"] or {})
    problems += option_problems(options)
    problems += unwritable(table)
    problems += _secrets_in(workload.name, settings, on["options"] or ()) if workload else []
    if problems or workload is None:
        raise BadJob(source, problems)
    if limits["attempts"] is None:
        limits["attempts"] = workload.attempts
    made = workload.label(settings)[:LONGEST_LABEL]
    return Job(
        workload=workload.name,
        label=masked_text(top["label"] or "")[:LONGEST_LABEL] or (made if made.strip() else workload.name),
        settings=settings,
        profile=top["profile"],
        options=options,
        gpu=GpuRequest(**gpu),
        limits=Limits(**limits),
        on=PlaceAsk(**{**on, "options": tuple(on["options"] or ())}),
    )


def _in_todays_words(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job of kgops 0.1.0, as its run folders have it, said `levers`, and `card` with `gpu` inside."""
    if not {"levers", "card"} & {*table}:
        return table
    found = {{"levers": "options", "card": "gpu"}.get(name, name): value for name, value in table.items()}
    gpu = found.get("gpu")
    if isinstance(gpu, Mapping):
        found["gpu"] = {("wanted" if name == "gpu" else name): value for name, value in gpu.items()}
    return found


def _secrets_in(name: str, settings: Mapping[str, Any], options: Sequence[str]) -> list[str]:
    """What a worker reads as it stands cannot be masked. A command can: it is kept apart while its run goes on."""
    why = "of your environment, which the record would keep"
    problems = [
        f"{joined(name, key)}: holds the value of a secret variable {why}"
        for key, value in settings.items()
        if key != "command" and secret_in(value)
    ]
    if masked_arguments([*options]) != [*options]:
        problems.append(
            "on.options: holds a secret, which the record would keep; Slurm hands your environment on"
        )
    return problems


def read_job_file(path: Path) -> Job:
    text = read_named(path, "job file", LARGEST_JOB_FILE)
    try:
        table = toml.loads(text)
    except ValueError as error:
        raise BadJob(str(path), [f"not TOML: {error}"]) from error
    return read_job(table, str(path))
