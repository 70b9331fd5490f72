"""`kgops run`: start a job given by workload, job file or earlier run; without arguments the default job."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kgops.cli import WORKLOADS, run_workload
from kgops.cli.command_line import job_in_file, job_of_run
from kgops.cli.groups import ByWorkload
from kgops.cli.job_options import GroupedHelp, add_options, click_options, job_table
from kgops.cli.launching import common_options, merged, start
from kgops.cli.output import say_result, tell
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.jobs.job import Job
from kgops.jobs.run_options import LONGEST_LABEL
from kgops.present.formats import value_text
from kgops.workloads.job_files import read_job, with_absolute_paths
from kgops.workloads.registry import WORKLOADS as WORKLOAD_OF
from kgops.workloads.registry import workload_of

DEFAULT_JOB_FILE = "kgops.toml"
DEFAULT_FILES = ("train", "valid", "test")
DEMO = "demo"  # the demo job's label
_CHANGES = "--again"  # the command of `kgops run --again 3 --seed 1`


class _Short(click.Context):
    """Help and errors of `kgops run train` call it `kgops train`."""

    @property
    def command_path(self) -> str:
        if self.parent is not None and self.invoked_subcommand in WORKLOADS:
            return self.parent.command_path
        return super().command_path


class Kinds(ByWorkload):
    """Workloads of `kgops run`."""

    summaries = WORKLOADS
    context_class = _Short

    def find(self, name: str) -> click.Command:
        workload = WORKLOAD_OF.get(name)
        if workload is not None and workload.words is not None:
            return run_workload.command_of(name)
        command: click.Command = importlib.import_module(f"kgops.cli.run_{name}").command
        return command

    def of_file(self) -> click.Command:
        return _file

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`kgops run again 1` is `kgops run --again 1`."""
        return super().parse_args(ctx, ["--again", *args[1:]] if args[:1] == ["again"] else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Flags of a workload change the job that --again repeats."""
        if len(args[0]) < 2 or not args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        if (again := ctx.params.get("again")) is None:
            raise click.NoSuchOption(args[0].partition("=")[0], ctx=ctx)
        return _CHANGES, _changes_of(again, args[0]), args


@click.group(
    cls=Kinds,
    invoke_without_command=True,
    subcommand_metavar="[WORKLOAD|FILE.toml] [ARGS]...",
    context_settings={"ignore_unknown_options": True},
    epilog="\b\nExample:  kgops run --again 1 --seed 1",
)
@common_options
@click.option(
    "--again",
    metavar="RUN",
    help="Repeat the job of this run, with the flags that follow: --again 3 --seed 1.",
)
@click.pass_context
def command(ctx: click.Context, /, again: str | None, **given: Any) -> None:
    """Start a job and follow it; Ctrl-C asks whether to detach or stop.

    Without arguments, start the job in ./kgops.toml. Without that file, train on ./train.txt, valid.txt and test.txt
    and trace ten test triples. Without those, start the demo job. A file with workload = "pipeline" trains, predicts
    and traces as one run.
    """
    ctx.obj = given
    if ctx.invoked_subcommand is not None:
        if again is not None and ctx.invoked_subcommand != _CHANGES:
            raise Usage("--again and a workload or job file exclude each other")
        return
    if again is not None and ":" in again:
        ctx.exit(_again_there(again, given))
    if again is not None:
        session = existing()
        given["repeats"] = session.run(again).id
        job = job_of_run(session, str(given["repeats"]))
    elif Path(DEFAULT_JOB_FILE).exists():
        job = job_in_file(Path(DEFAULT_JOB_FILE))
    else:
        job = _default_job(Path.cwd())
    code = start(job, given)
    if job.label == DEMO and not given["dry_run"]:
        tell("This was the demo job on the Nations graph. Name your own triples: kgops train --help")
    ctx.exit(code)


def _default_job(here: Path) -> Job:
    """Trains and traces: on the triples in this folder, or on PyKEEN's Nations graph if there are none."""
    files = {name: here / f"{name}.txt" for name in DEFAULT_FILES}
    there = [path.name for path in files.values() if path.exists()]
    if there and len(there) < len(files):
        missing = ", ".join(path.name for path in files.values() if not path.exists())
        raise Usage(
            f"{here} has {' and '.join(there)}, but no {DEFAULT_JOB_FILE} and no {missing}",
            "name your files: kgops train --train FILE --valid FILE --test FILE",
        )
    if there:
        tell(
            f"No {DEFAULT_JOB_FILE} here: training ConvE on {', '.join(there)} of this folder, then tracing ten test\n"
            "triples back to the training triples behind them."
        )
        return _train_and_trace({name: str(path) for name, path in files.items()})
    tell(
        f"No {DEFAULT_JOB_FILE} and no triples here: starting the demo job. It trains ConvE on the Nations graph that\n"
        "ships with PyKEEN, then traces ten test triples back to the training triples behind them."
    )
    return demo_job()


def demo_job() -> Job:
    return replace(_train_and_trace({"dataset": "nations"}), label=DEMO)


def _train_and_trace(data: dict[str, str]) -> Job:
    stages = {"train": {**data, "num_epochs": 20}, "tracin": {"max_triples": 10, "top_k": 10}}
    return read_job({"workload": "pipeline", "pipeline": stages}, "the default job")


def _again_there(name: str, given: dict[str, Any]) -> int:
    """A run of another host is repeated where its data are, as it was."""
    from kgops.hosts.run_actions import again_there, placed

    passed = {"force", "tags", "detach", "as_json"}
    others = [flag for flag, value in given.items() if flag not in passed and value not in (None, (), False)]
    if others:
        raise Usage(
            f"--{others[0].replace('_', '-')} changes the job, which lies on another host",
            "`kgops pull` brings the run here, and --again repeats it with other flags",
        )
    home, host, number = placed(name)
    flags = [*(["--force"] if given["force"] else []), *(f"--tag={tag}" for tag in given["tags"])]
    new = again_there(home, host, number, flags)
    say_result(given["as_json"], lambda: {"host": host.name, "id": new}, lambda: [f"{host.name}:{new}"])
    return 0


def _changes_of(again: str, flag: str) -> click.Command:
    """The command that repeats a run's job with flags of its workload."""
    if ":" in again:
        raise Usage(
            f"{flag} changes the job, which lies on another host",
            "`kgops pull` brings the run here, and --again repeats it with other flags",
        )
    session = existing()
    run = session.run(again)
    job = job_of_run(session, str(run.id))
    if not workload_of(job).has_flags:
        raise Usage(
            f"{flag} is not a flag of `kgops run`, and run {run.id} ({job.workload}) has none of its own",
            f"`kgops run --again {run.id}` repeats it as it was",
        )
    workload = WORKLOAD_OF[job.workload]

    @click.command(f"{job.workload} --again {run.id}", cls=GroupedHelp)
    @common_options
    @click.pass_context
    def changed(ctx: click.Context, /, **given: Any) -> None:
        flags = job_table(workload, given, ())
        table = job.as_table()
        for part in (workload.name, "options"):
            table[part] = {**table.get(part, {}), **flags[part]}
        table["label"] = _changed_label(job.label, {**flags[workload.name], **flags["options"]})
        given = merged(ctx, given) | {"repeats": run.id}
        ctx.exit(start(with_absolute_paths(read_job(table, "this command"), Path.cwd()), given))

    command: click.Command = changed
    add_options(command, click_options(workload.options))
    return command


def _changed_label(label: str, changes: dict[str, Any]) -> str:
    """The run's label and what differs, as runs of a sweep have it: two runs of one label cannot be told apart."""
    differing = (f"{name}={value_text(value)}" for name, value in changes.items() if os.sep not in str(value))
    return " ".join([label, *differing])[:LONGEST_LABEL]


@click.command("FILE", hidden=True)
@click.argument("file", type=click.Path(path_type=Path))
@common_options
@click.pass_context
def _file(ctx: click.Context, /, file: Path, **given: Any) -> None:
    ctx.exit(start(job_in_file(file), merged(ctx, given)))
