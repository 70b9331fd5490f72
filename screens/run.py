"""One run: how far it is, its curves, levers, attempts, what it was asked and what it left behind, and its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, overload

from textual.app import ComposeResult

from kgops.jobs.text import one_line
from screens import run_page
from screens.actions import Place as Where
from screens.feed import Moment, OneRun
from screens.place import Place
from screens.rows import Piece, Row, said
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from screens.words import sign_of, since, state_of, took

if TYPE_CHECKING:
    from kgops.runs.dossier import Dossier
    from screens.feed import Wanted
    from storage.runs import Run

__all__ = ["RunScreen"]

_NO_LOG = "nothing yet"
_BAD = ("error", "traceback", "exception", "fatal", "killed")


class RunScreen(Place):
    place: ClassVar[Where] = "run"

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._dossier: Dossier | None = None
        self._log: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body", scrolls=True)
        yield Lines(id="heading")
        yield Lines(id="log", scrolls=True)
        yield Keys()

    def on_mount(self) -> None:
        log = self.query_one("#log", Lines)
        log.ends_followed = log.follows = True

    @property
    def wanted(self) -> Wanted:
        return OneRun(self._run.id)

    @property
    def subject(self) -> Run:
        return self._run

    def show_moment(self, moment: Moment) -> None:
        if moment.of != self.wanted:
            return
        if moment.dossier is None:
            self.say(moment.trouble or f"run {self._run.id} is no longer in the record", "bad")
            return
        self._dossier, self._run, self._log = moment.dossier, moment.dossier.run, moment.log
        self.draw()

    def give_log_room(self) -> None:
        """All the room it can get, or only the lower part as before."""
        log = self.query_one("#log", Lines)
        log.toggle_class("tall")
        log.focus() if log.has_class("tall") else self.query_one("#body", Lines).focus()

    def title_row(self, width: int) -> Row:
        run = self._run
        paused = [Piece("  paused", "warn")] if self.kgops.feed.paused else []
        when = took(run) if run.ended else since(run)
        sign = sign_of(run)
        words = f"{run.id} {run.workload} {one_line(run.label, max(width - 50, 12))}"
        tone = "text" if sign.tone == "accent" else sign.tone
        return Row(
            (
                Piece(words, "strong"),
                Piece("  "),
                sign,
                Piece(f" {state_of(run)}", tone),
                Piece(f"  {when}", "dim"),
                *paused,
            )
        )

    def draw(self) -> None:
        width = self.size.width
        if self._dossier is not None:
            self.query_one("#body", Lines).show(run_page.rows(self._dossier, width))
        log = self.query_one("#log", Lines)
        log.show(_LogRows(self._log or (_NO_LOG,), width))
        how = "as it grows" if log.follows and not self._run.ended else "the last lines"
        self.query_one("#heading", Lines).show([Row((Piece("LOG", "head"), Piece(f"  {how}", "dim")))])
        self.show_title()


class _LogRows(Sequence[Row]):
    """Lines of a log as rows, each made when it is looked at."""

    def __init__(self, lines: tuple[str, ...], width: int) -> None:
        self._lines, self._width = lines, width

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            return _LogRows(self._lines[at], self._width)
        line = self._lines[at]
        lowered = line[:200].lower()
        tone = "bad" if any(word in lowered for word in _BAD) else "warn" if "warn" in lowered else "text"
        return said(line, self._width, tone)
