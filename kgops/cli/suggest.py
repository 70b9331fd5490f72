"""`kgops suggest`: plan a job without starting it: options, memory, disk and time, with reasons."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from kgops.cli import run_workload
from kgops.cli.groups import ByWorkload, of_trainings
from kgops.cli.job_options import add_options
from kgops.cli.launching import job_flags, record, refusal, with_flags, with_the_run
from kgops.cli.output import print_json, say, say_lines, say_result
from kgops.cli.session import for_reading
from kgops.cli.suggest_page import accuracy_sentences, accuracy_table, as_table, page
from kgops.errors import KgopsError, Usage
from kgops.gpus.known import known_by_short_name
from kgops.jobs.job import Job
from kgops.planning.filtering_preview import preview_filtering
from kgops.planning.plan_per_gpu import Placement, as_refused, plan_for, plan_here
from kgops.planning.resolve import on_the_cpu
from kgops.planning.start import must_have_gpus
from kgops.planning.targets import Target, find_targets, gpus_here
from kgops.settings import find_home
from kgops.workloads.job_files import read_job, read_job_table
from kgops.workloads.registry import WORKLOADS as WORKLOAD_OF
from kgops.workloads.registry import timed_by_epoch
from storage import predictions
from storage.errors import DatabaseMissing

WORKLOADS = {
    name: f"Plan a job of `kgops {name}`; takes its flags."
    for name, one in WORKLOAD_OF.items()
    if one.has_flags
}

Plan = tuple[Job, Placement, KgopsError | None]  # as requested, the plan, and why it would not start


class _Workloads(ByWorkload):
    summaries = WORKLOADS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, of_trainings(self, args))

    def find(self, name: str) -> click.Command:
        return _command_for(name)

    def of_file(self) -> click.Command:
        return _file


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            *job_flags("GPU to plan for: index, UUID, all, a model name (t4, a100-40, …), or cpu."),
            click.option(
                "--details",
                is_flag=True,
                help="Show the parts of the memory estimate and the sources of reasons.",
            ),
            click.option("--json", "as_json", is_flag=True, help="JSON on stdout."),
            # Of a `kgops run` that is planned first: a plan has no use for them.
            click.option("--tag", multiple=True, hidden=True, expose_value=False),
            click.option("--detach", is_flag=True, hidden=True, expose_value=False),
            click.option("--force", is_flag=True, hidden=True, expose_value=False),
        )
    ):
        function = option(function)
    return function


@click.group(
    cls=_Workloads,
    invoke_without_command=True,
    subcommand_metavar="[WORKLOAD|FILE.toml] [ARGS]...",
    epilog="\b\nExample:  kgops suggest train --dataset nations --gpu t4 --details",
)
@click.option("--accuracy", is_flag=True, help="Show the errors of past memory predictions.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, accuracy: bool, as_json: bool) -> None:
    """Plan a job without starting it: options with reasons, memory estimate, time, and alternatives that fit.

    The GPU need not be in this machine: `--gpu t4` plans for a T4.
    """
    if ctx.invoked_subcommand is not None and (accuracy or as_json):
        raise Usage(
            "--accuracy goes without a job, and --json of a plan behind it", "kgops suggest train … --json"
        )
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
    """Plan the job in a file, or of standard input (`-`)."""
    table, source = read_job_table(path)
    ctx.exit(_suggest(read_job(table, source), given))


def _command_for(name: str) -> click.Command:
    if WORKLOAD_OF[name].words is None:
        own = importlib.import_module(f"kgops.cli.run_{name}")
        parser, job_of, flags, example = own.EitherSpelling, own.job_of, own.FLAGS, own.PLAN_EXAMPLE
    else:
        parser, flags = run_workload.parser_of(name), run_workload.flags_of(name)
        job_of, example = partial(run_workload.job_of, name), run_workload.words_of(name).plan_example

    @click.command(
        name, cls=parser, epilog=f"\b\nExample:  kgops suggest {name} {example}", help=WORKLOADS[name]
    )
    @_options
    @click.pass_context
    def planned(ctx: click.Context, /, **given: Any) -> None:
        ctx.exit(_suggest(job_of(given), given))

    command: click.Command = planned
    add_options(command, flags)
    return command


def _suggest(job: Job, given: dict[str, Any]) -> int:
    """Print the plan for each target; exit code 3 if one does not fit or would not start."""
    home = find_home()
    plans = [_plan_for(one, target) for one, target in _jobs_and_targets(job, given)]
    if given["as_json"]:
        print_json(
            [
                as_table(requested, one, refused, preview_filtering(one.planned, home))
                for requested, one, refused in plans
            ]
        )
    for i, (requested, one, refused) in enumerate(() if given["as_json"] else plans):
        lines = page(requested, one, refused, preview_filtering(one.planned, home), explain=given["details"])
        say_lines((*([""] if i else []), *lines))
    return 0 if all(_fits(one) for _, one, _ in plans) else 3


def _fits(placed: Placement) -> bool:
    """Return False only if the job is predicted not to fit."""
    disk = placed.planned.disk
    return placed.fit.fits and (disk is None or disk.fits)


def _jobs_and_targets(job: Job, given: dict[str, Any]) -> list[tuple[Job, Target | None]]:
    """Return the job with its flags for each target. Target None means the device that `kgops run` would choose."""
    gpu, own = given["gpu"], {**given, "gpu": None}
    if gpu == "cpu":
        requested = with_flags(job, own)
        return [(replace(on_the_cpu(requested), gpu=replace(requested.gpu, wanted=None)), None)]
    if gpu is not None and known_by_short_name(gpu) is not None and not gpus_here(gpu):
        requested = with_flags(job, given)
        if on_the_cpu(requested) == requested:  # `--device cpu` would run on it, whatever GPU is named
            return [(replace(requested, gpu=replace(requested.gpu, wanted=None)), None)]
        return [(requested, target) for target in find_targets(gpu)]
    here = find_targets(gpu) if gpu == "all" else []
    if gpu not in (None, "auto", "all") and not gpus_here(gpu):
        find_targets(gpu)  # raises: no GPU has that name
    if here:  # one plan per GPU, whose command names that GPU
        return [(with_flags(job, {**given, "gpu": target.gpu_name}), None) for target in here]
    return [(with_flags(job, given), None)]


def _plan_for(job: Job, target: Target | None) -> Plan:
    """Plan a job for a target, which may be a GPU of another machine. The command names the profile, unless the GPUs
    here differ: then the GPU that the run gets chooses it. It names no GPU of another machine, and a run by number."""
    typed, job = job, with_the_run(job)
    if target is None:
        must_have_gpus(job)
        placed = as_refused(plan_here(job, find_home(), record(), thorough=True))
    else:
        placed = plan_for(job, target, find_home(), record(), thorough=True)
    requested = typed if placed.mixed else replace(typed, profile=placed.planned.job.profile)
    if target is not None:
        requested = replace(requested, gpu=replace(requested.gpu, wanted=None))
    refused = refusal(placed.planned) if target is None else None
    return requested, placed, refused


def _accuracy(as_json: bool) -> None:
    try:
        forecasts = predictions.newest(for_reading().conn, by_epoch=timed_by_epoch())
    except DatabaseMissing:
        forecasts = []
    say_result(as_json, lambda: accuracy_table(forecasts), lambda: accuracy_sentences(forecasts))
