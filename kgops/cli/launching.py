"""Common flags of all `kgops run` commands; plan, launch and follow a job."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from kgops.cli.command_line import as_command
from kgops.cli.follow import follow
from kgops.cli.job_options import click_decorators, given_values
from kgops.cli.output import print_json, say, say_lines, tell
from kgops.cli.session import Session, existing, for_reading, for_writing
from kgops.cli.suggest_page import table_of_plan
from kgops.cli.tag import check_tags
from kgops.cluster.script import sbatch_lines
from kgops.errors import BadJob, KgopsError, Usage, WontFit
from kgops.jobs.job import Job
from kgops.jobs.option import Option
from kgops.jobs.run_options import CLUSTER_OPTIONS, GPU_OPTIONS, LIMITS, NAMES
from kgops.jobs.text import lines, one_line
from kgops.planning import profiles
from kgops.planning.filtering_preview import FilteringPreview, preview_filtering
from kgops.planning.oom_fallbacks import skipped_lines
from kgops.planning.plan_job import Planned, refuse_what_cannot_fit
from kgops.planning.plan_per_gpu import Placement, as_refused, cannot_start, plan_here
from kgops.planning.resolve import Choice
from kgops.planning.start import as_recorded, child_command, fallbacks_below, launch, must_have_gpus
from kgops.present.asking import names_a_run, with_run
from kgops.present.plan_sections import disk_text
from kgops.present.plan_words import starts_now, suggested, verdict
from kgops.settings import find_home
from kgops.streams import tolerate_output_errors
from kgops.supervisor.pending import folders_past_the_record
from kgops.workloads.job_files import read_job
from kgops.workloads.outputs import must_be_free
from kgops.workloads.results import leaves
from storage import reports, runs
from storage.database import Connection
from storage.errors import DatabaseMissing
from storage.runs import Run

F = TypeVar("F", bound=Callable[..., Any])


# Tables of a job file whose flags every workload has; the first is the job itself.
_TABLES: dict[str, tuple[Option, ...]] = {
    "": NAMES,
    "gpu": GPU_OPTIONS,
    "limits": LIMITS,
    "on": CLUSTER_OPTIONS,
}
_START_OPTIONS = (
    click.option(
        "--force",
        is_flag=True,
        default=None,
        help="Start even if the run is predicted not to fit. Replace output files that kgops wrote. Ask a model about "
        "other triples than its training's.",
    ),
    click.option("--tag", "tags", multiple=True, help="Tag the run; may be repeated."),
    click.option("--detach", is_flag=True, default=None, help="Print the run number and return at once."),
    click.option(
        "--host",
        metavar="NAME",
        help="Start it on a host of `kgops hosts`. Paths are paths there, and --run N is a run there.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        default=None,
        help="Print the job, its applied options and the worker command; start nothing.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        default=None,
        help="Print the ended run as JSON on stdout; with --detach, the run as it is then; with --dry-run, the plan.",
    ),
)


def common_options(function: F) -> F:
    """Add the flags that every workload has."""
    for decorator in reversed((*job_flags(), *_START_OPTIONS)):
        function = decorator(function)
    return function


def job_flags(gpu_help: str = "") -> list[Callable[[F], F]]:
    """Return the flags that are part of the job, and so of its plan."""
    gpu, *others = GPU_OPTIONS
    gpu = gpu.adapted(help=gpu_help or gpu.help)
    return click_decorators((*NAMES, gpu, *others, *LIMITS, *CLUSTER_OPTIONS))


def merged(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Merge flags given before the workload: `kgops run --profile t4 exec …` equals `kgops exec --profile t4 …`."""
    before: dict[str, Any] = ctx.obj or {}
    return {name: before.get(name) if value in (None, ()) else value for name, value in given.items()}


