"""A log is counted, narrowed and searched on the side; any page of it is what the file says, its lines harmless."""

import random
import re
import tracemalloc
from pathlib import Path

import pytest
from driving import Console
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.jobs.text import from_bytes, one_line
from kgops.present import log_reader
from kgops.present.log_lines import LONGEST, Level, LineFilter, level_of, newest_lines, shown
from kgops.present.log_reader import ALL, LogReader, Page, PageRequest, Seek, SeekResult
from kgops.supervisor.worker_reports import keep_newest

BAD: frozenset[Level] = frozenset({"error", "warning"})
ERRORS: frozenset[Level] = frozenset({"error"})
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
    parts = chance.choices(PIECES, weights=[4, 1, 1, 1, 1, 1, 6, *[1] * 9], k=pieces)
    for _ in range(long):
        huge = chance.choice([b"y", b"longword ", b"q\r"]) * chance.randrange(5_000, 400_000)
        parts.insert(chance.randrange(len(parts) + 1), huge + chance.choice([b"", b"\n"]))
    return b"".join(parts)


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


def all_read(reader: LogReader, asked: PageRequest) -> Page:
    page = reader.look(asked)
    for _ in range(10_000):
        if not page.busy:
            return page
        page = reader.look(asked)
    raise AssertionError("never came to an end")


def texts(page: Page) -> list[str]:
    return [line.text for line in page.lines]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    pieces=st.integers(0, 300),
    block=st.sampled_from([1, 7, 64, 1 << 17]),
    long=st.sampled_from([0, 0, 0, 1]),
)
def test_any_page_of_any_levels_is_what_the_whole_file_says_while_it_grows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, pieces: int, block: int, long: int
) -> None:
    chance = random.Random(seed)
    data = some_log(chance, pieces, long=long)
    path = tmp_path_factory.mktemp("log") / "worker.log"
    path.touch()
    reader = LogReader(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "_BLOCK", 1 << 17 if long else block)
        for upto in (*sorted(chance.randrange(len(data) + 1) for _ in range(2)), len(data)):
            path.write_bytes(data[:upto])
            for levels in chance.sample([ALL, BAD, ERRORS], 2):
                wanted = [(n, line) for n, line in enumerate(naive(data[:upto])) if level_of(line) in levels]
                top = chance.choice([None, 0, chance.randrange(len(wanted) + 2)])
                page = all_read(reader, PageRequest(top, 3, levels))
                assert (page.rows, page.numbered, page.file) == (len(wanted), True, 0)
                middle = max(len(wanted) - 3, 0) if top is None else top
                shown = wanted[page.first : page.first + len(page.lines)]
                cut = [(n, text if len(text) <= 1 << 13 else text[: 1 << 13] + "…") for n, text in shown]
                assert [(line.number, line.text) for line in page.lines] == cut
                assert all(page.row(row) for row in range(len(wanted))[middle : middle + 3])
                line = chance.randrange(len(data) + 1)
                sought = all_read(reader, PageRequest(top, 3, levels, Seek(line, time=upto + 1))).sought
                if levels != ALL and wanted:
                    behind = [row for row, (n, _) in enumerate(wanted) if n >= line]
                    assert sought is not None and sought.row == (behind or [len(wanted) - 1])[0]


def expected_hit(lines: list[str], seek: Seek, wanted: LineFilter) -> tuple[int | None, bool]:
    """The line, and whether the search wrapped around."""
    hits = [n for n, line in enumerate(lines) if is_wanted(wanted, line)]
    below = [n for n in hits if n >= seek.line + (seek.step > 0)]
    above = [n for n in reversed(hits) if n not in below]
    if seek.step > 0:
        above.reverse()
    if seek.step < 0:
        below.reverse()
    first, then = (above, below) if seek.step < 0 else (below, above)
    return (first[0], False) if first else (then[0], seek.step != 0) if then else (None, False)


@pytest.mark.parametrize("block", [64, 1 << 17])
def test_search_goes_to_the_hit_that_looking_at_every_line_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(log_reader, "_BLOCK", block)
    chance, path, some = random.Random(block), tmp_path / "worker.log", 0
    for round_ in range(24):
        data = some_log(chance, chance.randrange(200), long=block > 64 and round_ % 8 == 7)
        path.write_bytes(data)
        lines, reader = naive(data), LogReader(path)
        for number, wanted in enumerate(WANTED):
            start = chance.choice([-1, 1 << 62, chance.randrange(len(lines) + 1)])
            seek = Seek(start, wanted, chance.choice([-1, 0, 1]), number)
            line, around = expected_hit(lines, seek, wanted)
            sought = all_read(reader, PageRequest(seek=seek)).sought
            assert sought == SeekResult(seek, line, line or 0, around), wanted
            some += line is not None
    assert some > 200


