"""plan.json: what was decided for a run, as its supervisor reads it without TOML and without the console."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from kgops.errors import Unavailable
from kgops.jobs.files import ABSENT, read_json, read_regular, write_durably, write_json
from kgops.supervisor.run_folder import RunFolder
from storage import old_words, runs
from storage.database import Connection


@dataclass(frozen=True, slots=True)
class Plan:
    number: int
    workload: str
    label: str
    profile: str | None
    submitted_at: float
    command: list[str]  # of the worker, secrets masked
    cwd: str
    gpu_request: str | None
    reserved_mib: int | None
    exclusive: bool
    attempts: int
    grace_s: float
    log_mib: float
    predicted_mib: float | None = None
    forecast: dict[str, Any] | None = None  # what was predicted, for what, and from which parts
    process: dict[str, Any] | None = (
        None  # on the CPU: what such a worker's process takes beside counted tensors
    )
    disk: dict[str, Any] | None = None  # the same of what it writes, and the room where that goes
    module: str | None = None  # None: the command is the person's own
    on: str | None = None  # where the worker is, if not here
    attempt_settings: list[dict[str, Any]] = field(
        default_factory=list
    )  # settings per out-of-memory, the first for the start
    progress_regex: str | None = None
    metric_regex: str | None = None
    fallbacks: list[dict[str, Any]] = field(
        default_factory=list
    )  # what each fallback after the first changes, and why
    skipped: list[dict[str, Any]] = field(
        default_factory=list
    )  # fallbacks that are predicted to save nothing, and how much is predicted
    last_resort: str | None = None  # what a person can try when the last fallback has run out too
    memory_limit_mib: int | None = None  # of host memory, for each process of the worker
    choices: list[dict[str, Any]] = field(default_factory=list)  # of options: who chose what, and rules' say
    environment: dict[str, str] = field(default_factory=dict)  # of the profile, where the person set nothing
    # Where its GPUs differ: by UUID what of this plan is otherwise, and the job. The one that the run got stands above.
    by_gpu: dict[str, dict[str, Any]] = field(default_factory=dict)
    key: str | None = None  # random: a result manifest says by it which run it belongs to

    @property
    def is_command(self) -> bool:
        return self.module is None

    @property
    def reads_log(self) -> bool:
        """Whether the person gave patterns for its log."""
        return bool(self.progress_regex or self.metric_regex)

    def settings(self, out_of_memory_so_far: int) -> dict[str, Any]:
        settings = self.attempt_settings
        return settings[min(out_of_memory_so_far, len(settings) - 1)] if settings else {}

    def fallbacks_left(self, out_of_memory_so_far: int) -> int:
        return max(len(self.attempt_settings) - 1 - out_of_memory_so_far, 0)


@dataclass(frozen=True, slots=True)
class Private:
    """What a worker is given and nobody else should read."""

    command: list[str]
    environment: dict[str, str]
    umask: int  # the person's: a worker's files are theirs, not kgops'
    cwd: str  # a folder may be named by a secret, too


def write_plan(folder: RunFolder, plan: Plan, private: Private) -> None:
    write_json(folder.plan, as_table(plan))
    table = {
        "command": private.command,
        "environment": private.environment,
        "umask": private.umask,
        "cwd": private.cwd,
    }
    write_json(folder.private, table)


def as_table(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in Plan.__dataclass_fields__}


def read_plan(folder: RunFolder, number: int | None = None) -> Plan:
    """`number` is the row's, where there is one: a folder taken in again may have got another than it had."""
    plan = _plan_from(read_json(folder.plan), folder)
    return plan if number is None else replace(plan, number=number)


def recorded_plan(conn: Connection, folder: RunFolder, number: int) -> Plan:
    """As the run's row has it: a worker can write to its folder, and nobody but us to the row."""
    return replace(_plan_from(runs.spec(conn, number).plan, folder), number=number)


def _plan_from(table: Any, folder: RunFolder) -> Plan:
    if old_words.is_old_plan(table):
        table = old_words.renamed(table)
    try:
        return Plan(**{name: value for name, value in table.items() if name in Plan.__dataclass_fields__})
    except (TypeError, AttributeError) as error:
        raise Unavailable(f"{folder.plan} is missing or damaged", "`kgops delete` removes the run") from error


def plans_by_gpu(conn: Connection, run: runs.Run) -> dict[str, dict[str, Any]]:
    """By the UUID of each GPU that it may get; empty where it is planned the same for all of them."""
    return runs.spec(conn, run.id).plan.get("by_gpu") or {} if run.gpu_request is not None else {}


def needs_of(plans: dict[str, dict[str, Any]]) -> dict[str, int | None]:
    return {uuid: plan["reserved_mib"] for uuid, plan in plans.items()}


def take_plan(conn: Connection, number: int, chosen: dict[str, Any]) -> None:
    """The row has from now on what was planned for the GPU that the run got."""
    spec = runs.spec(conn, number)
    values = {name: value for name, value in chosen.items() if name != "job"}
    runs.replan(conn, number, job=chosen["job"], plan={**spec.plan, **values})


def write_as_given(conn: Connection, folder: RunFolder, plan: Plan) -> None:
    """The same for its files, before a worker reads them."""
    if plan.by_gpu:
        from kgops.jobs import toml  # seldom needed, and supervisors should be small

        write_durably(folder.job, toml.dumps(runs.spec(conn, plan.number).job).encode())
        write_json(folder.plan, as_table(plan))


def read_private(folder: RunFolder) -> Private | None:
    """None once the run has ended."""
    try:
        # surrogateescape: an environment may hold bytes that are not UTF-8, and the worker gets them back.
        table = json.loads(read_regular(folder.private).decode("utf-8", "surrogateescape"))
        command, environment = list(table["command"]), dict(table["environment"])
        return Private(command, environment, int(table["umask"]), str(table["cwd"]))
    except (*ABSENT, ValueError, KeyError, TypeError):
        return None
