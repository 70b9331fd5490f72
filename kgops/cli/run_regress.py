"""`kgops regress`: train a network that predicts cloud heights from windows of frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kgops.cli.job_options import (
    GroupedHelp,
    GroupOption,
    add_options,
    click_options,
    job_of_flags,
    job_table,
)
from kgops.cli.launching import common_options, merged, start
from kgops.errors import Usage
from kgops.jobs.job import Job
from kgops.jobs.option import Flag, Option
from kgops.workloads import configurations
from kgops.workloads.regress.job import REGRESS
from kgops.workloads.regress.options import FOLDERS, REGRESS_IMAGES

PLAN_EXAMPLE = "--config colab_optimized_full --gpu t4"


class EitherSpelling(GroupedHelp):
    """Accepts `--batch-size` for `--batch_size`: the original main.py has underscores, other kgops commands dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        declared = {
            _plain(name): name
            for param in self.get_params(ctx)
            for name in (*param.opts, *param.secondary_opts)
            if name.startswith("--")
        }
        spelled = []
        for word in args:
            name, equals, value = word.partition("=")
            spelled.append(declared.get(_plain(name), name) + equals + value)
        return super().parse_args(ctx, spelled)


def _plain(flag: str) -> str:
    return flag.replace("-", "_")


@click.command(
    "regress",
    cls=EitherSpelling,
    epilog="\b\nExample:  kgops data flights --make flights"
    "\n          kgops regress --config colab_optimized --data-directory flights --num-epochs 20",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Train a network that predicts cloud heights from short windows of frames and sun angles, with flights held out.

    Configurations and flags of the regression project's main.py work as they did there, with underscores or dashes,
    or the run reports what happens instead.
    """
    job = job_of(given)
    if not job.settings["data_directory"]:
        raise Usage(
            "--data-directory is missing",
            "`kgops data flights --make DIR` generates data; `kgops suggest regress` plans without data",
        )
    ctx.exit(start(job, merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job. Flags override the configuration."""
    name = given.pop("config")
    requested = configurations.read(name) if name is not None else {}
    own = job_table(REGRESS, given, FOLDERS)
    accepted = {flag: given.pop(flag) for flag in _OF_SCRIPTS}
    flags = {**own["regress"], **own["options"], **accepted}
    requested |= {flag: value for flag, value in flags.items() if value is not None}
    table = configurations.job_table(
        requested, "this command" if name is None else f"{name} with these flags"
    )
    settings = table["regress"]
    settings |= {key: str(Path(settings[key]).absolute()) for key in FOLDERS if settings.get(key)}
    if not settings.get("data_directory"):
        settings.setdefault("image_size", REGRESS_IMAGES)
    return job_of_flags(table)


def _of_scripts() -> list[click.Option]:
    """Flags of the regression project's main.py that are no options of kgops."""
    options = [
        *(Option(name, "bool") for name in ("torch_compile", "hpc_mode")),
        *(Option(name) for name in ("torch_compile_mode", "filter_type")),
        *(Option(name) for name in ("cbh_min", "cbh_max", "clahe_clip_limit")),
        Option("no_plots", flags=(Flag("--no-plots", True),)),
    ]
    hidden = [one.adapted(flags=tuple(replace(flag, hidden=True) for flag in one.flags)) for one in options]
    return click_options(hidden)


_SCRIPT_FLAGS = _of_scripts()
_OF_SCRIPTS = [option.name for option in _SCRIPT_FLAGS if option.name is not None]
FLAGS = [
    GroupOption(
        ["--config"],
        metavar="FILE.yaml|NAME",
        help=f"Configuration file, or one that ships with kgops: {', '.join(configurations.names())}.",
        group="data",
    ),
    *click_options(REGRESS.options),
    *_SCRIPT_FLAGS,
]
add_options(command, FLAGS)
