"""Rows of the profiles screen, and the profiles read for it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgops.cli.profiles import conflicts_of, fits_here, gpus_here, in_order, suits, what_it_sets
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
from kgops.views.accuracy import accuracy_page
from screens.rows import BLANK, Column, Columns, Piece, Row, text_row
from storage import predictions
from storage.database import open_reader
from storage.errors import DatabaseMissing

__all__ = ["ProfileDetail", "ProfileList", "detail_rows", "list_rows", "read_profiles"]


@dataclass(frozen=True, slots=True)
class ProfileDetail:
    """One profile: `problems` are errors of its file, `conflicts` values that rules would change here."""

    name: str
    here: str
    sets: str
    text: tuple[str, ...]
    problems: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class ProfileList:
    profiles: tuple[ProfileDetail, ...]
    accuracy: tuple[str, ...]


def read_profiles(home: Home) -> ProfileList:
    """Reads all profiles; waits for disk and GPU driver."""
    gpus = gpus_here()
    shipped = sorted((profiles.find(name) for name in profiles.names()), key=in_order)
    own = [_of_file(path, gpus) for path in sorted(Path().glob("my-*.toml"))]
    listed = [_detail_of(one, one.name, gpus) for one in shipped]
    listed.sort(
        key=lambda detail: not detail.here.startswith("gpu")
    )  # profiles for GPUs of this machine first
    return ProfileList((*own, *listed), tuple(_accuracy(home)))


def list_rows(listed: ProfileList | None, width: int) -> list[Row]:
    columns = Columns(
        (Column("PROFILE", 14), Column("here", 12), Column("sets", 20, grows=True)),
        width,
    )
    rows = [columns.heading()]
    if listed is None:
        return [*rows, text_row("reading GPUs", width, "dim")]
    for one in listed.profiles:
        fits = one.here.startswith("gpu") or one.here == "any machine"
        here = Piece("not here" if one.here == "-" else one.here, "good" if fits else "dim")
        sets = Piece(one.problems[0] if one.problems else one.sets, "bad" if one.problems else "dim")
        rows.append(columns.row([Piece(one.name), here, sets], key=one.name))
    return rows


def detail_rows(listed: ProfileList | None, one: ProfileDetail | None, width: int) -> list[Row]:
    """The selected profile with its problems here, and the accuracy of past memory estimates."""
    if listed is None or one is None:
        return []
    rows: list[Row] = []
    if one.problems or one.conflicts:
        rows.append(text_row("PROBLEMS" if one.problems else "RULES WOULD CHANGE", width, "head"))
        rows += [text_row(text, width, "bad") for text in one.problems]
        rows += [text_row(text, width, "warn") for text in one.conflicts]
        rows.append(BLANK)
    rows += [
        text_row(one.name, width, "head"),
        *(row for text in _whole(one.text) for row in _lines(text, width)),
        BLANK,
    ]
    return [
        *rows,
        text_row("MEMORY ESTIMATES SO FAR", width, "head"),
        *_table_or_sentence(listed.accuracy, width),
    ]


def _table_or_sentence(lines: Sequence[str], width: int) -> list[Row]:
    """A table with heading, or one sentence."""
    if len(lines) == 1:
        return _lines(lines[0], width)
    return [text_row(line, width, "dim" if n == 0 else "text") for n, line in enumerate(lines)]


def _whole(lines: Sequence[str]) -> list[str]:
    """Joins the lines of a comment; commands and values keep their lines."""
    out: list[str] = []
    for line in lines:
        goes_on = out and all(text.startswith("# ") and " = " not in text for text in (out[-1], line))
        if goes_on and not out[-1].startswith("# kgops "):
            out[-1] += line[1:]
        else:
            out.append(line)
    return out


def _lines(text: str, width: int) -> list[Row]:
    """Wraps a comment or a long value."""
    tone = "dim" if text.startswith(("#", "[")) else "text"
    continuation = "# " if text.startswith("#") else "  "
    whole = textwrap.wrap(
        one_line(text), max(width, 20), subsequent_indent=continuation, break_on_hyphens=False
    )
    return [text_row(line, width, tone) for line in whole or [""]]


def _of_file(path: Path, gpus: tuple[GpuReading, ...] | None) -> ProfileDetail:
    """A user's profile, or the errors of its file."""
    try:
        return _detail_of(profiles.find(str(path)), path.name, gpus)
    except BadJob as error:
        problems = tuple(one_line(problem) for problem in error.problems)
        return ProfileDetail(path.name, "-", "", _text(path), problems)
    except KgopsError as error:
        return ProfileDetail(path.name, "-", "", (), (one_line(error.message),))


def _detail_of(profile: Profile, name: str, gpus: tuple[GpuReading, ...] | None) -> ProfileDetail:
    """A profile with its conflicts on each suitable GPU of this machine."""
    suited = suits(profile, gpus) if gpus is not None else []
    meant = [gpu for gpu in gpus or () if gpu.index in suited or not profile.gpus]
    here = [gpu for gpu in meant if gpu.problem is None]
    if here:
        several = len(gpus or ()) > 1
        changed_values = tuple(
            f"options.{one}" + (f" (on GPU {gpu.index})" if several else "")
            for gpu in here
            for one in conflicts(profile, facts_of_reading(gpu))
        )
    else:
        changed_values = tuple(conflicts_of(profile))
    return ProfileDetail(
        name,
        fits_here(profile, gpus),
        what_it_sets(profile),
        _text(profile.path),
        conflicts=changed_values,
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
