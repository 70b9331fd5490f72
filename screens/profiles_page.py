"""What the profiles screen shows: what was looked up, and how it reads as rows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgops.cli.profiles import conflicts_of, fits_here, gpus_here, in_order, suits, what_it_sets
from kgops.cli.suggest_page import accuracy_page
from kgops.errors import BadJob, KgopsError
from kgops.gpus.facts import facts_of_reading
from kgops.gpus.readings import GpuReading
from kgops.jobs.files import read_regular
from kgops.jobs.job import LARGEST_JOB_FILE
from kgops.jobs.text import one_line
from kgops.planning import profiles
from kgops.planning.profiles import Profile
from kgops.planning.resolve import conflicts
from kgops.settings import Home
from screens.rows import BLANK, Column, Columns, Piece, Row, said
from storage import predictions
from storage.database import open_reader
from storage.errors import DatabaseMissing

__all__ = ["Known", "Told", "detail_rows", "list_rows", "look"]


@dataclass(frozen=True, slots=True)
class Told:
    """One profile as it is shown; `problems` are of the file, or what rules would change on a GPU."""

    name: str
    here: str
    sets: str
    text: tuple[str, ...]
    problems: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class Known:
    profiles: tuple[Told, ...]
    accuracy: tuple[str, ...]


def look(home: Home) -> Known:
    """All of it; waits for disks and the driver."""
    gpus = gpus_here()
    shipped = sorted((profiles.find(name) for name in profiles.names()), key=in_order)
    own = [_of_file(path, gpus) for path in sorted(Path().glob("my-*.toml"))]
    known = [_told(one, one.name, gpus) for one in shipped]
    known.sort(key=lambda told: not told.here.startswith("gpu"))  # first what was made for a GPU that is here
    return Known((*own, *known), tuple(_accuracy(home)))


def list_rows(known: Known | None, width: int) -> list[Row]:
    columns = Columns(
        (Column("PROFILE", 14), Column("here", 12), Column("sets", 20, grows=True)),
        width,
    )
    rows = [columns.heading()]
    if known is None:
        return [*rows, said("asking this machine's driver", width, "dim")]
    for one in known.profiles:
        fits = one.here.startswith("gpu") or one.here == "any machine"
        here = Piece("not here" if one.here == "-" else one.here, "good" if fits else "dim")
        sets = Piece(one.problems[0] if one.problems else one.sets, "bad" if one.problems else "dim")
        rows.append(columns.row([Piece(one.name), here, sets], key=one.name))
    return rows


def detail_rows(known: Known | None, one: Told | None, width: int) -> list[Row]:
    """The selected profile whole, what speaks against it here, and how good predictions were so far."""
    if known is None or one is None:
        return []
    rows: list[Row] = []
    if one.problems or one.conflicts:
        rows.append(said("PROBLEMS" if one.problems else "RULES WOULD CHANGE", width, "head"))
        rows += [said(text, width, "bad") for text in one.problems]
        rows += [said(text, width, "warn") for text in one.conflicts]
        rows.append(BLANK)
    rows += [
        said(one.name, width, "head"),
        *(row for text in _whole(one.text) for row in _lines(text, width)),
        BLANK,
    ]
    return [*rows, said("PREDICTED MEMORY SO FAR", width, "head"), *_said_all(known.accuracy, width)]


def _said_all(lines: Sequence[str], width: int) -> list[Row]:
    """A table with its heading, or one sentence."""
    if len(lines) == 1:
        return _lines(lines[0], width)
    return [said(line, width, "dim" if n == 0 else "text") for n, line in enumerate(lines)]


def _whole(lines: Sequence[str]) -> list[str]:
    """Comments without the ends of lines that they have in the file; a command or a value stays by itself."""
    out: list[str] = []
    for line in lines:
        goes_on = out and all(text.startswith("# ") and " = " not in text for text in (out[-1], line))
        if goes_on and not out[-1].startswith("# kgops "):
            out[-1] += line[1:]
        else:
            out.append(line)
    return out


def _lines(text: str, width: int) -> list[Row]:
    """A comment says why, and is there to be read to its end; so is a long value."""
    tone = "dim" if text.startswith(("#", "[")) else "text"
    again = "# " if text.startswith("#") else "  "
    whole = textwrap.wrap(one_line(text), max(width, 20), subsequent_indent=again, break_on_hyphens=False)
    return [said(line, width, tone) for line in whole or [""]]


def _of_file(path: Path, gpus: tuple[GpuReading, ...] | None) -> Told:
    """A person's own; where it is no profile, what is wrong with it."""
    try:
        return _told(profiles.find(str(path)), path.name, gpus)
    except BadJob as error:
        problems = tuple(one_line(problem) for problem in error.problems)
        return Told(path.name, "-", "", _text(path), problems)
    except KgopsError as error:
        return Told(path.name, "-", "", (), (one_line(error.message),))


def _told(profile: Profile, name: str, gpus: tuple[GpuReading, ...] | None) -> Told:
    """Each GPU that it was made for by itself; what suits any machine on each that is here."""
    suited = suits(profile, gpus) if gpus is not None else []
    meant = [gpu for gpu in gpus or () if gpu.index in suited or not profile.gpus]
    here = [gpu for gpu in meant if gpu.problem is None]
    if here:
        several = len(gpus or ()) > 1
        found = tuple(
            f"options.{one}" + (f" (on GPU {gpu.index})" if several else "")
            for gpu in here
            for one in conflicts(profile, facts_of_reading(gpu))
        )
    else:
        found = tuple(conflicts_of(profile))
    return Told(
        name,
        fits_here(profile, gpus),
        what_it_sets(profile),
        _text(profile.path),
        conflicts=found,
        profile=profile,
    )


def _text(path: Path) -> tuple[str, ...]:
    return tuple(
        read_regular(path, at_most=LARGEST_JOB_FILE, follow=True)
        .decode(errors="replace")
        .rstrip()
        .splitlines()
    )


def _accuracy(home: Home) -> list[str]:
    try:
        conn = open_reader(home.database)
    except DatabaseMissing:
        return accuracy_page([])
    try:
        return accuracy_page(predictions.newest(conn))
    finally:
        conn.close()
