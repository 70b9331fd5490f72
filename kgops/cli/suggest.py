"""`kgops suggest`: what a job will need, what to set so that it fits and is fast, and why."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kgops.cli.by_workload import ByWorkload
from kgops.cli.key_options import add_options
from kgops.cli.output import print_json, say
from kgops.cli.session import for_reading
from kgops.cli.suggest_page import accuracy_page, accuracy_table, as_table, page
from kgops.errors import Usage
from kgops.jobs.job import Job, read_job_file
from kgops.plans import profiles
from kgops.plans.targets import Target, find_targets, gpus_here, torch_is_for_cpus
from kgops.runs.filtering import filtered
from kgops.runs.per_gpu import Placed, plan_for, plan_here
from kgops.runs.source import names_a_run, with_run
from kgops.settings import Home, find_home
from storage import forecasts
from storage.database import Connection
from storage.errors import DatabaseMissing

WORKLOADS: dict[str, str] = {
    "train": "Plan a training; takes the flags of `kgops run train`.",
    "tracin": "Plan a tracing; takes the flags of `kgops run tracin`.",
    "regress": "Plan a regression; takes the flags of `kgops run regress`.",
}
_EXAMPLES = {
    "train": "--dataset umls --gpu t4",
    "tracin": "--run 1 --gpu t4",
    "regress": "--config colab_optimized_full --gpu t4",
}


class _Workloads(ByWorkload):
    kinds = WORKLOADS

    def find(self, workload: str) -> click.Command:
        return _command_for(workload)

    def of_file(self) -> click.Command:
        return _file


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option(
                "--profile", help="Take this one instead of the GPU's own; what it fixes stays fixed."
            ),
            click.option(
                "--gpu",
                metavar="CARD",
                help="A card here by index or UUID, `all` of them, one by name (t4, a100-40, …), or cpu.",
            ),
            click.option(
                "--explain", is_flag=True, help="Every part of the budget, and where reasons come from."
            ),
            click.option("--json", "as_json", is_flag=True, help="JSON on stdout."),
        )
    ):
        function = option(function)
    return function


@click.group(
    cls=_Workloads,
    invoke_without_command=True,
    epilog="\b\nExample:  kgops suggest train --dataset nations --gpu t4 --explain",
)
@click.option("--accuracy", is_flag=True, help="How good predictions have been over the runs so far.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, accuracy: bool, as_json: bool) -> None:
    """Plan a job without starting it: levers with reasons, predicted memory by part, pace, what else would fit.

    Works without the card in question: cards are known by name.
    """
    if accuracy:
        _accuracy(as_json)
        ctx.exit(0)
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())


@click.command("FILE", hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
@_options
@click.pass_context
def _file(ctx: click.Context, /, path: Path, **given: Any) -> None:
    """Plan the job in a file."""
    ctx.exit(_suggest(read_job_file(path), given))


def _command_for(workload: str) -> click.Command:
    room = importlib.import_module(f"kgops.cli.run_{workload}")

    @click.command(workload, cls=type(room.command), epilog=_example(workload), help=WORKLOADS[workload])
    @_options
    @click.pass_context
    def planned(ctx: click.Context, /, **given: Any) -> None:
        ctx.exit(_suggest(room.job_of(given), given))

    found: click.Command = planned
    add_options(found, room.FLAGS)
    return found


def _example(workload: str) -> str:
    flags = _EXAMPLES[workload]
    return f"\b\nExample:  kgops suggest {workload} {flags}"


def _suggest(job: Job, given: dict[str, Any]) -> int:
    """Exit code 3 where nothing that may be chosen fits."""
    home = find_home()
    try:
        conn = for_reading().conn
    except DatabaseMissing:
        conn = None
    if names_a_run(job):
        if conn is None:
            raise Usage("there are no runs yet", "train one first: kgops run train --dataset nations")
        job = with_run(home, conn, job)
    asked = replace(job, profile=given["profile"] or job.profile)
    plans = _plans(asked, given["gpu"], home, conn)
    printed = [_to_print(asked, one, given["gpu"]) for one in plans]
    if given["as_json"]:
        tables = [
            as_table(job, one, filtered(one.planned, home)) for job, one in zip(printed, plans, strict=True)
        ]
        print_json(tables)
        return _code(plans)
    for i, (job, one) in enumerate(zip(printed, plans, strict=True)):
        told = page(job, one, filtered(one.planned, home), explain=given["explain"])
        for line in (*([""] if i else []), *told):
            say(line)
    return _code(plans)


def _code(plans: list[Placed]) -> int:
    return 0 if all(one.fit.fits for one in plans) else 3


def _plans(job: Job, gpu: str | None, home: Home, conn: Connection | None) -> list[Placed]:
    """For every GPU that was named; else for the one that a run would get now, also where torch can use none."""
    if gpu not in (None, "auto"):
        return [_plan(job, one, home, conn) for one in find_targets(gpu)]
    found = gpus_here(job.card.gpu)
    if found and torch_is_for_cpus():
        return [_plan(job, max(found, key=lambda one: one.usable_mib or 0), home, conn)]
    asked = job if found else replace(job, profile=job.profile or profiles.AUTO)
    return [plan_here(asked, home, conn, thorough=True)]


def _plan(job: Job, target: Target, home: Home, conn: Connection | None) -> Placed:
    """As if it ran there: rules are asked about that GPU, not about this machine's."""
    profile = job.profile or profiles.for_gpu(target.facts)
    return plan_for(replace(job, profile=profile), target, home, conn, thorough=True)


def _to_print(asked: Job, placed: Placed, gpu: str | None) -> Job:
    """What `kgops run` is told to start this; the profile is left to the GPU that the run gets, where they differ."""
    profile = asked.profile if placed.mixed else placed.planned.job.profile
    if gpu == "cpu" and "device" in asked.settings:
        return replace(asked, profile=profile, settings={**asked.settings, "device": "cpu"})
    named = None if gpu in (None, "auto", "cpu") else placed.planned.target.gpu or gpu
    return replace(asked, profile=profile, card=replace(asked.card, gpu=named or asked.card.gpu))


def _accuracy(as_json: bool) -> None:
    try:
        seen = forecasts.newest(for_reading().conn)
    except DatabaseMissing:
        seen = []
    if as_json:
        print_json(accuracy_table(seen))
        return
    for line in accuracy_page(seen):
        say(line)
