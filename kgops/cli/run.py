"""`kgops run`: start a job given by workload, job file or earlier run; without arguments the default job."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from kgops.cli.groups import ByWorkload
from kgops.cli.launching import common_options, merged, start
from kgops.cli.named_jobs import job_in_file, job_of_run
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.jobs.job import read_job

# Workload → summary; `kgops run --help` imports no workload.
KINDS: dict[str, str] = {
    "train": "Train ConvE, or any PyKEEN model.",
    "predict": "Answer questions with a trained model: which tails, which heads, which pairs?",
    "tracin": "Find the training triples behind predictions (TracIn).",
    "explain": "Find the training triples that a prediction rests on.",
    "regress": "Train a network that predicts cloud heights from image sequences.",
    "exec": "Run any command under supervision.",
    "sweep": "Start one run for each combination of settings.",
}
DEFAULT_JOB_FILE = "kgops.toml"
DEFAULT_JOB = {
    "workload": "pipeline",
    "pipeline": {
        "train": {"dataset": "nations", "num_epochs": 20},
        "tracin": {"max_triples": 10, "top_k": 10},
    },
}


class Kinds(ByWorkload):
    """Workloads of `kgops run`."""

    summaries = KINDS

    def find(self, name: str) -> click.Command:
        command: click.Command = importlib.import_module(f"kgops.cli.run_{name}").command
        return command

    def of_file(self) -> click.Command:
        return _file


_token = click.option(
    "--token", hidden=True, help="Start it once, however often it is asked for with this word."
)


@click.group(
    cls=Kinds,
    invoke_without_command=True,
    subcommand_metavar="[WORKLOAD|FILE.toml] [ARGS]...",
    epilog="\b\nExample:  kgops run exec --label eval -- python eval.py",
)
@common_options
@_token
@click.option("--again", metavar="RUN", help="Repeat the job of this run; of lab2:17 there.")
@click.pass_context
def command(ctx: click.Context, /, again: str | None, **given: Any) -> None:
    """Start a job and follow it; Ctrl-C asks whether to detach or stop.

    Without arguments, start the job in ./kgops.toml, or else the demo job.
    """
    ctx.obj = given
    if ctx.invoked_subcommand is not None:
        if again is not None:
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
        tell(
            f"No {DEFAULT_JOB_FILE} here: starting the demo job. It trains ConvE on the Nations graph that ships with\n"
            "PyKEEN, then traces ten of its predictions back to the training triples behind them."
        )
        job = read_job(DEFAULT_JOB, "the demo job")
    ctx.exit(start(job, given))


def _again_there(name: str, given: dict[str, Any]) -> int:
    """A run of another host is repeated where its data are, as it was."""
    from kgops.hosts import registry
    from kgops.hosts.run_actions import split_name
    from kgops.hosts.starting import again_there
    from kgops.settings import find_home

    passed = {"force", "tags", "detach", "as_json"}
    others = [flag for flag, value in given.items() if flag not in passed and value not in (None, (), False)]
    if others:
        raise Usage(
            f"--{others[0].replace('_', '-')} changes the job, which lies on another host",
            "`kgops pull` brings the run here, and --again repeats it with other flags",
        )
    home = find_home()
    host, number = split_name(name, registry.read(home))
    flags = [*(["--force"] if given["force"] else []), *(f"--tag={tag}" for tag in given["tags"])]
    new = again_there(home, host, number, flags, lambda text: tell(f"Note: {text}"))
    if given["as_json"]:
        print_json({"host": host.name, "id": new})
    else:
        say(f"{host.name}:{new}")
    return 0


@click.command("FILE", hidden=True)
@click.argument("file", type=click.Path(path_type=Path))
@_token
@common_options
@click.pass_context
def _file(ctx: click.Context, /, file: Path, **given: Any) -> None:
    ctx.exit(start(job_in_file(file), merged(ctx, given)))
