"""`kgops run`: from what a person types to a run that is followed to its end."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kgops.cli.follow import follow
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import Session, existing, for_writing
from kgops.cli.tag import check_tags
from kgops.errors import BadJob, Usage
from kgops.jobs import recipes
from kgops.jobs.job import Job, read_job, read_job_file
from kgops.jobs.keys import nearest
from kgops.jobs.levers import LEVERS
from kgops.jobs.text import lines
from kgops.jobs.training import FILES, TRAIN
from kgops.jobs.workloads import WORKLOADS
from kgops.plans import profiles
from kgops.runs.launch import child_command, launch
from storage import reports, runs

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_JOB_FILE = "kgops.toml"
DEFAULT_JOB = {"workload": "train", "train": {"dataset": "nations", "num_epochs": 20}}
PRECISIONS = LEVERS["precision"].values


def options(function: F) -> F:
    """What every kind of job can be given."""
    for option in reversed(
        (
            click.option(
                "--profile", help="Named set of lever values: auto, cpu, t4, or a file of your own."
            ),
            click.option("--label", help="What lists and screens call the run."),
            click.option("--gpu", help="Insist on a card: its index, its UUID, or auto."),
            click.option(
                "--gpu-memory", type=click.IntRange(1), metavar="MIB", help="Card memory to reserve."
            ),
            click.option(
                "--exclusive",
                is_flag=True,
                default=None,
                help="Share the card, or the processors, with no other run.",
            ),
            click.option(
                "--attempts",
                type=click.IntRange(1),
                help="Workers that may be lost before the run is interrupted.",
            ),
            click.option(
                "--grace", type=click.FloatRange(0), help="Seconds between asking to stop and killing."
            ),
            click.option(
                "--log-limit",
                type=click.FloatRange(1),
                metavar="MIB",
                help="Keep this much of the log, the newest part.",
            ),
            click.option("--tag", "tags", multiple=True, help="Tag the run; may be repeated."),
            click.option(
                "--detach", is_flag=True, default=None, help="Print the run's number and come back at once."
            ),
            click.option(
                "--dry-run",
                is_flag=True,
                default=None,
                help="Print the job and the exact command; start nothing.",
            ),
            click.option(
                "--json", "as_json", is_flag=True, default=None, help="Print the ended run as JSON on stdout."
            ),
        )
    ):
        function = option(function)
    return function


class Kinds(click.Group):
    """`kgops run train …`, but also `kgops run job.toml` and `kgops run` alone."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            if not args[0].endswith(".toml") and not Path(args[0]).is_file():
                ctx.fail(
                    f"no such workload or job file: {args[0]!r}{nearest(args[0], dict.fromkeys(WORKLOADS))}"
                )
            return "FILE", _file, args
        return super().resolve_command(ctx, args)


@click.group(
    cls=Kinds,
    invoke_without_command=True,
    subcommand_metavar="[WORKLOAD|FILE.toml] [ARGS]...",
    epilog="\b\nExample:  kgops run exec --label eval -- python eval.py",
)
@options
@click.option("--again", metavar="RUN", help="Repeat the job of this run.")
@click.pass_context
def command(ctx: click.Context, /, again: str | None, **given: Any) -> None:
    """Start a job and follow it; Ctrl-C asks whether to detach or stop.

    Without arguments: the job in kgops.toml of this folder, or else the demo.
    """
    ctx.obj = given
    if ctx.invoked_subcommand is not None:
        if again is not None:
            raise Usage("--again repeats a job as it was: give no other")
        return
    if again is not None:
        session = existing()
        run = session.run(again)
        job = read_job(runs.spec(session.conn, run.id).job, f"the job of run {run.id}")
    elif Path(DEFAULT_JOB_FILE).exists():
        job = read_job_file(Path(DEFAULT_JOB_FILE))
    else:
        tell(
            f"No {DEFAULT_JOB_FILE} here: this is the demo, ConvE on the Nations graph that ships with PyKEEN."
        )
        job = read_job(DEFAULT_JOB, "the demo job")
    ctx.exit(start(job, given))


@click.command("FILE", hidden=True)
@click.argument("file", type=click.Path(path_type=Path))
@options
@click.pass_context
def _file(ctx: click.Context, /, file: Path, **given: Any) -> None:
    ctx.exit(start(read_job_file(file), _merged(ctx, given)))


