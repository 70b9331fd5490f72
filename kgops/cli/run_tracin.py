"""`kgops run tracin`: find the training triples behind predictions with TracIn."""

from __future__ import annotations

from typing import Any

import click

from kgops.cli import devices
from kgops.cli.job_options import add_options, given_settings, key_options
from kgops.cli.launching import common_options, merged, start
from kgops.jobs.job import Job, read_job
from kgops.jobs.options import OPTIONS
from kgops.jobs.tracin import FILES, FILTERS, FOLDERS, TRACIN, WRITTEN

LAST_LAYERS = 2  # default of --use-last-layers-only


class TestTripleOfThree(click.Command):
    """Accepts `--test-triple a treats b` as three words, so that labels may have spaces."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--test-triple" in args:
            at = args.index("--test-triple") + 1
            three = args[at : at + 3]
            if len(three) == 3 and not any(part.startswith("--") for part in three):
                args = [*args[:at], "\t".join(three), *args[at + 3 :]]
        return super().parse_args(ctx, args)


@click.command(
    "tracin",
    cls=TestTripleOfThree,
    epilog="\b\nExample:  kgops run tracin --run 1 --test-triple 'usa,embassy,china' --top-k 10",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Compute the influence of training triples on test triples with exact TracIn over all checkpoints.

    Every flag of run_tracin.py and batch_tracin_with_filtering.py works as it did there, or the run reports what
    happens instead.
    """
    ctx.exit(start(job_of(given), merged(ctx, given)))


def job_of(given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job."""
    filtering = any(given[name] is not None for name in FILTERS) or bool(given["test_triples"])
    settings = given_settings(TRACIN.keys, given, (*FILES, *FOLDERS, *WRITTEN))
    last = given.pop("num_last_layers")
    options: dict[str, Any] = {
        "block": given.pop("batch_size"),
        "entity_chunk": given.pop("entity_chunk"),
        "tests_at_once": given.pop("tests_at_once"),
        "precision": given.pop("precision") or ("auto" if given.pop("use_mixed_precision") else None),
        "gram_precision": given.pop("gram_precision"),
        "last_layers": (last or LAST_LAYERS) if given.pop("use_last_layers_only") or last else None,
        "filtering": False if given.pop("skip_filtering") else filtering or None,
        "gradient_checkpointing": given.pop("use_gradient_checkpointing") or None,
        "memory_cleanup": False if given.pop("disable_memory_cleanup") else None,
        "compile": "default" if given.pop("use_torch_compile") else None,
        "devices": devices.requested(given, every=given.pop("enable_multi_gpu")),
        "test_gradient_caching": False if given.pop("disable_test_gradient_caching") else None,
        "vectorized_gradients": _vectorized(given),
    }
    given.pop("use_mixed_precision", None)
    table = {
        "workload": "tracin",
        "tracin": settings,
        "options": {name: value for name, value in options.items() if value is not None},
    }
    return read_job(table, "this command")


def _vectorized(given: dict[str, Any]) -> bool | None:
    wanted = [given.pop("use_vectorized_gradients"), given.pop("use_optimized_tracin")]
    unwanted = given.pop("disable_vectorized_gradients")
    return False if unwanted else True if any(wanted) else None


def _flag(name: str, help: str) -> click.Option:
    return click.Option([name], is_flag=True, help=help)


_ACCEPTED = "Accepted for compatibility; the run reports what happens instead."
FLAGS = [
    *key_options(TRACIN.keys),
    click.Option(["--batch-size"], type=int, help="Training triples scored at a time.  [default: 256]"),
    click.Option(["--entity-chunk"], type=int, help="Entities scored at a time.  [default: 2048]"),
    click.Option(
        ["--tests-at-once"], type=int, help="Test triples whose gradient factors are in memory at a time."
    ),
    click.Option(
        ["--precision"],
        type=click.Choice(OPTIONS["precision"].values),
        help="Number format of all computation.",
    ),
    click.Option(
        ["--gram-precision"],
        type=click.Choice(OPTIONS["gram_precision"].values),
        help="Number format of the two largest products only.",
    ),
    devices.OPTION,
    _flag("--use-mixed-precision", "Alias of --precision auto."),
    _flag("--use-last-layers-only", "Use gradients of the last layers only; changes results."),
    click.Option(["--num-last-layers"], type=int, help=f"Number of last layers.  [default: {LAST_LAYERS}]"),
    _flag("--skip-filtering", "Score all training triples, also with --test-triples."),
    _flag("--use-gradient-checkpointing", _ACCEPTED),
    _flag("--disable-memory-cleanup", "Never release cached GPU memory."),
    _flag("--use-torch-compile", _ACCEPTED),
    _flag("--enable-multi-gpu", "Alias of --devices all."),
    _flag("--use-optimized-tracin", _ACCEPTED),
    _flag("--use-vectorized-gradients", _ACCEPTED),
    _flag("--disable-vectorized-gradients", _ACCEPTED),
    _flag("--disable-test-gradient-caching", _ACCEPTED),
]
add_options(command, FLAGS)
