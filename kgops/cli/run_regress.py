"""`kgops run regress`: a height for each window of frames, learned from flights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kgops.cli.job_options import add_options
from kgops.cli.launching import common_options, merged, start
from kgops.errors import Usage
from kgops.jobs import configurations
from kgops.jobs.chunk_sizes import REGRESS_BATCH, REGRESS_FRAMES, REGRESS_IMAGES
from kgops.jobs.job import Job, read_job
from kgops.jobs.keys import Key
from kgops.jobs.options import OPTIONS
from kgops.jobs.regress import KEYS

_FOLDERS = ("data_directory", "output_directory")
_OWN = ("left_out", "architecture")  # not made into flags as the other keys are


class EitherSpelling(click.Command):
    """`--batch-size` is `--batch_size`: they write the one, kgops' other commands the other."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.context_settings["token_normalize_func"] = lambda word: word.replace("-", "_")


@click.command(
    "regress",
    cls=EitherSpelling,
    epilog="\b\nExample:  kgops data flights --make flights"
    "\n          kgops run regress --config colab_optimized --data_directory flights --epochs 20",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Learn heights from short windows of frames and the sun's angles, with flights held out.

    Configurations and flags of the regression project's main.py mean what they meant there, with underscores or
    dashes; what kgops does otherwise is accepted, and the run says what happens instead.
    """
    job = job_of(given)
    if not job.settings["data_directory"]:
        raise Usage(
            "there is nothing to learn from: no --data_directory",
            "`kgops data flights --make DIR` writes small flights; `kgops suggest regress` plans without any",
        )
    ctx.exit(start(job, merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Takes what is the job's out of the flags that were given; flags go before the configuration."""
    name = given.pop("config")
    asked = configurations.read(name) if name is not None else {}
    flags = {flag: given.pop(flag) for flag in _names()}
    asked |= {flag: value for flag, value in flags.items() if value is not None}
    table = configurations.job_table(asked, "this command" if name is None else f"{name} with these flags")
    settings = table["regress"]
    # Named from where the person stands; the run, and any repetition of it, may stand elsewhere.
    settings |= {key: str(Path(settings[key]).absolute()) for key in _FOLDERS if settings.get(key)}
    if not settings.get("data_directory"):
        settings.setdefault("image_size", REGRESS_IMAGES)
    return read_job(table, "this command")


def _value(name: str, kind: Any, help: str) -> click.Option:
    return click.Option([f"--{name}"], type=kind, default=None, help=help)


def _switch(name: str, help: str) -> click.Option:
    return click.Option([f"--{name}/--no-{name}"], default=None, help=help)


def _of_key(key: Key) -> click.Option:
    if key.type == "bool":
        return _switch(key.name, f"{key.help}  [default: {'on' if key.default else 'off'}]")
    default = "" if key.default is None else f"  [default: {key.default}]"
    # Checked by the job, which names the nearest value that it knows.
    return _value(key.name, {"int": int, "float": float}.get(key.type, str), key.help + default)


def _accepted() -> list[click.Option]:
    told = "Accepted; the run says what happens instead."
    return [
        _switch("hpc_mode", told),
        click.Option(["--no_plots"], is_flag=True, default=None, help=told),
        *(_value(name, str, told) for name in ("filter_type", "cbh_min", "cbh_max", "clahe_clip_limit")),
    ]


def _choice(option: str) -> click.Choice[Any]:
    return click.Choice([value for value in OPTIONS[option].values if isinstance(value, str)])


_SHIPPED = ", ".join(configurations.names())
_FROM_JOB = [
    *(_of_key(key) for key in KEYS if key.name not in _OWN),
    click.Option(
        ["--architecture_name", "--architecture", "architecture"],
        help="What mixes frames: transformer, gnn, ssm or cnn.  [default: transformer]",
    ),
    _value("batch_size", int, f"Windows of a step.  [default: {REGRESS_BATCH}]"),
    _value("microbatch", int, "Windows computed at a time; their gradients add up to the step's."),
    _value("temporal_frames", int, f"Frames of a window.  [default: {REGRESS_FRAMES}]"),
    _switch("memory_optimized", "Half the channels: another, smaller network.  [default: off]"),
    _switch("gradient_checkpointing", "Compute each frame's activations again, keep none.  [default: off]"),
    _value(
        "precision",
        _choice("precision"),
        "Number format of the heavy products.  [default: by the profile; fp32 on a CPU]",
    ),
    _value("compile", _choice("compile"), "Kernels made by torch.compile.  [default: off]"),
    _switch("torch_compile", "The same as --compile default, or off."),
    _value("torch_compile_mode", _choice("compile"), "The mode that --torch_compile means."),
    _value("num_workers", int, "Accepted; the run says what happens instead."),
    _switch("memory_cleanup", "Give cached GPU memory back when it runs short.  [default: on]"),
    *_accepted(),
]
FLAGS = [
    click.Option(
        ["--config"], metavar="FILE.yaml|NAME", help=f"A configuration; these ship with kgops: {_SHIPPED}."
    ),
    *_FROM_JOB,
]


def _names() -> list[str]:
    return [option.name for option in _FROM_JOB if option.name is not None]


add_options(command, FLAGS)