@command.command(
    "exec",
    epilog='\b\nExample:  kgops run exec --on-oom batch_size=64,32,16 -- python train.py --batch-size "{batch_size}"',
)
@click.argument("arguments", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--progress-regex", help="Finds groups done and total in the log's lines.")
@click.option("--metric-regex", help="Finds metrics: groups named for them, or name and value; and step.")
@click.option(
    "--on-oom",
    multiple=True,
    metavar="NAME=V1,V2…",
    help="Values for {NAME}: the first to start with, the next after each out-of-memory.",
)
@click.option("--cwd", type=click.Path(file_okay=False), help="Folder to run in; default: this one.")
@options
@click.pass_context
def _exec(
    ctx: click.Context,
    /,
    arguments: tuple[str, ...],
    progress_regex: str | None,
    metric_regex: str | None,
    on_oom: tuple[str, ...],
    cwd: str | None,
    **given: Any,
) -> None:
    """Supervise any command: log, exit code, host memory, card memory of its whole process tree."""
    settings = {
        "command": list(arguments),
        "cwd": str(Path(cwd or ".").absolute()),
        "progress_regex": progress_regex,
        "metric_regex": metric_regex,
        "on_oom": dict(_values(text) for text in on_oom) or None,
    }
    table = {
        "workload": "exec",
        "exec": {name: value for name, value in settings.items() if value is not None},
    }
    ctx.exit(start(read_job(table, "this command"), _merged(ctx, given)))


def _shown(default: Any) -> str:
    return (
        {True: "on", False: "off"}.get(default, str(default)) if isinstance(default, bool) else str(default)
    )


def _values(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier():
        raise Usage(f"--on-oom {text!r:.60}: write NAME=first,second,…")
    return name, [_number(value) for value in values.split(",")]


def _number(text: str) -> int | float | str:
    """A number where writing it gives the same text again: the command gets what was typed."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and math.isfinite(value):
            return value
    return text


def _merged(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """`kgops run --profile t4 exec …` means what `kgops run exec --profile t4 …` means."""
    before: dict[str, Any] = ctx.obj or {}
    return {name: before.get(name) if value in (None, ()) else value for name, value in given.items()}


@command.command("train", epilog="\b\nExample:  kgops run train --dataset nations --num-epochs 20")
@options
@click.pass_context
def _train(ctx: click.Context, /, **given: Any) -> None:
    """Train ConvE, or any model of PyKEEN's: on one of its datasets by name, or on files of triples.

    Every flag of train_pytorch.py means what it meant there.
    """
    recipe = given.pop("recipe")
    keys = {key.name: given.pop(key.name) for key in TRAIN.keys}
    levers: dict[str, Any] = {
        "precision": given.pop("precision") or ("auto" if given.pop("use_mixed_precision") else None),
        "batch_size": given.pop("batch_size"),
        "entity_chunk": given.pop("entity_chunk"),
        "gradient_checkpointing": given.pop("use_gradient_checkpointing") or None,
        "memory_cleanup": False if given.pop("disable_memory_cleanup") else None,
        "num_workers": given.pop("num_workers"),
    }
    given.pop("use_mixed_precision", None)
    table = {
        "workload": "train",
        "train": {name: _absolute(name, value) for name, value in keys.items() if value is not None},
        "levers": {name: value for name, value in levers.items() if value is not None},
    }
    if recipe is not None:
        table = recipes.with_changes(recipe, table)
    ctx.exit(start(read_job(table, "this command"), _merged(ctx, given)))


def _absolute(name: str, value: Any) -> Any:
    """Files are named from where the person stands; the run, and any repetition of it, may stand elsewhere."""
    return str(Path(value).absolute()) if name in (*FILES, "output_dir") else value


def _add_options(target: click.Command, more: list[click.Option]) -> None:
    target.params[:0] = more


_TYPES = {"str": str, "int": int, "float": float}
_add_options(
    _train,
    [
        click.Option(
            ["--recipe"], metavar="NAME", help=f"A job that ships with kgops: {', '.join(recipes.names())}."
        ),
    ]
    + [
        click.Option(
            [f"--{name}/--no-{name}" if key.type == "bool" else f"--{name}"],
            type=None if key.type == "bool" else _TYPES[key.type],
            default=None,
            help=key.help + ("" if key.default is None else f"  [default: {_shown(key.default)}]"),
        )
        for key in TRAIN.keys
        for name in [key.name.replace("_", "-")]
    ]
    + [
        click.Option(["--batch-size"], type=int, help="Queries per step.  [default: 256]"),
        click.Option(
            ["--precision"], type=click.Choice(PRECISIONS), help="Number format of the heavy products."
        ),
        click.Option(["--use-mixed-precision"], is_flag=True, help="The same as --precision auto."),
        click.Option(["--entity-chunk"], type=int, help="Entities scored at a time; default: by the device."),
        click.Option(
            ["--use-gradient-checkpointing"], is_flag=True, help="Compute activations again, keep none."
        ),
        click.Option(["--disable-memory-cleanup"], is_flag=True, help="Never give cached card memory back."),
        click.Option(
            ["--num-workers"], type=int, help="Accepted; there is nothing to load, and the run says so."
        ),
    ],
)


def start(job: Job, given: dict[str, Any]) -> int:
    """Launches the job with what the flags say and follows it; the exit code for the shell."""
    job = profiles.apply(_with_flags(job, given))
    if job.profile is not None:
        for name, value in profiles.find(job.profile).environment.items():
            os.environ.setdefault(name, value)  # the worker gets this process's environment
    check_tags(given["tags"])
    if given["dry_run"]:
        text = f"{job.as_toml().rstrip()}\n# {shlex.join(child_command(job))}"
        say(lines(text) if sys.stdout.isatty() else text)
        return 0
    session = for_writing()
    number = launch(session.home, session.conn, job)
    if given["tags"]:
        reports.change_tags(session.conn, number, add=list(given["tags"]), remove=[])
    if given["detach"]:
        say(str(number))
        return 0
    code = follow(session, number, quiet=bool(given["as_json"]))
    if given["as_json"]:
        _print_run(session, number)
    return code


def _print_run(session: Session, number: int) -> None:
    from kgops.cli.show import as_table

    run = runs.get(session.conn, number)
    if run is not None:
        print_json(as_table(session, run))


def _with_flags(job: Job, given: dict[str, Any]) -> Job:
    """The job with every flag that was given; all of it is checked again as one job."""
    table = job.as_table()
    for name in ("profile", "label"):
        if given[name] is not None:
            table[name] = given[name]
    flags = {
        "card": {"gpu": given["gpu"], "memory_mib": given["gpu_memory"], "exclusive": given["exclusive"]},
        "limits": {"attempts": given["attempts"], "grace_s": given["grace"], "log_mib": given["log_limit"]},
    }
    for part, values in flags.items():
        table[part] |= {name: value for name, value in values.items() if value is not None}
    try:
        return read_job(table, "the job with these flags")
    except BadJob as error:
        error.hint = error.hint or "`--dry-run` prints the job"
        raise
