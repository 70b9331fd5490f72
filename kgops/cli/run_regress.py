"""`kgops run regress`: train a network that predicts cloud heights from windows of frames."""

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
_OWN = ("left_out", "architecture")  # keys without an automatic flag


class EitherSpelling(click.Command):
    """Accepts `--batch-size` for `--batch_size`: the original main.py has underscores, other kgops commands dashes."""

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
    """Train a network that predicts cloud heights from short windows of frames and sun angles, with flights held out.

    Configurations and flags of the regression project's main.py work as they did there, with underscores or dashes,
    or the run reports what happens instead.
    """
    job = job_of(given)
    if not job.settings["data_directory"]:
        raise Usage(
            "--data_directory is missing",
            "`kgops data flights --make DIR` generates data; `kgops suggest regress` plans without data",
        )
    ctx.exit(start(job, merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job. Flags override the configuration."""
    name = given.pop("config")
    requested = configurations.read(name) if name is not None else {}
    flags = {flag: given.pop(flag) for flag in _names()}
    requested |= {flag: value for flag, value in flags.items() if value is not None}
    table = configurations.job_table(
        requested, "this command" if name is None else f"{name} with these flags"
    )
    settings = table["regress"]
    # Absolute, since the run or a repetition of it may have another working folder.
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
    # The job validates values and suggests the nearest valid one.
    return _value(key.name, {"int": int, "float": float}.get(key.type, str), key.help + default)


def _accepted() -> list[click.Option]:
    text = "Accepted for compatibility; the run reports what happens instead."
    return [
        _switch("hpc_mode", text),
        click.Option(["--no_plots"], is_flag=True, default=None, help=text),
        *(_value(name, str, text) for name in ("filter_type", "cbh_min", "cbh_max", "clahe_clip_limit")),
    ]


def _choice(option: str) -> click.Choice[Any]:
    return click.Choice([value for value in OPTIONS[option].values if isinstance(value, str)])


_SHIPPED = ", ".join(configurations.names())
_FROM_JOB = [
    *(_of_key(key) for key in KEYS if key.name not in _OWN),
    click.Option(
        ["--architecture_name", "--architecture", "architecture"],
        help="Network over the frames of a window: transformer, gnn, ssm or cnn.  [default: transformer]",
    ),
    _value("batch_size", int, f"Windows per optimizer step.  [default: {REGRESS_BATCH}]"),
    _value("microbatch", int, "Windows per forward pass; gradients are accumulated over the batch."),
    _value("temporal_frames", int, f"Frames per window.  [default: {REGRESS_FRAMES}]"),
    _switch("memory_optimized", "Smaller network with half the channels; changes results.  [default: off]"),
    _switch(
        "gradient_checkpointing",
        "Recompute activations in the backward pass instead of keeping them.  [default: off]",
    ),
    _value(
        "precision",
        _choice("precision"),
        "Number format of matrix products.  [default: by the profile; fp32 on a CPU]",
    ),
    _value("compile", _choice("compile"), "torch.compile mode.  [default: off]"),
    _switch("torch_compile", "Alias of --compile default or off."),
    _value("torch_compile_mode", _choice("compile"), "Mode that --torch_compile uses."),
    _value("num_workers", int, "Accepted for compatibility; the run reports what happens instead."),
    _switch("memory_cleanup", "Release cached GPU memory when it runs short.  [default: on]"),
    *_accepted(),
]
FLAGS = [
    click.Option(
        ["--config"],
        metavar="FILE.yaml|NAME",
        help=f"Configuration file, or one that ships with kgops: {_SHIPPED}.",
    ),
    *_FROM_JOB,
]


def _names() -> list[str]:
    return [option.name for option in _FROM_JOB if option.name is not None]


add_options(command, FLAGS)
