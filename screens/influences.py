"""Influences screen: test triples of a TracIn run with their proponents and opponents."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container

from kgops.errors import KgopsError
from kgops.jobs.text import one_line
from kgops.present import influences as influence_views
from kgops.present.formats import fitted, shortened, width_of
from kgops.present.influences import RunInfluences
from kgops.present.rows import Column, Columns, Piece, Row, text_row, text_rows
from kgops.present.wording import going
from screens.actions import ScreenName
from screens.background import begin
from screens.copying import Copyable
from screens.feed_state import HISTORY
from screens.run_screen import RunScreenBase
from screens.widgets.bar import sides, signed_bar
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines
from storage.errors import DatabaseMissing, StorageError
from storage.influences import Influence, TestTriple

if TYPE_CHECKING:
    from screens.feed_state import FeedState, Wanted
    from storage.influences import Influence, TestTriple
    from storage.runs import Run

_SIDES = ("both", "proponents", "opponents")
_TRIPLE = "head · relation · tail"
_NARROWEST, _WIDEST = 7, 20  # columns of a side of the bars: what the names leave
_SCORE = 21  # columns of the score, and between columns


@dataclass(frozen=True, slots=True)
class InfluenceFilter:
    """Filter of influences by side, relation and words."""

    side: str = "both"
    relation: str | None = None
    words: str = ""

    def of(self, influences: RunInfluences, test: TestTriple) -> list[Influence]:
        return [
            influence
            for influence in influences.by_test.get(test.test, ())
            if self._matches(influences, influence)
        ]

    def other_side(self) -> InfluenceFilter:
        return replace(self, side=_SIDES[(_SIDES.index(self.side) + 1) % len(_SIDES)])

    def next_relation(self, influences: RunInfluences, test: TestTriple) -> InfluenceFilter:
        """The next relation among the test triple's influences; after the last, all."""
        known = [None, *sorted({influence.relation for influence in influences.by_test.get(test.test, ())})]
        at = known.index(self.relation) + 1 if self.relation in known else 0
        return replace(self, relation=known[at % len(known)])

    def with_words(self, words: str) -> InfluenceFilter:
        return replace(self, words=words.casefold())

    def _matches(self, influences: RunInfluences, influence: Influence) -> bool:
        if (self.side == "proponents" and influence.rank < 0) or (
            self.side == "opponents" and influence.rank > 0
        ):
            return False
        if self.relation is not None and influence.relation != self.relation:
            return False
        text = " ".join(
            f"{label} {influences.name_of(label)}"
            for label in (influence.head, influence.relation, influence.tail)
        )
        return all(word in text.casefold() for word in self.words.split())

    def description(self, influences: RunInfluences) -> str:
        parts = [self.side if self.side != "both" else "proponents and opponents"]
        parts += (
            [f"relation {one_line(influences.name_of(self.relation))}"] if self.relation is not None else []
        )
        parts += [f"with {one_line(self.words)}"] if self.words else []
        return ", ".join(parts)


def test_rows(influences: RunInfluences | None, width: int, error_text: str | None) -> list[Row]:
    if influences is None:
        if error_text is None:
            return [text_row("reading influences", width, "dim")]
        first = "`kgops run` runs a demo; `kgops tracin --run N` explains the test triples of run N"
        return [text_row("TEST TRIPLES", width, "head"), text_row(error_text, width), *_wrapped(first, width)]
    rows = [text_row("TEST TRIPLES", width, "head")]
    if not influences.tests:
        what = (
            "no test triple is done yet"
            if not influences.run.ended
            else f"run {influences.run.id} has no test triples"
        )
        first = "esc goes back; n on the dashboard starts a TracIn run"
        return [*rows, text_row(what, width), *_wrapped(first, width)]
    if influences.rest is not None:
        rows += [
            text_row(line, width, "warn") for line in textwrap.wrap(one_line(influences.rest), max(width, 1))
        ]
    for test in influences.tests:
        tone = "warn" if test.trouble else "text"
        named = _triple_text(influences, (test.head, test.relation, test.tail), width - 5)
        rows.append(text_row(f"{test.test:>3}  {named}", width, tone, key=test.test))
    return rows


def _wrapped(text: str, width: int) -> list[Row]:
    return [text_row(line, width, "dim") for line in textwrap.wrap(text, max(width, 20))]