def start(job: Job, given: dict[str, Any]) -> int:
    """Launch the job with the given flags, follow it and return the exit code."""
    job = with_flags(job, given)
    check_tags(given["tags"])
    if given["host"] is not None:
        from kgops.cli.on_hosts import start_on_host

        return start_on_host(job, given["host"], given)
    typed, job = job, with_the_run(job)
    if given["dry_run"]:
        must_have_gpus(job)
        home = find_home()
        placed = plan_here(job, home, record())
        show_plan(placed, preview_filtering(placed.planned, home), as_json=bool(given["as_json"]))
        if not given["as_json"]:
            say_lines(_elsewhere(typed, placed.planned))
        return 0
    session = for_writing()
    number = _launch(session, job, given)
    if given["detach"] and not given["as_json"]:
        say(str(number))
        return 0
    code = 0 if given["detach"] else follow(session, number, quiet=bool(given["as_json"]))
    run = runs.get(session.conn, number)
    if run is None:  # deleted meanwhile
        return code
    if given["as_json"]:
        from kgops.cli.show import as_table

        print_json(as_table(session, run))
    elif run.state == "succeeded":
        _print_results(session, run)
    return code


def launched(job: Job, given: dict[str, Any]) -> int:
    """Launch the job with the given flags and return the run number, without following it."""
    _check_series(given)
    return _launch(for_writing(), with_the_run(with_flags(job, given)), given)


def planned(job: Job, given: dict[str, Any]) -> Placement:
    """Plan the job with the given flags as `launched` would start it."""
    _check_series(given)
    return plan_here(with_the_run(with_flags(job, given)), find_home(), record())


def _check_series(given: dict[str, Any]) -> None:
    """Check the flags of a run that is one of a series."""
    if given["host"] is not None:
        raise Usage("--host starts one run, not a series", "start each on its own: kgops run … --host NAME")
    check_tags(given["tags"])


def with_the_run(job: Job) -> Job:
    """Return the job with the data and the model of the training run that it names, if any."""
    if not names_a_run(job):
        return job
    session = existing()
    return with_run(session.home, session.conn, job)


def _launch(session: Session, job: Job, given: dict[str, Any]) -> int:
    must_have_gpus(job)
    placed = plan_here(job, session.home, session.conn)
    planned = placed.planned
    if placed.unused is not None:
        tell(f"Warning: {one_line(str(placed.unused))}.")
    for line in how_it_fits(placed) if planned.target.on_gpu else ():
        tell(f"Note: {line}")
    for choice in _changed_options(planned):
        tell(f"Note: {one_line(str(choice))}")
    if not given["force"]:
        refuse_what_cannot_fit(planned)
    for name in folders_past_the_record(session.home, session.conn):
        tell(f"Warning: runs/{name} has no row in the database: `kgops doctor --rebuild` restores it.")
    number = launch(
        session.home,
        session.conn,
        planned,
        _warn,
        each=placed.each,
        forced=bool(given["force"]),
        repeats=given.get("repeats"),
    )
    tolerate_output_errors()  # after a failure message the user would start it again
    if given["tags"]:
        reports.change_tags(session.conn, number, add=list(given["tags"]), remove=[])
    return number


def _warn(text: str) -> None:
    tell(f"Warning: {text}.")


def show_plan(placed: Placement, filtering: FilteringPreview | None = None, *, as_json: bool) -> None:
    """Print what is suggested, then the job with its plan: options, memory and disk, OOM fallbacks, command."""
    if as_json:
        print_json(plan_table(placed, filtering))
        return
    planned = placed.planned
    placed = as_refused(placed)
    job = as_recorded(planned.job)
    tried, skipped = fallbacks_below(planned)
    refused = refusal(planned)
    again = None if planned.suggestion is None else planned.suggestion.retrainings
    comments = [one_line(f"{choice}, by {choice.chosen_by}") for choice in planned.choices]
    comments += [*how_it_fits(placed), f"disk: {disk_text(planned)}"]
    comments += [] if again is None else [f"{again}"]
    if refused is not None and refused.message not in placed.fit.words:
        comments.append(one_line(f"would not start here: {refused.message}"))
    comments += [f"after an out-of-memory: {fallback}" for fallback in tried]
    comments += [
        f"not tried after an out-of-memory: {one}" for one in skipped_lines([r.as_table() for r in skipped])
    ]
    comments += [*sbatch_lines(planned.job), shlex.join(child_command(planned.job))]
    sentence = suggested(planned, filtering)
    head = [f"# {one_line(str(placed.unused))}"] if placed.unused is not None else []
    head += [] if sentence is None else [f"# {sentence}"]
    if any(choice.requested not in (None, "auto", choice.applied) for choice in planned.choices):
        head.append("# The job has the requested values. The lines with → below say what applies here.")
    head += [""] if head else []
    text = "\n".join([*head, job.as_toml().rstrip(), *(f"# {line}" for line in comments)])
    say(lines(text) if sys.stdout.isatty() else text)