@pytest.mark.parametrize("length", [LONGEST - 9, LONGEST, LONGEST + 1, 3 * LONGEST, 9 * LONGEST])
def test_long_line_is_searched_as_it_is_shown(tmp_path: Path, length: int) -> None:
    path = tmp_path / "worker.log"
    data = b"a\nhead " + b"z" * (length // 2) + b"middle" + b"z" * (length // 2) + b" end\nb"
    path.write_bytes(data)
    reader = LogReader(path)
    for text in ("z end", "middle", "head"):
        for is_regex in (False, True):
            wanted = LineFilter(text, is_regex)
            hits = [n for n, line in enumerate(naive(data)) if is_wanted(wanted, line)]
            sought = all_read(reader, PageRequest(seek=Seek(0, wanted))).sought
            assert sought is not None and sought.row == (hits[0] if hits else None)


def test_newest_lines_are_there_before_any_are_counted_or_filtered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "worker.log"
    path.write_text("".join(f"{'error' * (i % 1000 == 0)} line {i}\n" for i in range(300_000)))
    reader = LogReader(path)
    with monkeypatch.context() as patch:
        patch.setattr(log_reader, "_FIRST_S", 0)
        first = LogReader(path).look(PageRequest(height=10))
    assert (texts(first)[-1], first.numbered, first.busy) == (" line 299999", False, True)
    page = all_read(reader, PageRequest(top=150_000, height=10))
    shown = page.row(150_001)
    assert page.rows == 300_000
    assert shown is not None and (shown.number, shown.text) == (150_001, " line 150001")
    assert page.row(150_000 + 30) is None  # a page, not the file
    monkeypatch.setattr(log_reader, "_LOOK_S", 0)
    reader.look(PageRequest(height=1))
    errors = reader.look(PageRequest(height=1, levels=ERRORS))
    assert (texts(errors)[-1], errors.numbered, errors.busy) == ("error line 299000", False, True)


def test_unfinished_line_is_judged_again_when_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    reader, asked = LogReader(path), PageRequest(levels=ERRORS)
    for added, errors in (("start\nfail", []), ("ed", [1]), ("_tests 0", []), ("\nError", [2])):
        with path.open("a") as file:
            file.write(added)
        assert [line.number for line in all_read(reader, asked).lines] == errors


# --- a file that somebody replaces ---------------------------------------------------------------------


def test_truncation_replacement_and_removal_are_noticed(tmp_path: Path) -> None:
    path, other, asked = tmp_path / "worker.log", tmp_path / "other.log", PageRequest()
    path.write_bytes(b"one\ntwo\nthree\n")
    reader = LogReader(path)
    assert all_read(reader, asked).rows == 3
    with path.open("r+b") as file:  # cut, and grown again to the same length
        file.truncate(0)
        file.write(b"ONE\nTWO\nTHREE\n")
    page = all_read(reader, asked)
    assert (texts(page), page.file) == (["ONE", "TWO", "THREE"], 1)
    other.write_bytes(b"ONE\nTWO\nTHREE\nfour\n")
    other.replace(path)
    assert (all_read(reader, asked).file, len(texts(all_read(reader, asked)))) == (2, 4)
    path.write_bytes(b"short\n")
    assert texts(all_read(reader, PageRequest(seek=Seek(0, LineFilter("three"))))) == ["short"]
    path.unlink()
    page = all_read(reader, asked)
    assert (page.rows, page.numbered, page.file) == (0, True, 4)
    path.symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="symbolic link"):
        reader.look(asked)


@pytest.mark.parametrize("at", [3, -3], ids=["first", "last"])
def test_rewriting_either_end_of_what_was_read_is_noticed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "worker.log"
    data = bytearray(b"line\n" * 100_000)
    path.write_bytes(data)
    reader = LogReader(path)
    all_read(reader, PageRequest())
    data[at] = ord("X")
    path.write_bytes(data + b"more\n")
    assert reader.look(PageRequest()).file == 1


def test_old_part_given_back_to_the_disk_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(400_000)))
    reader = LogReader(path)
    all_read(reader, PageRequest())
    assert keep_newest(path, 2) > 0
    page = all_read(reader, PageRequest(top=0))
    assert (page.file, 0 < page.rows < 400_000) == (1, True)
    assert page.lines[1].text.startswith("line ") and "\0" not in page.lines[0].text
    assert texts(all_read(reader, PageRequest()))[-1] == "line 399999"


def test_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "worker.log").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic link"):
        LogReader(tmp_path / "worker.log")


def test_memory_is_eight_bytes_a_line_however_long_the_line(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    with path.open("wb") as file:
        file.write(b"head\n" + b"w" * 40_000_000 + b" needle\n")
        for _ in range(10):
            file.write(b"warning 1 loss 0.5\n" * 60_000)
    tracemalloc.start()
    reader = LogReader(path)
    sought = all_read(reader, PageRequest(seek=Seek(0, LineFilter("needle")))).sought
    all_read(reader, PageRequest(levels=ERRORS))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sought is not None and sought.row == 1
    assert peak < (6 << 20) + 8 * 600_000


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


def test_newest_lines_begin_with_a_whole_line_that_is_still_there(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    assert newest_lines(path, 3) == ()
    path.write_bytes(b"")
    assert newest_lines(path, 3) == ()
    path.write_bytes(b"one\n10%\r20%\ntwo\nthr")
    assert newest_lines(path, 3) == ("20%", "two", "thr")
    assert newest_lines(path, 9) == ("one", "20%", "two", "thr")
    assert newest_lines(path, 9, at_most=6) == ("thr",)  # and part of a line, which is left out
    path.write_bytes(b"x" * 100)
    assert newest_lines(path, 9, at_most=6) == ("xxxxxx",)
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(400_000)))
    assert keep_newest(path, 2) > 0
    kept = newest_lines(path, 10**6, at_most=10**8)
    assert kept[-1] == "line 399999" and len(kept) < 400_000 and "\0" not in "".join(kept)
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert newest_lines(path, 3) == ()


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
