"""Lines of a file that somebody else is writing, by whatever they end and wherever a reading is cut."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kgops.supervisor import worker_reports


def _all_lines(path: Path, *, final: bool = True) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while True:
        lines, behind = worker_reports.read_lines(path, offset, final=final)
        if behind == offset:
            return found
        found += lines
        offset = behind


@given(st.lists(st.tuples(st.sampled_from([b"a", b"bc", b"x y"]), st.sampled_from([b"\n", b"\r", b"\r\n"]))))
def test_each_end_of_line_ends_one_line(fuzz_folder: Path, written: list[tuple[bytes, bytes]]) -> None:
    path = fuzz_folder / "lines"
    path.write_bytes(b"".join(text + end for text, end in written))
    assert _all_lines(path) == [text for text, _ in written]


def test_end_of_line_that_a_chunk_cuts_in_two_is_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (worker_reports.CHUNK - 1) + b"\r\nnext\r\n")
    assert _all_lines(path) == [b"x" * (worker_reports.CHUNK - 1), b"next"]


def test_last_line_without_an_end_counts_once_nobody_writes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo")
    assert _all_lines(path, final=False) == [b"one"]
    assert _all_lines(path) == [b"one", b"two"]
