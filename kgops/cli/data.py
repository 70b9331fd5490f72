"""`kgops data`: generate synthetic data sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from kgops.errors import KgopsError, Usage
from kgops.jobs.text import one_line

_LEAST_PIXELS = 8  # per side: three pooling layers need as many


@click.group(epilog="\b\nExample:  kgops data flights --make flights")
def command() -> None:
    """Generate small synthetic data sets to try kgops with."""


@command.command("flights", epilog="\b\nExample:  kgops data flights --make flights --flights 6 --size 64")
@click.option(
    "--make", "folder", type=click.Path(path_type=Path), metavar="DIR", help="New folder to write to."
)
@click.option(
    "--flights", type=click.IntRange(1, 1000), default=4, show_default=True, help="Number of flights."
)
@click.option(
    "--frames", type=click.IntRange(1, 1 << 20), default=256, show_default=True, help="Frames per flight."
)
@click.option(
    "--size",
    type=click.IntRange(_LEAST_PIXELS, 4096),
    default=32,
    show_default=True,
    help="Height and width of a frame in pixels.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
def _flights(folder: Path | None, flights: int, frames: int, size: int, seed: int) -> None:
    """Generate flights for `kgops regress`: frames, sun angles and cloud heights.

    Each cloud casts a shadow away from the sun; the higher the cloud, the longer the distance.
    """
    if folder is None:
        raise Usage("--make DIR is missing", "kgops data flights --make flights")
    _make_empty(folder)
    numbers = {"flights": flights, "frames": frames, "size": size, "seed": seed}
    flags = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    # A separate process, since commands do not load numpy.
    process = subprocess.run(
        [sys.executable, "-P", "-m", "kgops.maths.regress.made_flights", str(folder.absolute()), *flags],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if process.returncode:
        message = one_line(process.stderr.strip().rpartition("\n")[2]) or f"exit code {process.returncode}"
        raise KgopsError(f"the flights were not written: {message}", f"{folder} is incomplete: delete it")


def _make_empty(folder: Path) -> None:
    """Create the folder; raise if it has files, since flights of different sizes cannot be trained on together."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        has_files = any(folder.iterdir())
    except OSError as error:
        raise Usage(
            f"{folder} cannot be made: {os.strerror(error.errno or 0)}", "give another folder"
        ) from error
    if has_files:
        raise Usage(f"{folder} is not empty: its files would be read as flights too", "give a new folder")
