"""Profiles: all of them, which suit this machine, why each value is what it is, and a copy to edit."""

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
from screens.actions import Place as Where
from screens.background import begin
from screens.profiles_page import Known, Told
from screens.rows import Piece, Row
from screens.run_screen import Place
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage.errors import StorageError

if TYPE_CHECKING:
    from screens.feed import Moment, Wanted
    from storage.runs import Run

__all__ = ["Profiles"]

_WIDE = 110


class Profiles(Place):
    place: ClassVar[Where] = "profiles"

    def __init__(self) -> None:
        super().__init__()
        self._known: Known | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        with Container(id="halves"):
            yield Lines(id="body", cursor=True)
            yield Lines(id="detail", scrolls=True)
        yield Keys()

    def on_mount(self) -> None:
        begin(self, self._look)

    async def _look(self) -> None:
        try:
            self._known = await asyncio.to_thread(profiles_page.look, self.kgops.home)
        except (KgopsError, StorageError) as error:
            self.say(error.message, "bad")
        self.draw()

    # --- what all screens are asked ---

    @property
    def wanted(self) -> Wanted:
        return None

    @property
    def subject(self) -> Run | None:
        return None

    def show_moment(self, moment: Moment) -> None:
        """What goes on elsewhere is not shown here."""

    def title_row(self, width: int) -> Row:
        return Row((Piece("profiles", "strong"), Piece("  a value you give stands before theirs", "dim")))

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "wide")

    def draw(self) -> None:
        width = self.size.width
        left = (width - 2) // 2 if width >= _WIDE else width
        right = width - left - 2 if width >= _WIDE else width
        self.query_one("#body", Lines).show(profiles_page.list_rows(self._known, left))
        shown = profiles_page.detail_rows(self._known, self._selected, right)
        self.query_one("#detail", Lines).show(shown)
        self.show_title()

    def on_lines_pointed(self) -> None:
        self.query_one("#detail", Lines).scroll_home(animate=False)
        self.draw()

    @property
    def _selected(self) -> Told | None:
        key = self.query_one("#body", Lines).key
        known = self._known.profiles if self._known is not None else ()
        return next((one for one in known if one.name == key), None)

    # --- what keys do ---

    def action_edit(self) -> None:
        """One's own file is edited itself, a shipped profile as a copy in this folder."""
        one = self._selected
        if one is not None:
            begin(self, partial(self._edit, one), instead="edit")

    async def _edit(self, one: Told) -> None:
        try:
            is_own = one.name.endswith(".toml")
            path = Path(one.name) if is_own else await asyncio.to_thread(_copy, one)
        except (KgopsError, OSError) as error:
            self.say(str(error), "bad")
            return
        told = self._in_editor(path)
        await self._look()
        self.query_one("#body", Lines).point_at(path.name)
        self.say(told, "strong")

    def _in_editor(self, path: Path) -> str:
        """Waits for it: the terminal is the editor's until then, and nothing could be shown."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        try:
            with self.app.suspend():
                subprocess.run([*shlex.split(editor), str(path)], check=False)
        except SuspendNotSupported:
            return f"{path} is yours to edit; this terminal cannot be lent to an editor"
        except (OSError, ValueError) as error:
            return f"{path} is yours to edit; {editor}: {error}"
        return f"edited {path}: kgops run --profile {path}"


def _copy(one: Told) -> Path:
    assert one.profile is not None  # only a file of the person's may not be one
    return write_copy(one.profile)
