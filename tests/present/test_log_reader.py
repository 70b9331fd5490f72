"""A log is counted, narrowed and searched on the side, and any page of it is what the whole file says there."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.present.log_index import LogIndex
from kgops.present.log_lines import Level, LineFilter, level_of
from kgops.present.log_reader import LogReader, Page, PageRequest, Seek
from kgops.present.log_search import LogHits

BAD: frozenset[Level] = frozenset({"error", "warning"})
WORDS = ["epoch 3 loss 0.25", "ERROR: no", "UserWarning: slow", "", "x" * 50, "0 errors", "日本 error"]


def some_lines(chance: random.Random, count: int) -> list[str]:
    return chance.choices(WORDS, weights=[9, 1, 1, 2, 3, 1, 1], k=count)


def all_read(reader: LogReader, asked: PageRequest) -> Page:
    page = reader.look(asked)
    while page.busy:
        page = reader.look(asked)
    return page


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(0, 400), most=st.integers(2, 9), ends=st.booleans())
def test_any_of_the_wanted_lines_is_found_by_its_number_while_the_file_grows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, most: int, ends: bool
) -> None:
    path = tmp_path_factory.mktemp("log") / "worker.log"
    chance = random.Random(seed)
    lines = some_lines(chance, count)
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    cuts = sorted(chance.randrange(len(text.encode()) + 1) for _ in range(2))
    path.touch()
    log = LogIndex(path, stride=64)
    hits = LogHits(log, LineFilter(levels=BAD), most_marks=most)
    for upto in (*cuts, None):
        path.write_bytes(text.encode()[:upto])
        log.refresh()
        while log.advance() or hits.advance():
            pass
        hits.advance()
    expected = [(n, line) for n, line in enumerate(lines) if level_of(line) in BAD]
    assert hits.count == len(expected)
    first, many = chance.randrange(len(expected) + 2), chance.randrange(1, 20)
    assert hits.lines(first, many) == expected[first : first + many]
    for n in range(0, count, 7):
        behind = [place for place, (number, _) in enumerate(expected) if number >= n]
        assert hits.index_of(n) == (behind[0] if behind else max(len(expected) - 1, 0))


def test_the_newest_lines_are_there_at_once_and_all_are_counted_after(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    path.write_text("".join(f"line {i}\n" for i in range(300_000)))
    reader = LogReader(path)
    first = reader.look(PageRequest(height=10))
    assert [line.text for line in first.lines[-2:]] == ["line 299998", "line 299999"]
    page = all_read(reader, PageRequest(top=150_000, height=10))
    assert (page.rows, page.numbered) == (300_000, True)
    shown = page.row(150_000)
    assert shown is not None
    assert (shown.number, shown.text) == (150_000, "line 150000")
    assert page.row(150_000 + 30) is None  # a page, not the file


def test_only_warnings_and_errors_and_what_comes_to_them(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    path.write_text("start\nWARNING: a\nstep\nError: b\n")
    reader = LogReader(path)
    page = all_read(reader, PageRequest(levels=BAD))
    assert [(line.number, line.level) for line in page.lines] == [(1, "warning"), (3, "error")]
    page = all_read(reader, PageRequest(levels=frozenset({"error"})))
    assert [line.text for line in page.lines] == ["Error: b"]
    with path.open("a") as file:
        file.write("step\nTraceback\nKill")
    page = all_read(reader, PageRequest(levels=frozenset({"error"})))
    assert [line.text for line in page.lines] == ["Error: b", "Traceback"]
    with path.open("a") as file:
        file.write("ed")
    page = all_read(reader, PageRequest(levels=frozenset({"error"})))
    assert [line.number for line in page.lines] == [3, 5, 6]


@pytest.mark.parametrize(
    ("line", "step", "found", "around"),
    [
        (0, 0, 2, False),  # the nearest: behind it
        (2, 0, 2, False),  # itself
        (9, 0, 7, False),  # none behind: before it
        (2, 1, 7, False),
        (7, 1, 2, True),
        (7, -1, 2, False),
        (2, -1, 7, True),
    ],
)
def test_a_search_goes_to_the_nearest_the_next_or_the_last_and_round_the_ends(
    tmp_path: Path, line: int, step: int, found: int, around: bool
) -> None:
    path = tmp_path / "worker.log"
    path.write_text("".join("Needle\n" if i in (2, 7) else f"hay {i}\n" for i in range(10)))
    sought = all_read(LogReader(path), PageRequest(seek=Seek(line, LineFilter("needle"), step))).sought
    assert sought is not None
    assert (sought.row, sought.line, sought.around) == (found, found, around)


def test_a_million_lines_take_no_more_memory_than_a_thousand(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"

    def taken(count: int) -> int:
        with path.open("w") as file:
            file.writelines(f"warning: line {i} of many\n" for i in range(count))
        tracemalloc.start()
        reader = LogReader(path)
        all_read(reader, PageRequest(height=40))
        all_read(reader, PageRequest(top=count // 2, height=40, levels=frozenset({"error"})))
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return kept

    few, many = taken(1000), taken(1_000_000)
    assert many < few + (1 << 18)
