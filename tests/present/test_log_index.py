"""A log of any length: what the index and the search find is what reading the whole file would find."""

from __future__ import annotations

import random
import re
import tracemalloc
from pathlib import Path

import pytest
from driving import Console
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.jobs.text import from_bytes, one_line
from kgops.present.log_index import LogIndex
from kgops.present.log_lines import LONGEST, Level, LineFilter, level_of, shown
from kgops.present.log_search import LogSearch, SearchResult
from kgops.supervisor.log_patterns import keep_newest

PIECES = [
    b"epoch 3 loss 0.25",
    b"ERROR: CUDA out of memory",
    b"UserWarning: slow",
    b"a\tb",
    b"\r",
    b"\r\n",
    b"\n",
    b"\n\n",
    "naïve 測試 \u202e".encode(),
    b"\xff\xfe\x00",
    b"\x1b[2J\x1b]0;x\x07",
    b" ",
    b"x" * 70,
    b"0 errors",
    b"failed_tests 0",
    "… \u017flow \u212a".encode(),
]


def naive(data: bytes) -> list[str]:
    """Lines as a person would see them, from the whole file at once."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [naive_shown(line) for line in lines]


def naive_shown(line: bytes) -> str:
    if len(line) > LONGEST:
        line = line[: LONGEST // 2] + b" \xe2\x80\xa6 " + line[len(line) - LONGEST // 2 :]
    overwritten = [part for part in line.split(b"\r") if part]
    return one_line(from_bytes(overwritten[-1])) if overwritten else ""


def some_log(chance: random.Random, pieces: int, *, long: int = 0) -> bytes:
    parts = chance.choices(PIECES, weights=[4, 1, 1, 1, 1, 1, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1], k=pieces)
    for _ in range(long):
        huge = chance.choice([b"y", b"longword ", b"q\r"]) * chance.randrange(5_000, 400_000)
        parts.insert(chance.randrange(len(parts) + 1), huge + chance.choice([b"", b"\n"]))
    return b"".join(parts)


def built(path: Path, **small: int) -> LogIndex:
    log = LogIndex(path, **small)
    read_all(log)
    return log


def read_all(log: LogIndex) -> None:
    while log.advance():
        assert not log.complete
    assert log.complete


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    pieces=st.integers(0, 300),
    stride=st.integers(1, 200),
    most=st.integers(2, 9),
    long=st.sampled_from([0, 0, 0, 1]),
)
def test_every_line_is_found_by_its_number(
    tmp_path_factory: pytest.TempPathFactory, seed: int, pieces: int, stride: int, most: int, long: int
) -> None:
    chance = random.Random(seed)
    data = some_log(chance, pieces, long=long)
    path = tmp_path_factory.mktemp("log") / "worker.log"
    path.write_bytes(data)
    log = built(path, stride=stride, most_marks=most)
    expected = naive(data)
    assert log.count == len(expected)
    for _ in range(8):
        first, count = chance.randrange(len(expected) + 2), chance.randrange(12)
        assert log.lines(first, count) == expected[first : first + count]
    assert log.lines(0, 10**6) == expected
    if not long:
        assert log.tail(5) == expected[-5:]


def all_hits(search: LogSearch, start: int, *, forward: bool, at_most: int) -> list[tuple[int, str]]:
    out: list[tuple[int, str]] = []
    next_line: int | None = start
    for _ in range(10_000):
        assert next_line is not None
        found: SearchResult = (
            search.forward(next_line, at_most) if forward else search.backward(next_line, at_most)
        )
        out += [(hit.line, hit.text) for hit in found.hits]
        assert len(found.hits) <= at_most
        if found.next_line is None:
            return out
        next_line = found.next_line
    raise AssertionError("never came to an end")


WANTED = [
    LineFilter("loss"),
    LineFilter("LOSS"),
    LineFilter("LOSS", ignore_case=False),
    LineFilter("a b"),  # stands in the file with a tab
    LineFilter("測"),
    LineFilter("�"),
    LineFilter("…"),
    LineFilter(" … "),
    LineFilter("word longword"),
    LineFilter(r"loss 0\.\d+$", regex=True),
    LineFilter(r"^\s*$", regex=True),
    LineFilter(r"lo?s+ ?0\.\d{1,3}5", regex=True),
    LineFilter(r"\bS.*wAr?ning", regex=True),
    LineFilter(r"(cuda|slow)", regex=True),
    LineFilter("slow", regex=True),  # a ſ is an s, too
    LineFilter("warm?n", regex=True),
    LineFilter(r"x{70}", regex=True),
    LineFilter(r"lo\x73\u0073 0", regex=True),
    LineFilter(r"err?or:+ *", regex=True, levels=frozenset[Level]({"error"})),
    LineFilter("\\{", regex=True),
    LineFilter(r"^epoch", regex=True, ignore_case=False),
    LineFilter(levels=frozenset[Level]({"error"})),
    LineFilter(levels=frozenset[Level]({"error", "warning"})),
    LineFilter(levels=frozenset[Level]({"info"})),
    LineFilter("0", levels=frozenset[Level]({"info", "warning"})),
    LineFilter(),
]


def is_wanted(wanted: LineFilter, line: str) -> bool:
    if level_of(line) not in wanted.levels:
        return False
    if wanted.regex:
        return re.search(wanted.text, line, re.IGNORECASE if wanted.ignore_case else 0) is not None
    return (wanted.text.lower() in line.lower()) if wanted.ignore_case else wanted.text in line


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["a block a call", "all in a call"])
def test_search_finds_what_looking_at_every_line_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    from kgops.present import log_index, log_search

    monkeypatch.setattr(log_search, "_CALL_S", seconds)
    for name in ("_BLOCK", "_SLOW_BLOCK"):
        monkeypatch.setattr(log_search, name, 4096 if seconds else 64)
    monkeypatch.setattr(log_index, "PIECE", 1 << 14)
    chance = random.Random(seconds)
    path = tmp_path / "worker.log"
    some = 0
    for round_ in range(30):
        data = some_log(chance, chance.randrange(200), long=round_ % 10 == 9)
        path.write_bytes(data)
        lines = naive(data)
        for wanted in WANTED:
            start, at_most = chance.randrange(len(lines) + 1), chance.choice([1, 3, 1000])
            expected = [(i, line) for i, line in enumerate(lines) if is_wanted(wanted, line)]
            fresh = LogIndex(path, stride=32)  # not read yet: the search reads it on
            after = [hit for hit in expected if hit[0] >= start]
            assert all_hits(LogSearch(fresh, wanted), start, forward=True, at_most=at_most) == after, wanted
            log = built(path, stride=32)
            before = [hit for hit in reversed(expected) if hit[0] <= start]
            assert all_hits(LogSearch(log, wanted), start, forward=False, at_most=at_most) == before, wanted
            some += bool(after) + bool(before)
    assert some > 300


def test_what_is_shown_is_what_a_terminal_would_have_left_and_harmless() -> None:
    assert shown(b" 10%|#   |\r 20%|##  |\r") == " 20%|##  |"
    assert shown(b"done\r") == "done"
    assert shown(b"\x1b[31mred\x1b[0m\xff\xc3") == "red��"
    assert shown(b"\x1b[2J\x1b\x1b[1;38:5:7m[2J") == "�[2J�[2J"
    assert len(shown(b"z" * 10_000_000)) == LONGEST + 3
    assert shown(b"") == shown(b"\r\r") == ""


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("ValueError: shapes differ", "error"),
        ("Traceback (most recent call last):", "error"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory.", "error"),
        ("2026-01-01 ERROR worker", "error"),
        ("UserWarning: lr_scheduler", "warning"),
        ("[WARN] slow", "warning"),
        ("DeprecationWarning: old", "warning"),
        ("epoch 1 done, 0 errors, no warnings", "info"),
        ("done: failed_tests 0 · fp16_overflows 0", "info"),
        ("failed_tests=0 warnings=0", "info"),
        ('{"errors": 0, "warnings": 0}', "info"),
        ("failed: 0", "info"),
        ("failed 0 passed 12", "info"),
        ("failed_tests 1 · fp16_overflows 0", "error"),
        ("failed_tests 0 · errors 3", "error"),
        ("error: 0.25", "error"),
        ("failed_tests 01", "error"),
        ("Error: 0 GPUs found", "error"),
        ("RuntimeError: 0-dim tensor", "error"),
        ("Error: 0 of 3 processes answered", "error"),
        ("loss 0.25", "info"),
    ],
)
def test_level_is_what_the_line_says(line: str, level: str) -> None:
    assert level_of(line) == level


# --- a file that somebody is writing ------------------------------------------------------------------


def test_truncation_replacement_and_removal_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    path.write_bytes(b"one\ntwo\nthree\n")
    log = built(path)
    with path.open("r+b") as file:  # cut, and grown again to the same length
        file.truncate(0)
        file.write(b"ONE\nTWO\nTHREE\n")
    assert log.refresh() == "replaced"
    read_all(log)
    assert log.lines(0, 9) == ["ONE", "TWO", "THREE"]
    other = tmp_path / "other.log"
    other.write_bytes(b"ONE\nTWO\nTHREE\nfour\n")
    other.replace(path)
    assert log.refresh() == "replaced"
    read_all(log)
    path.write_bytes(b"short\n")
    assert log.refresh() == "replaced"
    read_all(log)
    assert log.lines(0, 9) == ["short"]
    path.unlink()
    assert log.refresh() == "replaced"
    assert (log.count, log.refresh(), LogSearch(log, LineFilter("x")).forward(0).next_line) == (
        0,
        "same",
        None,
    )


@pytest.mark.parametrize("at", [3, -3], ids=["first", "last"])
def test_rewriting_either_end_of_what_was_read_is_noticed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "worker.log"
    data = bytearray(b"line\n" * 10_000)
    path.write_bytes(data)
    log = built(path)
    data[at] = ord("X")
    path.write_bytes(data + b"more\n")
    assert log.refresh() == "replaced"


def test_long_line_is_searched_as_it_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    for length in (LONGEST - 9, LONGEST, LONGEST + 1, 3 * LONGEST, 9 * LONGEST):
        data = b"a\nhead " + b"z" * (length // 2) + b"middle" + b"z" * (length // 2) + b" end\nb"
        path.write_bytes(data)
        expected = list(enumerate(naive(data)))
        for wanted in (
            LineFilter(),
            LineFilter("z end", regex=True),
            LineFilter("middle"),
            LineFilter("head"),
        ):
            hits = [hit for hit in expected if is_wanted(wanted, hit[1])]
            log = built(path)
            assert all_hits(LogSearch(log, wanted), 0, forward=True, at_most=2) == hits
            assert all_hits(LogSearch(log, wanted), 9, forward=False, at_most=2) == hits[::-1]


def test_old_part_given_back_to_the_disk_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(400_000)))
    log = built(path)
    assert keep_newest(path, 2) > 0
    assert log.refresh() == "replaced"
    read_all(log)
    assert 0 < log.count < 400_000
    assert log.lines(log.count - 1, 1) == ["line 399999"]
    assert re.fullmatch(r"(line )?\d+|[line ]*\d*", log.lines(0, 1)[0])
    assert log.lines(1, 1)[0].startswith("line ")


def test_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "worker.log").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic link"):
        LogIndex(tmp_path / "worker.log")


def test_memory_stays_small_whatever_the_log_holds(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    with path.open("wb") as file:
        file.write(b"head\n" + b"w" * 40_000_000 + b" needle\n")
        for _ in range(20):
            file.write(b"epoch 1 loss 0.5\n" * 60_000)
        file.write(b"last\n")
    tracemalloc.start()
    log = built(path, most_marks=64)
    assert LogSearch(log, LineFilter("needle")).forward(0).hits[0].line == 1
    assert log.lines(log.count - 1, 1) == ["last"]
    assert log.lines(1, 2)[0].endswith("w needle")
    assert all_hits(LogSearch(log, LineFilter("he.d", regex=True)), 1, forward=False, at_most=1) == [
        (0, "head")
    ]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 << 20


def test_logs_command_prints_the_lines_of_a_level(run_cli: Console) -> None:
    script = "echo epoch 1; echo 'UserWarning: slow' >&2; echo 'ValueError: no' >&2; echo '0 errors'"
    run_cli("run", "exec", "--", "sh", "-c", script)
    bad = run_cli("logs", "1", "--level", "error")
    assert (bad.code, bad.out) == (0, "ValueError: no\n"), bad.err
    both = run_cli("logs", "1", "--level", "error", "--level", "warning").out.splitlines()
    assert sorted(both) == ["UserWarning: slow", "ValueError: no"]
    assert run_cli("logs", "1", "--level", "info", "--grep", "err").out == "0 errors\n"
    none = run_cli("logs", "1", "--grep", "✓ Model compiled")
    assert (none.code, none.out, none.err) == (1, "", "")
