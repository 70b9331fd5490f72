"""What all kinds of `kgops run` share: their common flags, and the way from a job to its end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kgops.cli.disk import disk_line
from kgops.cli.finite import FiniteRange
from kgops.cli.follow import follow
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import Session, existing, for_reading, for_writing
from kgops.cli.tag import check_tags
from kgops.errors import BadJob, KgopsError, Usage, WontFit
from kgops.jobs.cluster import PLACES
from kgops.jobs.job import Job, read_job
from kgops.jobs.text import lines, one_line
from kgops.planning.oom_fallbacks import passed_over
from kgops.planning.resolve import Choice
from kgops.settings import find_home
from kgops.slurm.submission import sbatch_lines
from kgops.streams import tolerate_output_trouble
from kgops.supervisor.launch import as_recorded, child_command, fallbacks_below, launch, must_be_possible
from kgops.supervisor.pending import folders_past_the_record
from kgops.supervisor.plan_job import Planned, describe_changes, refuse_what_cannot_fit
from kgops.supervisor.plan_per_gpu import Placement, plan_here
from kgops.views.training_run import names_a_run, with_run
from storage import reports, runs
from storage.database import Connection
from storage.errors import DatabaseMissing

F = TypeVar("F", bound=Callable[..., Any])


PLACE_OPTIONS = (
    click.option("--on", type=click.Choice(PLACES), help="Run it there: Slurm's nodes, or a Ray cluster."),
    click.option("--partition", help="Slurm's partition."),
    click.option("--time", "time_limit", metavar="HH:MM:SS", help="Time to ask Slurm for."),
    click.option("--gres", metavar="gpu:1", help="GPUs to ask Slurm for."),
    click.option("--cpus", type=click.IntRange(1), help="CPUs to ask Slurm for, for each task."),
    click.option("--mem", metavar="16G", help="Host memory to ask Slurm for."),
    click.option("--account", help="Slurm's account to charge."),
    click.option("--tasks", type=click.IntRange(1), help="Share a TracIn run out to so many tasks there."),
    click.option("--sbatch", multiple=True, metavar="--OPTION=…", help="Any other option of sbatch."),
    click.option(
        "--address", help="Of the Ray cluster; without it a local one for as long as the run lasts."
    ),
)


GPU_OPTION = click.option("--gpu", help="Insist on GPUs: auto, all, or some by index or UUID as in 0,1.")
# What is part of the job, and so of its plan.
JOB_OPTIONS = (
    click.option(
        "--profile",
        help="Named set of option values: auto, cpu, t4, …, or a file; see `kgops profiles`.  [default: auto]",
    ),
    click.option("--label", help="What lists and screens call the run."),
    click.option("--gpu-memory", type=click.IntRange(1), metavar="MIB", help="GPU memory to reserve."),
    click.option(
        "--exclusive",
        is_flag=True,
        default=None,
        help="Share the GPU, or the CPUs, with no other run.",
    ),
    click.option(
        "--attempts", type=click.IntRange(1), help="Workers that may be lost before the run is interrupted."
    ),
    click.option("--grace", type=FiniteRange(0), help="Seconds between asking to stop and killing."),
    click.option(
        "--log-limit", type=FiniteRange(1), metavar="MIB", help="Keep this much of the log, the newest part."
    ),
    click.option(
        "--memory-limit",
        type=click.IntRange(1),
        metavar="MIB",
        help="Host memory each process of the run may have, on the CPU.",
    ),
    click.option(
        "--allow-approximate",
        is_flag=True,
        default=None,
        help="After an out-of-memory, also try what changes results.",
    ),
    *PLACE_OPTIONS,
)
_START_OPTIONS = (
    click.option(
        "--force", is_flag=True, default=None, help="Start it also where it is predicted not to fit."
    ),
    click.option("--tag", "tags", multiple=True, help="Tag the run; may be repeated."),
    click.option(
        "--detach", is_flag=True, default=None, help="Print the run's number and come back at once."
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        default=None,
        help="Print the job, what becomes of its options and the exact command; start nothing.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        default=None,
        help="Print the ended run as JSON on stdout; with --dry-run, the plan.",
    ),
)


def common_options(function: F) -> F:
    """What every kind of job can be given."""
    for option in reversed((JOB_OPTIONS[0], JOB_OPTIONS[1], GPU_OPTION, *JOB_OPTIONS[2:], *_START_OPTIONS)):
        function = option(function)
    return function


def merged(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """`kgops run --profile t4 exec …` means what `kgops run exec --profile t4 …` means."""
    before: dict[str, Any] = ctx.obj or {}
    return {name: before.get(name) if value in (None, ()) else value for name, value in given.items()}


def start(job: Job, given: dict[str, Any]) -> int:
    """Launches the job with what the flags say and follows it; the exit code for the shell."""
    job = with_the_run(with_flags(job, given))
    check_tags(given["tags"])
    if given["dry_run"]:
        show_plan(plan_here(job, find_home(), record()), as_json=bool(given["as_json"]))
        return 0
    session = for_writing()
    number = _launch(session, job, given)
    if given["detach"]:
        say(str(number))
        return 0
    code = follow(session, number, quiet=bool(given["as_json"]))
    if given["as_json"]:
        _print_run(session, number)
    elif job.workload in ("tracin", "pipeline"):
        _print_influences(session, number)
    return code


def launched(job: Job, given: dict[str, Any]) -> int:
    """The number of the run that was started with what the flags say; nobody follows it."""
    check_tags(given["tags"])
    return _launch(for_writing(), with_the_run(with_flags(job, given)), given)


def with_the_run(job: Job) -> Job:
    """With the data and the model of the run that the job names, whoever asks: one that starts it, one that shows its
    plan."""
    if not names_a_run(job):
        return job
    session = existing()
    return with_run(session.home, session.conn, job)


def _launch(session: Session, job: Job, given: dict[str, Any]) -> int:
    placed = plan_here(job, session.home, session.conn)
    planned = placed.planned
    for line in how_it_fits(placed) if planned.target.on_gpu else ():
        tell(f"Note: {line}")
    for choice in _told(planned):
        tell(f"Note: {one_line(str(choice))}")
    if not given["force"]:
        refuse_what_cannot_fit(planned)
    for name in folders_past_the_record(session.home, session.conn):
        tell(f"Warning: runs/{name} has no row in the database: `kgops doctor --rebuild` gives it back.")
    number = launch(session.home, session.conn, planned, _warn, each=placed.each)
    tolerate_output_trouble()  # whoever is told that it failed would start it again
    if given["tags"]:
        reports.change_tags(session.conn, number, add=list(given["tags"]), remove=[])
    return number


def _warn(text: str) -> None:
    tell(f"Warning: {text}.")


def show_plan(placed: Placement, *, as_json: bool) -> None:
    """The job, with all that is known of its run before it starts."""
    planned = placed.planned
    job = as_recorded(planned.job)
    tried, left = fallbacks_below(planned)
    refused = refusal(planned)
    if as_json:
        print_json(
            {
                "job": job.as_table(),
                "options": [choice.as_table() for choice in planned.choices],
                "predicted_mib": planned.predicted_mib,
                "unknown": planned.unknown,
                "now": placed.fit.state,
                "verdict": placed.fit.words,
                "elsewhere": placed.differences,
                "disk": None if planned.disk is None else planned.disk.as_table(),
                "fallbacks": [fallback.as_table() for fallback in tried],
                "refused": None if refused is None else refused.message,
                "command": child_command(planned.job),
            }
        )
        return
    changed = [one_line(f"{choice}, by {choice.chosen_by}") for choice in planned.choices]
    changed += [*how_it_fits(placed), disk_line(planned)]
    changed += [] if refused is None else [one_line(f"would not start here: {refused.message}")]
    changed += [f"after an out-of-memory: {fallback}" for fallback in tried]
    changed += [
        f"not tried after an out-of-memory: {one}" for one in passed_over([r.as_table() for r in left])
    ]
    changed += [*sbatch_lines(planned.job), shlex.join(child_command(planned.job))]
    text = "\n".join([job.as_toml().rstrip(), *(f"# {line}" for line in changed)])
    say(lines(text) if sys.stdout.isatty() else text)


def refusal(planned: Planned) -> KgopsError | None:
    """What would keep the job from starting here."""
    try:
        must_be_possible(planned.job)
        refuse_what_cannot_fit(planned)
    except (Usage, WontFit) as error:
        return error
    return None


def how_it_fits(placed: Placement) -> list[str]:
    """The prediction, whether it fits the GPU as it is now, and what is otherwise on others it may get."""
    planned = placed.planned
    lines = [prediction(planned), *_of_profile(planned), *_now(placed)]
    return [one_line(line) for line in (*lines, *placed.differences)]


def _of_profile(planned: Planned) -> list[str]:
    """Where the GPU picked it."""
    return (
        [f"profile {planned.job.profile}, for the {planned.target.title}"] if planned.profile_from_gpu else []
    )


def _now(placed: Placement) -> list[str]:
    if placed.planned.best is None and placed.fit.state != "later":
        return []
    near = placed.nearest_now
    with_it = (
        f"; fits now with {describe_changes(near.changes)} ({near.effect}), {near.need_mib:,.0f} MiB"
        if near
        else ""
    )
    return [f"{placed.fit.words}{with_it}"]


def prediction(planned: Planned) -> str:
    """`predicted: 215 MiB of 14,909 on Tesla T4`, or why there is none."""
    if planned.predicted_mib is None:
        return f"memory: not predicted ({planned.unknown})"
    room = planned.target.room_mib
    of = f" of {room:,.0f}" if room is not None else ""
    only = f", {planned.predicted_for}" if planned.predicted_for else ""
    return f"memory: {planned.predicted_mib:,.0f} MiB predicted{of} on {planned.target.title}{only}"


def _told(planned: Planned) -> list[Choice]:
    """What becomes of options otherwise than asked, before any worker sees them."""
    return [choice for choice in planned.choices if choice.is_corrected or choice.chosen_by == "planner"]


def record() -> Connection | None:
    """What has been learned, where there is a record; a dry run makes none."""
    try:
        return for_reading().conn
    except DatabaseMissing:
        return None


def _print_run(session: Session, number: int) -> None:
    from kgops.cli.show import as_table

    run = runs.get(session.conn, number)
    if run is not None:
        print_json(as_table(session, run))


def _print_influences(session: Session, number: int) -> None:
    from kgops.cli.influences import summary

    run = runs.get(session.conn, number)
    if run is not None and run.state == "succeeded":
        for line in summary(session, run):
            say(line)


def with_flags(job: Job, given: dict[str, Any]) -> Job:
    """The job with every flag that was given; all of it is checked again as one job."""
    table = job.as_table()
    for name in ("profile", "label"):
        if given[name] is not None:
            table[name] = given[name]
    flags = {
        "gpu": {"wanted": given["gpu"], "memory_mib": given["gpu_memory"], "exclusive": given["exclusive"]},
        "limits": {
            "attempts": given["attempts"],
            "grace_s": given["grace"],
            "log_mib": given["log_limit"],
            "memory_mib": given["memory_limit"],
            "allow_approximate": given["allow_approximate"],
        },
        "on": {
            "where": given["on"],
            "partition": given["partition"],
            "time": given["time_limit"],
            "gres": given["gres"],
            "cpus": given["cpus"],
            "memory": given["mem"],
            "account": given["account"],
            "tasks": given["tasks"],
            "options": list(given["sbatch"] or ()) or None,
            "address": given["address"],
        },
    }
    for part, values in flags.items():
        table[part] = table.get(part, {}) | {
            name: value for name, value in values.items() if value is not None
        }
    try:
        return read_job(table, "the job with these flags")
    except BadJob as error:
        error.hint = error.hint or "`--dry-run` prints the job"
        raise
