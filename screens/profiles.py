"""Profiles screen: all profiles, which suit this machine, their values and reasons; edit a copy."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult, SuspendNotSupported
from textual.containers import Container

from kgops.cli.profiles import write_copy
from kgops.errors import KgopsError
from screens import profiles_page
from screens.actions import ScreenName
from screens.driver import begin
from screens.profiles_page import ProfileDetail, ProfileList
from screens.rows import Piece, Row
from screens.run_screen import RunScreenBase
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage.errors import StorageError

if TYPE_CHECKING:
    from screens.feed import FeedState, Wanted
    from storage.runs import Run

__all__ = ["Profiles"]

_WIDE = 110


class Profiles(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "profiles"

    def __init__(self) -> None:
        super().__init__()
        self._profiles: ProfileList | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        with Container(id="halves"):
            yield Lines(id="body", cursor=True)
            yield Lines(id="detail", scrolls=True)
        yield Keys()

    def on_mount(self) -> None:
        begin(self, self._read)

    async def _read(self) -> None:
        try:
            self._profiles = await asyncio.to_thread(profiles_page.read_profiles, self.kgops.home)
        except (KgopsError, StorageError) as error:
            self.say(error.message, "bad")
        self.draw()

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
        width = self.size.width
        left = (width - 2) // 2 if width >= _WIDE else width
        right = width - left - 2 if width >= _WIDE else width
        self.query_one("#body", Lines).show(profiles_page.list_rows(self._profiles, left))
        shown = profiles_page.detail_rows(self._profiles, self._selected, right)
        self.query_one("#detail", Lines).show(shown)
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
