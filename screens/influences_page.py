"""Rows of the influences screen."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kgops.jobs.text import one_line
from kgops.present.formats import fitted, shortened
from kgops.present.influences import RunInfluences
from kgops.present.rows import Column, Columns, Piece, Row, text_row, text_rows
from screens.widgets.bar import SIDES, signed_bar
from storage.influences import Influence, TestTriple

_SIDES = ("both", "proponents", "opponents")
_TRIPLE = "head · relation · tail"


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
    columns = Columns(
        (
            Column(SIDES, len(SIDES)),
            Column("score", 10, right=True),
            Column(_TRIPLE, 20, grows=True),
        ),
        width,
    )
    all_found = influences.by_test.get(test.test, ())
    counted = f"{len(shown)} of {len(all_found)}: {influence_filter.description(influences)}"
    head = Row((Piece("INFLUENCES", "head"), Piece(f"  {fitted(counted, width - 12)}", "dim")))
    tested = " · ".join(one_line(influences.name_of(one)) for one in (test.head, test.relation, test.tail))
    rows = [head, *text_rows(f"{test.test}  {tested}", width, "strong"), columns.heading()]
    largest = max((abs(influence.score) for influence in all_found), default=0.0)
    for influence in shown:
        named = (influence.head, influence.relation, influence.tail)
        words = Piece(_triple_text(influences, named, columns.width_of(_TRIPLE)))
        bar = signed_bar(influence.score, largest)
        rows.append(
            columns.row(
                [bar, Piece(f"{influence.score:+#.4g}", "strong"), words],
                key=influence.rank,
            )
        )
    return rows if shown else [*rows, text_row("none matches the filter", width, "dim")]


def path_lines(words: Sequence[str], width: int, *, indent: int = 2) -> list[Row]:
    """The words of a path, wrapped between edges."""
    rows, line = [], ""
    for word in words:
        if line and len(line) + len(word) + 1 > width:
            rows.append(text_row(line, width))
            line = " " * indent
        line = f"{line} {word}" if line.strip() else line + word
    return [*rows, text_row(line, width)]


def _triple_text(influences: RunInfluences, labels: Sequence[str], width: int) -> str:
    names = [one_line(influences.name_of(label)) for label in labels]
    return " · ".join(shortened(names, width - 6))