def influence_rows(
    influences: RunInfluences | None, test: TestTriple | None, influence_filter: InfluenceFilter, width: int
) -> list[Row]:
    """Influences of one test triple: bars of proponents go right, of opponents left."""
    if influences is None or test is None:
        return []
    if test.trouble is not None:
        return [text_row("NO INFLUENCES", width, "head"), text_row(test.trouble, width, "warn")]
    shown = influence_filter.of(influences, test)
    labels = [(one.head, one.relation, one.tail) for one in shown]
    longest = max((width_of(_whole(influences, one)) for one in labels), default=0)
    side = min(max((width - longest - _SCORE) // 2, _NARROWEST), _WIDEST)
    columns = Columns(
        (
            Column(sides(side), len(sides(side))),
            Column("score", 10, right=True),
            Column(_TRIPLE, 20, grows=True),
        ),
        width,
    )
    all_found = influences.by_test.get(test.test, ())
    counted = f"{len(shown)} of {len(all_found)}: {influence_filter.description(influences)}"
    head = Row((Piece("INFLUENCES", "head"), Piece(f"  {fitted(counted, width - 12)}", "dim")))
    tested = _whole(influences, (test.head, test.relation, test.tail))
    rows = [head, *text_rows(f"{test.test}  {tested}", width, "strong"), columns.heading()]
    largest = max((abs(influence.score) for influence in all_found), default=0.0)
    for influence, named in zip(shown, labels, strict=True):
        words = Piece(_triple_text(influences, named, columns.width_of(_TRIPLE)))
        bar = signed_bar(influence.score, largest, side)
        rows.append(
            columns.row(
                [bar, Piece(f"{influence.score:+#.4g}", "strong"), words],
                key=influence.rank,
            )
        )
    return rows if shown else [*rows, text_row("none matches the filter", width, "dim")]


def _whole(influences: RunInfluences, labels: Sequence[str]) -> str:
    return " · ".join(one_line(influences.name_of(label)) for label in labels)


def _triple_text(influences: RunInfluences, labels: Sequence[str], width: int) -> str:
    names = [one_line(influences.name_of(label)) for label in labels]
    return " · ".join(shortened(names, width - 6))


_SHARE = 20  # after a read, so many times as long without one: 5 % of a CPU
_WIDE = 110  # columns from which test triples are on the left


class Influences(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "influences"

    def __init__(self, run: Run | None) -> None:
        """Influences of `run`, or of the newest TracIn run."""
        super().__init__()
        self._run = run
        self._influences: RunInfluences | None = None
        self._influence_filter = InfluenceFilter()
        self._error: str | None = None
        self._reading = False
        self._has_changed = False  # the record, since it was read

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        with Container(id="halves"):
            yield Lines(id="body", cursor=True, panels=True)
            yield Lines(id="influences", cursor=True, panels=True)
        yield Keys()

    def on_mount(self) -> None:
        self._read_again()

    def _read_again(self) -> None:
        self._has_changed = True
        if not self._reading:
            self._reading = True
            begin(self, self._keep_reading)

    async def _keep_reading(self) -> None:
        """Until the record has not changed meanwhile."""
        while self._has_changed:
            self._has_changed = False
            began = time.monotonic()
            await self._read()
            await asyncio.sleep(_SHARE * (time.monotonic() - began))
        self._reading = False

    async def _read(self) -> None:
        try:
            run = self._run or await asyncio.to_thread(influence_views.newest, self.kgops.home)
            if run is None:
                self._error = "no TracIn run yet"
            else:
                self._influences = await asyncio.to_thread(influence_views.of_run, self.kgops.home, run.id)
                self._run, self._error = self._influences.run, None
        except DatabaseMissing:
            self._error = "no TracIn run yet"
        except (KgopsError, StorageError) as error:
            self._error = error.message
        self.draw()

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return HISTORY

    @property
    def subject(self) -> Run | None:
        return self._run

    def show_state(self, state: FeedState) -> None:
        """Follows a run until it has ended, or until there is one."""
        ended = self._influences is not None and self._influences.run.ended
        if state.wanted == HISTORY and not ended:
            self._read_again()

    def title_row(self, width: int) -> Row:
        if self._run is None:
            return Row((Piece("influences", "strong"),))
        label = one_line(self._run.label, max(width - 40, 12))
        now = "" if self._run.ended else f"  {going(self._run)}"
        words = f"influences of {self._run.id} {self._run.workload} {label}"
        return Row((Piece(words, "strong"), Piece(now, "dim")))

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "wide")

    def draw(self) -> None:
        body, right = self.query_one("#body", Lines), self.query_one("#influences", Lines)
        body.show(test_rows(self._influences, body.room, self._error))
        rows = influence_rows(self._influences, self.test, self._influence_filter, right.room)
        right.show(rows)
        self.show_title()

    def on_lines_pointed(self) -> None:
        self.draw()

    # --- the triple under the cursor ---

    @property
    def test(self) -> TestTriple | None:
        key = self.query_one("#body", Lines).key
        tests = self._influences.tests if self._influences is not None else ()
        return next((one for one in tests if one.test == key), None)

    @property
    def _influence(self) -> Influence | None:
        key = self.query_one("#influences", Lines).key
        return next((one for one in self._shown if one.rank == key), None)

    @property
    def _shown(self) -> list[Influence]:
        test = self.test
        return (
            self._influence_filter.of(self._influences, test)
            if self._influences is not None and test is not None
            else []
        )

    # --- key actions ---

    @property
    def copyable(self) -> list[Copyable]:
        """The triples under the cursors, with tabs as in files of triples."""
        named = (("t", "test triple", self.test), ("n", "influence", self._influence))
        return [
            *super().copyable,
            *(
                Copyable(key, name, "\t".join(map(one_line, (one.head, one.relation, one.tail))))
                for key, name, one in named
                if one is not None
            ),
        ]

    def action_side(self) -> None:
        self._influence_filter = self._influence_filter.other_side()
        self.draw()

    def action_relation(self) -> None:
        if self._influences is not None and self.test is not None:
            self._influence_filter = self._influence_filter.next_relation(self._influences, self.test)
            self.draw()

    def action_search(self) -> None:
        self.kgops.prompt("filter triples by words; empty shows all", self._search, accepts_empty=True)

    def _search(self, words: str) -> None:
        self._influence_filter = self._influence_filter.with_words(words)
        self.draw()
