"""`kgops sweep`: start one run of a job for each combination of settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kgops.cli import run_workload
from kgops.cli.command_line import job_by_name
from kgops.cli.groups import of_trainings
from kgops.cli.launching import common_options, launched, merged, plan_table, planned, show_plan, with_flags
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import Session, for_writing
from kgops.experiments.variants import read_axis, variants
from kgops.jobs.job import Job
from kgops.jobs.run_options import LONGEST_LABEL
from kgops.jobs.text import one_line
from kgops.workloads.outputs import must_write_apart
from kgops.workloads.registry import WORKLOADS


class _OfTrainings(click.Command):
    """Flags without a job are those of a training."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, of_trainings(self, args))


@click.command(
    "sweep",
    cls=_OfTrainings,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog="\b\nExample:  kgops sweep kinships --vary batch_size=256,512 --vary learning_rate=0.001,0.003",
)
@click.argument("job", metavar="FILE.toml|RUN|RECIPE|train...")
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="NAME=A,B",
    help="Values to combine; may be repeated. `--learning-rate 0.001,0.01` is the same as a flag.",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, job: str, varied: tuple[str, ...], **given: Any) -> None:
    """Start one run for each combination of settings, and return at once. Runs wait until enough GPU memory is free.

    `kgops sweep train --dataset umls --vary …` takes the flags of `kgops train`; the same holds for other workloads.

    NAME is an option, a key of the workload's table (in a pipeline with its stage: train.num_epochs), or a
    {placeholder} of a command. Tag the runs to list them later: `--tag sweep-7`, then `kgops runs tag:sweep-7 --sort
    test_mrr`. Each run has its settings behind its label. Use `kgops bench matrix` to compare speeds. Runs without a
    GPU start all at once; with `--exclusive` they run one after another.
    """
    flags = merged(ctx, given)
    varied += _lists(ctx.args, job)
    session = None if flags["dry_run"] else for_writing()
    jobs = variants(_job(session, job, ctx), [read_axis(text) for text in varied])
    jobs = {name: _named(one, name, flags["label"]) for name, one in jobs.items()}
    must_write_apart(jobs.values(), Path())
    flags = {**flags, "label": None}
    if flags["dry_run"]:
        _show_plans(jobs, flags)
        return
    started = {}
    for name, one in jobs.items():
        started[launched(one, flags)] = name
        if not flags["as_json"]:
            say(f"run {list(started)[-1]}: {name}")
    if flags["as_json"]:
        print_json([{"run": number, "settings": name} for number, name in started.items()])
    numbers = " ".join(map(str, list(started)[:8]))
    tell(
        f"They go on in the background: `kgops runs` lists them. Later, `kgops compare {numbers}` compares them."
    )


def _lists(words: list[str], job: str) -> tuple[str, ...]:
    """Remove `--learning-rate 0.001,0.01` from the words and return `learning_rate=0.001,0.01`. Texts of a workload may
    have commas, and stay."""
    options = WORKLOADS[job].options if job in WORKLOADS else ()
    flags = {one.flag_name(flag): one for one in options for flag in one.flags}
    texts = {name for name, one in flags.items() if one.type in ("str", "strings")}
    varied, others = [], []
    while words:
        word = words.pop(0)
        name, equals, values = word.partition("=")
        values = values if equals else next(iter(words), "")
        if name[:2] == "--" and name not in texts and "," in values and values[:2] != "--":
            varied.append(f"{flags[name].name if name in flags else name[2:].replace('-', '_')}={values}")
            del words[: not equals]
        else:
            others.append(word)
    words[:] = others
    return tuple(varied)


def _job(session: Session | None, name: str, ctx: click.Context) -> Job:
    """The job of a file, a run or a recipe, or of a workload with its flags."""
    if name in WORKLOADS and WORKLOADS[name].words is not None:
        with run_workload.command_of(name).make_context(name, ctx.args, parent=ctx.parent) as flags:
            given = dict(flags.params)
            return with_flags(run_workload.job_of(name, given), given)
    if ctx.args:
        raise click.NoSuchOption(ctx.args[0], ctx=ctx)
    return job_by_name(session, name)


def _named(job: Job, settings: str, label: str | None) -> Job:
    """Return the job under the sweep's label, or its own, with its settings behind it."""
    return replace(job, label=f"{label or job.label} {settings}"[:LONGEST_LABEL])


def _show_plans(jobs: dict[str, Job], flags: dict[str, Any]) -> None:
    """Print what each run of the sweep would be; start nothing."""
    plans = {name: planned(job, flags) for name, job in jobs.items()}
    if flags["as_json"]:
        print_json([{"settings": name, **plan_table(placed)} for name, placed in plans.items()])
        return
    for i, (name, placed) in enumerate(plans.items()):
        say(f"{chr(10) if i else ''}# {one_line(name)}")
        show_plan(placed, as_json=False)


_HELP = {
    "detach": "A sweep returns at once in any case.",
    "as_json": "Print the started runs as JSON; with --dry-run, their plans.",
}
for _param in command.params:
    if isinstance(_param, click.Option):
        _param.help = _HELP.get(_param.name or "", _param.help)
        _param.hidden |= _param.name == "host"  # it starts one run: refused by its name, and so not shown
