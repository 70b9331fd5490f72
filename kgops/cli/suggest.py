"""`kgops suggest`: what a job will need, what to set so that it fits and is fast, and why."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kgops.cli.by_workload import ByWorkload
from kgops.cli.job_options import add_options
from kgops.cli.launching import JOB_OPTIONS, record, refusal, with_flags, with_the_run
from kgops.cli.output import print_json, say
from kgops.cli.session import for_reading
from kgops.cli.suggest_page import accuracy_page, accuracy_table, as_table, page
from kgops.errors import KgopsError
from kgops.gpus.known import known_by_short_name
from kgops.jobs.job import Job, read_job_file
from kgops.planning.resolve import on_the_cpu
from kgops.planning.targets import Target, find_targets, gpus_meant
from kgops.settings import find_home
from kgops.supervisor.filtering_preview import preview_filtering
from kgops.supervisor.plan_per_gpu import Placement, plan_for, plan_here
from storage import predictions
from storage.errors import DatabaseMissing

WORKLOADS: dict[str, str] = {
    "train": "Plan a training; takes the flags of `kgops run train`.",
    "tracin": "Plan a TracIn run; takes the flags of `kgops run tracin`.",
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
            *JOB_OPTIONS,
            click.option(
                "--gpu",
                metavar="GPU",
                help="A GPU here by index or UUID, `all` of them, one by name (t4, a100-40, …), or cpu.",
            ),
            click.option(
                "--explain",
                is_flag=True,
                help="Every part of the memory estimate, and where reasons come from.",
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
    """Plan a job without starting it: options with reasons, predicted memory by part, pace, what else would fit.

    Works without the GPU in question: GPUs are known by name.
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
    home, plans = find_home(), [_plan_for(one, target) for one, target in _places(job, given)]
    if given["as_json"]:
        print_json(
            [
                as_table(asked, one, refused, preview_filtering(one.planned, home))
                for asked, one, refused in plans
            ]
        )
    for i, (asked, one, refused) in enumerate(() if given["as_json"] else plans):
        told = page(asked, one, refused, preview_filtering(one.planned, home), explain=given["explain"])
        for line in (*([""] if i else []), *told):
            say(line)
    return 0 if all(_fits(one) for _, one, _ in plans) else 3


def _fits(placed: Placement) -> bool:
    """Of what nobody can predict nobody knows that it will not."""
    disk = placed.planned.disk
    return placed.fit.fits and (disk is None or disk.fits)


def _places(job: Job, given: dict[str, Any]) -> list[tuple[Job, Target | None]]:
    """The job with every flag as `kgops run` would read it, for each place to plan for. No target: wherever that run
    would be."""
    gpu, own = given["gpu"], {**given, "gpu": None}
    if gpu == "cpu":
        asked = with_flags(job, own)
        return [(replace(on_the_cpu(asked), gpu=replace(asked.gpu, wanted=None)), None)]
    if gpu is not None and known_by_short_name(gpu) is not None and not gpus_meant(gpu):
        asked = with_flags(job, given)
        return [(asked, target) for target in find_targets(gpu)]
    here = find_targets(gpu) if gpu == "all" else []
    if gpu not in (None, "auto", "all") and not gpus_meant(gpu):
        find_targets(gpu)  # which raises, since none is of that name
    if here:  # a plan for each, whose command asks for that one
        return [(with_flags(job, {**given, "gpu": target.gpu_name}), None) for target in here]
    return [(with_flags(job, given), None)]


def _plan_for(job: Job, target: Target | None) -> tuple[Job, Placement, KgopsError | None]:
    """On a GPU that is not here as if it ran there: rules are asked about that GPU, not about this machine's. The
    profile is named in the command, but where GPUs differ: there it is left to the one that the run gets."""
    job = with_the_run(job)
    if target is None:
        placed = plan_here(job, find_home(), record(), thorough=True)
    else:
        placed = plan_for(job, target, find_home(), record(), thorough=True)
    asked = job if placed.mixed else replace(job, profile=placed.planned.job.profile)
    return asked, placed, refusal(placed.planned) if target is None else None


def _accuracy(as_json: bool) -> None:
    try:
        seen = predictions.newest(for_reading().conn)
    except DatabaseMissing:
        seen = []
    if as_json:
        print_json(accuracy_table(seen))
        return
    for line in accuracy_page(seen):
        say(line)
