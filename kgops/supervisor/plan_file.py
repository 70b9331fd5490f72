"""The plan of a run as a file, and checks of what is read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kgops.errors import Unavailable
from kgops.jobs.files import ABSENT, read_json, read_regular, write_durably, write_json
from kgops.jobs.text import is_timestamp
from kgops.supervisor.run_folder import RunFolder
from storage import runs
from storage.database import Connection
from storage.rows import misfits
from storage.schema import EVENTS, SPEC, schema_error

if TYPE_CHECKING:
    from storage.transfer import Rows

# Times that are shown as dates.
_TIMES = {"attempt": ("started_at", "ended_at"), "note": ("at",)}
_RUN_TIMES = ("submitted_at", "started_at", "ended_at", "reported_at")


def misfit(rows: Rows) -> str | None:
    """The first invalid value and where it is; None if all are valid."""
    problems = [schema_error(rows.spec[name], expected, name) for name, expected in SPEC.items()]
    for event in rows.tables["event"]:
        if event["kind"] in EVENTS:
            problems.append(schema_error(event["body"], EVENTS[event["kind"]], f"event {event['kind']}"))
    problems += [_invalid_time(rows.run, name, "run") for name in _RUN_TIMES]
    for table, names in _TIMES.items():
        problems += [_invalid_time(row, name, table) for row in rows.tables[table] for name in names]
    return next((problem for problem in problems if problem), None)


def _invalid_time(row: Mapping[str, Any], name: str, table: str) -> str | None:
    time = row[name]
    return None if time is None or is_timestamp(time) else f"{table}.{name} is not a valid time: {time!r}"


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
    key: str  # random: marks a result manifest as this run's
    predicted_mib: float | None = None
    forecast: dict[str, Any] | None = None  # prediction, its target and its parts
    process: dict[str, Any] | None = None  # on the CPU: predicted process memory beside the tensors
    disk: dict[str, Any] | None = None  # predicted disk use, and free space
    module: str | None = None  # None: the user's own command
    on: str | None = None  # cluster of the worker; None: this machine
    # settings of each attempt after an out-of-memory; the first for the start
    attempt_settings: list[dict[str, Any]] = field(default_factory=list)
    progress_regex: str | None = None
    metric_regex: str | None = None
    # OOM fallbacks in order: changes and reason
    fallbacks: list[dict[str, Any]] = field(default_factory=list)
    # fallbacks predicted to save nothing, with the prediction
    skipped: list[dict[str, Any]] = field(default_factory=list)
    last_resort: str | None = None  # hint for the user when the last fallback ran out of memory too
    memory_limit_mib: int | None = None  # of host memory, for each process of the worker
    # options: value, who chose it, and rules that apply
    choices: list[dict[str, Any]] = field(default_factory=list)
    # from the profile, for variables the user did not set
    environment: dict[str, str] = field(default_factory=dict)
    # If GPUs differ: by UUID the job and the fields that differ. Those of the run's GPU are also above.
    by_gpu: dict[str, dict[str, Any]] = field(default_factory=dict)
    data_before: dict[str, Any] | None = None  # of the run that this one repeats: its number and `digests`
    forced: bool = False  # started with --force: workers do what they would refuse without it

    @property
    def is_command(self) -> bool:
        return self.module is None

    @property
    def reads_log(self) -> bool:
        """Whether the job has log patterns."""
        return bool(self.progress_regex or self.metric_regex)

    def settings(self, out_of_memory_so_far: int) -> dict[str, Any]:
        settings = self.attempt_settings
        return settings[min(out_of_memory_so_far, len(settings) - 1)] if settings else {}

    def fallbacks_left(self, out_of_memory_so_far: int) -> int:
        return max(len(self.attempt_settings) - 1 - out_of_memory_so_far, 0)


@dataclass(frozen=True, slots=True)
class Private:
    """A worker's unmasked command and environment, which may hold secrets."""

    command: list[str]
    environment: dict[str, str]
    umask: int  # the user's, for the worker's files
    cwd: str  # a path may contain a secret


def write_plan(folder: RunFolder, plan: Plan, private: Private) -> None:
    write_json(folder.plan, as_table(plan))
    write_json(folder.private, asdict(private))


def queued_run(plan: Plan, folder: str) -> runs.Run:
    """The run's row before it starts; `folder` is the name of its folder."""
    return runs.Run(
        id=plan.number,
        workload=plan.workload,
        label=plan.label,
        profile=plan.profile,
        state="queued",
        folder=folder,
        submitted_at=plan.submitted_at,
        gpu_request=plan.gpu_request,
        reserved_mib=plan.reserved_mib,
        exclusive=int(plan.exclusive),
        predicted_mib=plan.predicted_mib,
    )


def as_table(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in Plan.__dataclass_fields__}


def read_plan(folder: RunFolder, number: int | None = None) -> Plan:
    """`number`: the row's number, which may differ from the file's after an import."""
    plan = _plan_from(read_json(folder.plan), folder)
    return plan if number is None else replace(plan, number=number)


def recorded_plan(conn: Connection, folder: RunFolder, number: int) -> Plan:
    """The plan from the run's row, which no worker can overwrite, or from its folder if the row is damaged."""
    try:
        return replace(_plan_from(runs.spec(conn, number).plan, folder), number=number)
    except Unavailable:
        return read_plan(folder, number)


def _plan_from(table: Any, folder: RunFolder) -> Plan:
    try:
        plan = Plan(**{name: value for name, value in table.items() if name in Plan.__dataclass_fields__})
    except (TypeError, AttributeError) as error:
        raise Unavailable(f"{folder.plan} is missing or damaged", "`kgops delete` removes the run") from error
    wrong = misfits(plan, Plan.__annotations__)
    if wrong:
        text = f"{folder.plan} is damaged: {wrong[0]} is {getattr(plan, wrong[0])!r:.40}"
        raise Unavailable(text, "`kgops delete` removes the run")
    return plan


def plans_by_gpu(conn: Connection, run: runs.Run) -> dict[str, dict[str, Any]]:
    """Plans by the UUID of each GPU the run may get; empty if all share one plan."""
    return runs.spec(conn, run.id).plan.get("by_gpu") or {} if run.gpu_request is not None else {}


def needs_of(plans: dict[str, dict[str, Any]]) -> dict[str, int | None]:
    return {uuid: plan["reserved_mib"] for uuid, plan in plans.items()}


def take_plan(conn: Connection, number: int, chosen: dict[str, Any]) -> None:
    """Writes the plan for the run's GPU to its row."""
    spec = runs.spec(conn, number)
    values = {name: value for name, value in chosen.items() if name != "job"}
    runs.replan(conn, number, job=chosen["job"], plan={**spec.plan, **values})


def write_as_given(conn: Connection, folder: RunFolder, plan: Plan) -> None:
    """Writes the plan for the run's GPU to its files, before a worker reads them."""
    if plan.by_gpu:
        from kgops.jobs import toml  # imported late: seldom needed, and supervisors should be small

        write_durably(folder.job, toml.dumps(runs.spec(conn, plan.number).job).encode())
        write_json(folder.plan, as_table(plan))


def read_private(folder: RunFolder) -> Private | None:
    """None once the run has ended."""
    try:
        # surrogateescape: the environment may contain bytes that are not UTF-8.
        table = json.loads(read_regular(folder.private).decode("utf-8", "surrogateescape"))
        command, environment = list(table["command"]), dict(table["environment"])
        return Private(command, environment, int(table["umask"]), str(table["cwd"]))
    except (*ABSENT, ValueError, KeyError, TypeError):
        return None