def _elsewhere(typed: Job, planned: Planned) -> list[str]:
    """The command that plans the job for the GPU of its profile, where it is planned for another device."""
    gpus = profiles.find(typed.profile).gpus if typed.profile is not None else ()
    known = planned.target.known
    if not gpus or (known is not None and known.short_name in gpus):
        return []
    words = as_command(replace(typed, gpu=replace(typed.gpu, wanted=None))) or ["kgops", "FILE.toml"]
    command = shlex.join(["kgops", "suggest", *words[1:], "--gpu", gpus[0]])
    return [one_line(f"# to plan for a {gpus[0]}:  {command}", len(command) + 99)]


def plan_table(placed: Placement, filtering: FilteringPreview | None = None) -> dict[str, Any]:
    """Return the plan as a table for JSON."""
    planned = placed.planned
    tried, _ = fallbacks_below(planned)
    return {
        **table_of_plan(as_refused(placed), refusal(planned), filtering),
        "options": [choice.as_table() for choice in planned.choices],
        "predicted_mib": planned.predicted_mib,
        "disk": None if planned.disk is None else planned.disk.as_table(),
        "fallbacks": [fallback.as_table() for fallback in tried],
        "command": child_command(planned.job),
    }


def refusal(planned: Planned) -> KgopsError | None:
    """Return the error with which the job would be refused here, or None."""
    if (error := cannot_start(planned)) is not None:
        return error
    try:
        must_be_free(planned.job, Path(planned.job.settings.get("cwd") or "."))
        refuse_what_cannot_fit(planned)
    except (Usage, WontFit) as error:
        return error
    return None


def how_it_fits(placed: Placement) -> list[str]:
    """Return the memory estimate, whether it fits the GPU now, and differences on other candidate GPUs."""
    planned = placed.planned
    lines = [prediction(planned), *_profile_note(planned), *_now(placed)]
    return [one_line(line) for line in (*lines, *placed.differences)]


def _profile_note(planned: Planned) -> list[str]:
    """Name the profile if it was chosen by the GPU."""
    return (
        [f"profile {planned.job.profile}, for the {planned.target.title}"] if planned.profile_from_gpu else []
    )


def _now(placed: Placement) -> list[str]:
    if placed.planned.best is None and placed.fit.state not in ("later", "never"):
        return []
    return ["; ".join(filter(None, (verdict(placed), starts_now(placed))))]


def prediction(planned: Planned) -> str:
    """Return `memory: 215 MiB predicted of 14,909 on Tesla T4`, or why it is not predicted."""
    if planned.predicted_mib is None:
        return f"memory: not predicted ({planned.unknown})"
    room = planned.target.room_mib
    of = f" of {room:,.0f}" if room is not None else ""
    of += " that --memory-limit allows" if planned.target.is_limited else ""
    only = f", {planned.predicted_for}" if planned.predicted_for else ""
    return f"memory: {planned.predicted_mib:,.0f} MiB predicted{of} on {planned.target.title}{only}"


def _changed_options(planned: Planned) -> list[Choice]:
    """Return options whose applied value differs from the requested one, or that the planner set."""
    return [choice for choice in planned.choices if choice.is_corrected or choice.chosen_by == "planner"]


def record() -> Connection | None:
    """Return the database, or None: a dry run does not create one."""
    try:
        return for_reading().conn
    except DatabaseMissing:
        return None


def _print_results(session: Session, run: Run) -> None:
    """What a run of its workload leaves for people: answers or explanations, and influences."""
    from kgops.cli import influences, show

    folder = session.folder(run).results
    if leaves(run.workload, "explanations"):
        say_lines(show.explanations(folder))
    elif leaves(run.workload, "answers"):
        say_lines(show.answers(folder))
    if leaves(run.workload, "influences"):
        say_lines(influences.summary(session, run))


def with_flags(job: Job, given: dict[str, Any]) -> Job:
    """Return the job with the given flags; the result is validated as one job."""
    given, table = dict(given), job.as_table()
    for part, options in _TABLES.items():
        values = given_values(options, given)
        table |= {part: table.get(part, {}) | values} if part else values
    try:
        return read_job(table, "the job with these flags")
    except BadJob as error:
        error.hint = error.hint or "`--dry-run` prints the job"
        raise
