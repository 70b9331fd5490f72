"""`kgops data`: generate synthetic data sets; find and keep the data of jobs that another machine starts here."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import print_json, say
from kgops.errors import CutOff, KgopsError, Usage
from kgops.interchange.data_files import is_place, read_data_files, size_of
from kgops.interchange.kept_data import bytes_of_part, find_kept, keep
from kgops.jobs.text import one_line
from kgops.settings import Home, find_home, make_home

_LONGEST_LIST = 1 << 20
_SILENT_S = 120.0
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
    """Generate flights for `kgops run regress`: frames, sun angles and cloud heights.

    Each cloud casts a shadow away from the sun; the higher the cloud, the longer the distance.
    """
    if folder is None:
        raise Usage("--make DIR is missing", "kgops data flights --make flights")
    _make_empty(folder)
    numbers = {"flights": flights, "frames": frames, "size": size, "seed": seed}
    flags = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    # A separate process, since commands do not load numpy.
    process = subprocess.run(
        [sys.executable, "-P", "-m", "kgops.regression.made_flights", str(folder.absolute()), *flags],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if process.returncode:
        message = one_line(process.stderr.strip().rpartition("\n")[2]) or f"exit code {process.returncode}"
        raise KgopsError(f"the flights were not written: {message}", f"{folder} is incomplete: delete it")


@command.command("find", hidden=True, epilog="\b\nExample:  kgops data find --json < /dev/null")
@click.option(
    "--json", "as_json", is_flag=True, required=True, help="JSON on stdout, the only form there is."
)
def _find(as_json: bool) -> None:
    """Say where the data that a list on standard input describes lie here. `kgops run --host` of another machine asks.

    Data are found by their SHA-256, at the path they have there or among those that were sent here. A number says how
    many bytes came before a copy broke off."""
    try:
        wanted = json.loads(sys.stdin.buffer.read(_LONGEST_LIST) or b"[]")
    except (ValueError, RecursionError) as error:
        raise Usage("standard input is not a list of data") from error
    home = find_home()
    found = [_place_of(home, one) for one in (wanted if isinstance(wanted, list) else [])]
    print_json([str(place) if isinstance(place, Path) else place for place in found])


def _place_of(home: Home, wanted: Any) -> Path | int | None:
    try:
        path, is_model, size = Path(wanted["path"]), bool(wanted["is_model"]), int(wanted["size"])
        digest, below_root = str(wanted["digest"]), str(wanted["below_root"])
    except (TypeError, KeyError, ValueError) as error:
        raise Usage("standard input is not a list of data") from error
    try:
        # Of another size they are others: not read.
        if size_of(path, is_model=is_model) == size:
            same = read_data_files(path, is_model=is_model)
            if same.digest == digest:
                return path
    except (OSError, Usage):
        pass  # not there, or nobody may read it: looked for among those that were sent
    if not is_place(below_root):
        return None
    return find_kept(home, digest, below_root) or bytes_of_part(home, digest) or None


@command.command("keep", hidden=True, epilog="\b\nExample:  kgops data keep SHA256 train.tsv < /dev/null")
@click.argument("digest", metavar="SHA256")
@click.argument("name")
@click.option("--begun", type=click.IntRange(0), default=0, help="Bytes that came before a copy broke off.")
def _keep(digest: str, name: str, begun: int) -> None:
    """Keep the files of a tar archive on standard input in the home, once, as `kgops run --host` sends them.

    SHA256 is that of what `sha256sum` prints for the files; NAME is the file or folder whose path is printed."""
    from kgops.hosts.archive import unpack_rest

    if not is_place(name):
        raise Usage(f"{name!r:.80} is not a name below a folder")
    home = find_home()
    make_home(home)
    say(str(keep(home, digest, name, begun, lambda folder: unpack_rest(_Input(), folder))))


class _Input:
    """Standard input, which a broken connection may leave open for hours."""

    def read(self, size: int, /) -> bytes:
        found = bytearray()
        while len(found) < size:
            if not select.select([0], [], [], _SILENT_S)[0]:
                raise CutOff(f"nothing came for {_SILENT_S:.0f} s")
            block = os.read(0, size - len(found))
            if not block:
                break
            found += block
        return bytes(found)


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
