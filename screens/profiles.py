"""Profiles screen: all profiles, which suit this machine, their values and reasons; edit a copy."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult, SuspendNotSupported
from textual.containers import Container

from kgops.cli.profiles import conflicts_of, fits_here, gpus_here, in_order, suits, what_it_sets, write_copy
from kgops.cli.suggest_page import accuracy_sentences
from kgops.errors import BadJob, KgopsError
from kgops.gpus.facts import cuda_problem, facts_of_reading
from kgops.gpus.known import known_by_short_name
from kgops.gpus.readings import GpuReading, usable
from kgops.jobs.files import read_regular
from kgops.jobs.on_device import AUTO, CPU
from kgops.jobs.text import one_line
from kgops.planning import profiles
from kgops.planning.profiles import Profile, suited_to_gpu
from kgops.planning.resolve import conflicts
from kgops.present.rows import BLANK, Column, Columns, Piece, Row, text_row
from kgops.settings import Home
from kgops.workloads.job_files import LARGEST_JOB_FILE
from kgops.workloads.registry import timed_by_epoch
from screens.actions import ScreenName
from screens.background import begin
from screens.run_screen import RunScreenBase
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage import predictions
from storage.database import open_reader
from storage.errors import DatabaseMissing, StorageError

if TYPE_CHECKING:
    from screens.feed_state import FeedState, Wanted
    from storage.runs import Run

_WIDE = 110


class Profiles(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "profiles"

    def __init__(self) -> None:
        super().__init__()
        self._profiles: ProfileList | None = None
        self._has_pointed = False

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        with Container(id="halves"):
            yield Lines(id="body", cursor=True, panels=True)
            yield Lines(id="detail", scrolls=True, panels=True)
        yield Keys()

    def on_mount(self) -> None:
        begin(self, self._read)

    async def _read(self) -> None:
        try:
            self._profiles = await asyncio.to_thread(read_profiles, self.kgops.home)
        except (KgopsError, StorageError) as error:
            self.say(error.message, "bad")
        self.draw()
        if self._profiles is not None and not self._has_pointed:
            self._has_pointed = True
            self.query_one("#body", Lines).point_at(self._profiles.suggested)

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return None

    @property
    def subject(self) -> Run | None:
        return None

    def show_state(self, state: FeedState) -> None:
        """Runs are not shown here."""

    def title_row(self, width: int) -> Row:
        return Row((Piece("profiles", "strong"), Piece("  your own options override profile values", "dim")))

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "wide")

    def draw(self) -> None:
        body, detail = self.query_one("#body", Lines), self.query_one("#detail", Lines)
        body.show(_list_rows(self._profiles, body.room))
        detail.show(_detail_rows(self._profiles, self._selected, detail.room))
        self.show_title()

    def on_lines_pointed(self) -> None:
        self.query_one("#detail", Lines).scroll_home(animate=False)
        self.draw()

    @property
    def _selected(self) -> ProfileDetail | None:
        key = self.query_one("#body", Lines).key
        listed = self._profiles.profiles if self._profiles is not None else ()
        return next((profile_detail for profile_detail in listed if profile_detail.name == key), None)

    # --- key actions ---

    def open_new_run(self) -> None:
        """With the profile under the cursor, on the first GPU here that it suits."""
        one = self._selected
        if one is None or one.profile is None:
            self.say("this profile has errors: e edits it", "warn")
            return
        if one.is_elsewhere:
            model = one.profile.gpus[0]
            known = known_by_short_name(model)
            title = known.title if known is not None else model
            self.say(f"no {title} is here; plan for one: kgops suggest train --gpu {model}", "warn")
            return
        self.kgops.open_new_run(one.gpu, profile=one.name)

    def action_edit(self) -> None:
        """Edits a user's profile in place, a shipped one as a copy in this folder."""
        profile_detail = self._selected
        if profile_detail is not None:
            begin(self, partial(self._edit, profile_detail), instead="edit")

    async def _edit(self, profile_detail: ProfileDetail) -> None:
        try:
            is_own = profile_detail.name.endswith(".toml")
            path = Path(profile_detail.name) if is_own else await asyncio.to_thread(_copy, profile_detail)
        except (KgopsError, OSError) as error:
            self.say(str(error), "bad")
            return
        message = self._in_editor(path)
        await self._read()
        self.query_one("#body", Lines).point_at(path.name)
        self.say(message, "strong")

    def _in_editor(self, path: Path) -> str:
        """Suspends the app until the editor exits."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        try:
            with self.app.suspend():
                subprocess.run([*shlex.split(editor), str(path)], check=False)
        except SuspendNotSupported:
            return f"edit {path} yourself: this terminal cannot open an editor"
        except (OSError, ValueError) as error:
            return f"edit {path} yourself; {editor}: {error}"
        return f"edited {path}: kgops run --profile {path}"


def _copy(profile_detail: ProfileDetail) -> Path:
    assert profile_detail.profile is not None  # only a user's file may be invalid
    return write_copy(profile_detail.profile)


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
    gpu: str | None = None  # the first GPU here that it suits, as `--gpu` calls it
    suits_here: bool = False  # a GPU here, or the CPU of a machine without one

    @property
    def is_elsewhere(self) -> bool:
        """Whether it was made for GPUs, and none of them is here."""
        return self.here == "-" and self.profile is not None and bool(self.profile.gpus)


@dataclass(frozen=True, slots=True)
class ProfileList:
    profiles: tuple[ProfileDetail, ...]
    accuracy: tuple[str, ...]
    suggested: str  # for the first GPU here, or for the CPU


def read_profiles(home: Home) -> ProfileList:
    """Reads all profiles; waits for disk and GPU driver."""
    gpus = gpus_here()
    shipped = sorted((profiles.find(name) for name in profiles.names()), key=in_order)
    own = [_of_file(path, gpus) for path in sorted(Path().glob("my-*.toml"))]
    listed = [_detail_of(one, one.name, gpus) for one in shipped]
    listed.sort(key=lambda detail: not detail.suits_here)
    suggested = suited_to_gpu(gpus[0].name) if gpus else CPU if gpus == () else AUTO
    return ProfileList((*own, *listed), tuple(_accuracy(home)), suggested)


def _list_rows(listed: ProfileList | None, width: int) -> list[Row]:
    columns = Columns(
        (Column("PROFILES", 14), Column("here", 12), Column("sets", 20, grows=True)),
        width,
    )
    rows = [columns.heading()]
    if listed is None:
        return [*rows, text_row("reading GPUs", width, "dim")]
    for one in listed.profiles:
        here = Piece("not here" if one.here == "-" else one.here, "good" if one.suits_here else "dim")
        sets = Piece(one.problems[0] if one.problems else one.sets, "bad" if one.problems else "dim")
        rows.append(columns.row([Piece(one.name), here, sets], key=one.name))
    return rows


def _detail_rows(listed: ProfileList | None, one: ProfileDetail | None, width: int) -> list[Row]:
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
        *(row for text in listed.accuracy for row in _lines(text, width)),
    ]


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
        gpu=_first_gpu(gpus or (), suited),
        suits_here=bool(suited) or (profile.name == CPU and gpus == ()),
    )


def _first_gpu(gpus: Sequence[GpuReading], suited: Sequence[int]) -> str | None:
    """None where torch can use none of them."""
    here = [gpu for gpu in usable(gpus) if gpu.index in suited and gpu.problem is None]
    return here[0].names[0] if here and cuda_problem() is None else None


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
        return accuracy_sentences([])
    try:
        return accuracy_sentences(predictions.newest(conn, by_epoch=timed_by_epoch()))
    finally:
        conn.close()
