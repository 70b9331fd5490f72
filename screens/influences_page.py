"""What the influences screen shows, as rows and as files."""

from __future__ import annotations

import csv
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kgops.cli.output import fitted
from kgops.errors import Unavailable, Usage
from kgops.jobs.numbers import share_between
from kgops.jobs.text import one_line
from kgops.views.influences import RunInfluences, Step
from screens.rows import Column, Columns, Piece, Row, said
from storage.influences import Influence, TestTriple

__all__ = ["Narrowed", "as_tables", "found_rows", "path_rows", "test_rows", "write"]

_SIDES = ("both", "proponents", "opponents")
_BAR = 8


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Which of the found triples are shown."""

    side: str = "both"
    relation: str | None = None
    words: str = ""

    def of(self, found: RunInfluences, test: TestTriple) -> list[Influence]:
        return [one for one in found.by_test.get(test.test, ()) if self._has(found, one)]

    def other_side(self) -> Narrowed:
        return replace(self, side=_SIDES[(_SIDES.index(self.side) + 1) % len(_SIDES)])

    def next_relation(self, found: RunInfluences, test: TestTriple) -> Narrowed:
        """One after the other of those found for the test triple, then all of them again."""
        known = [None, *sorted({one.relation for one in found.by_test.get(test.test, ())})]
        at = known.index(self.relation) + 1 if self.relation in known else 0
        return replace(self, relation=known[at % len(known)])

    def with_words(self, words: str) -> Narrowed:
        return replace(self, words=words.casefold())

    def _has(self, found: RunInfluences, one: Influence) -> bool:
        if (self.side == "proponents" and one.rank < 0) or (self.side == "opponents" and one.rank > 0):
            return False
        if self.relation is not None and one.relation != self.relation:
            return False
        text = " ".join(f"{label} {found.name_of(label)}" for label in (one.head, one.relation, one.tail))
        return all(word in text.casefold() for word in self.words.split())

    def said(self, found: RunInfluences) -> str:
        parts = [self.side if self.side != "both" else "proponents and opponents"]
        parts += [f"relation {one_line(found.name_of(self.relation))}"] if self.relation is not None else []
        parts += [f"with {one_line(self.words)}"] if self.words else []
        return ", ".join(parts)


def test_rows(found: RunInfluences | None, width: int, trouble: str | None) -> list[Row]:
    if found is None:
        if trouble is None:
            return [said("reading what was found", width, "dim")]
        first = "`kgops run` trains and traces a demo; `kgops run tracin --run N` traces a run's tests"
        return [said("TEST TRIPLES", width, "head"), said(trouble, width), *_wrapped(first, width)]
    rows = [said("TEST TRIPLES", width, "head")]
    if not found.tests:
        what = (
            "nothing was traced yet" if not found.run.ended else f"run {found.run.id} traced no test triple"
        )
        first = "esc goes back; n on the dashboard starts a run that traces"
        return [*rows, said(what, width), *_wrapped(first, width)]
    if found.rest is not None:
        rows += [said(line, width, "warn") for line in textwrap.wrap(one_line(found.rest), max(width, 1))]
    for test in found.tests:
        tone = "warn" if test.trouble else "text"
        words = f"{test.test:>3}  {_words(found, test.head, test.relation, test.tail)}"
        rows.append(said(words, width, tone, key=test.test))
    return rows


def _wrapped(text: str, width: int) -> list[Row]:
    return [said(line, width, "dim") for line in textwrap.wrap(text, max(width, 20))]


def found_rows(
    found: RunInfluences | None, test: TestTriple | None, narrowed: Narrowed, width: int
) -> list[Row]:
    """The strongest of one test triple. A bar to the right speaks for it, to the left against."""
    if found is None or test is None:
        return []
    if test.trouble is not None:
        return [said("NOT TRACED", width, "head"), said(test.trouble, width, "warn")]
    shown = narrowed.of(found, test)
    columns = Columns(
        (
            Column("FOUND", 2 * _BAR + 1),
            Column("score", 10, right=True),
            Column("head · relation · tail", 20, grows=True),
        ),
        width,
    )
    all_found = found.by_test.get(test.test, ())
    counted = f"{len(shown)} of {len(all_found)}: {narrowed.said(found)}"
    rows = [said(counted, width, "dim"), columns.heading()]
    largest = max((abs(one.score) for one in all_found), default=0.0)
    for one in shown:
        words = Piece(_words(found, one.head, one.relation, one.tail))
        rows.append(
            columns.row(
                [_bar(one.score, largest), Piece(f"{one.score:+#.4g}", "strong"), words], key=one.rank
            )
        )
    return rows if shown else [*rows, said("none is like that", width, "dim")]


def path_rows(found: RunInfluences, path: Sequence[Step], width: int) -> list[Row]:
    """From the test triple's head to its tail, over the influential triple."""
    if not path:
        nothing = "it lies on no path of at most 4 edges from head to tail"
        return [said("PATH", width, "head"), said(nothing, width, "dim")]
    words = [one_line(found.name_of(path[0].start))]
    for step in path:
        relation, end = one_line(found.name_of(step.relation)), one_line(found.name_of(step.end))
        words.append(f"─{relation}→ {end}" if step.forward else f"←{relation}─ {end}")
    edges = f"{len(path)} edge{'' if len(path) == 1 else 's'}"
    rows = [Row((Piece("PATH", "head"), Piece(f"  {edges} from head to tail", "dim")))]
    line = ""
    for word in words:  # as many on a line as fit
        if line and len(line) + len(word) + 1 > width:
            rows.append(said(line, width))
            line = "  "
        line = f"{line} {word}" if line.strip() else line + word
    return [*rows, said(line, width)]


def as_tables(found: RunInfluences, test: TestTriple, shown: Sequence[Influence]) -> list[dict[str, object]]:
    """Labels as the run knows them, with what people call them beside."""
    tested = {"test_head": test.head, "test_relation": test.relation, "test_tail": test.tail}
    return [
        {
            **tested,
            **asdict(one),
            "head_name": found.name_of(one.head),
            "relation_name": found.name_of(one.relation),
            "tail_name": found.name_of(one.tail),
        }
        for one in shown
    ]


def write(name: str, tables: Sequence[dict[str, object]]) -> Path:
    """A new file, in the form that its ending names."""
    path = Path(name).expanduser().absolute()
    if path.suffix not in (".csv", ".tsv", ".json"):
        raise Usage(f"{path.name}: the file ends in .csv, .tsv or .json")
    try:
        with path.open("x", newline="", encoding="utf-8", errors="surrogateescape") as file:
            if path.suffix == ".json":
                json.dump(list(tables), file, indent=2)
            elif tables:
                dialect = "excel" if path.suffix == ".csv" else "excel-tab"
                writer = csv.DictWriter(file, list(tables[0]), dialect=dialect, lineterminator="\n")
                writer.writeheader()
                writer.writerows(tables)
    except FileExistsError as error:
        raise Usage(f"{path} is there already") from error
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}") from error
    return path


def _words(found: RunInfluences, *labels: str) -> str:
    return " · ".join(one_line(found.name_of(label)) for label in labels)


def _bar(score: float, largest: float) -> Piece:
    length = max(round(_BAR * share_between(abs(score), 0.0, largest)), 1) if largest and score else 0
    filled = "▇" * length
    left, right = (filled, "") if score < 0 else ("", filled)
    return Piece(fitted(f"{left:>{_BAR}}│{right:<{_BAR}}", 2 * _BAR + 1), "accent")
