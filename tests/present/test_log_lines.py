"""Lines of a log: harmless as shown, of the level that they sound like, and the newest of them at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import Console

from kgops.present.log_lines import LONGEST, level_of, newest_lines, shown
from kgops.supervisor.worker_reports import keep_newest


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
