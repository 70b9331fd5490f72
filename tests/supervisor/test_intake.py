"""What a worker writes is taken in: lines wherever they are cut, patterns within a limit of CPU time, and rates."""

import json
import re
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from driving import Console, end_all_of, wait_for
from hypothesis import given
from hypothesis import strategies as st
from records import add
from screen_driving import Seen, look

from kgops.supervisor import processes, run_folder, worker_reports
from kgops.supervisor.intake import Intake
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.worker_reports import LogPatterns, TooSlow, cpu_limit
from storage import series
from storage.database import Connection


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


_LINE = "1" * 60  # ([0-9]+)+\. tries 2**60 ways to cut it
_SLOW = r"([0-9]+)+\.$"
_GIVEN_UP = "log patterns are disabled"


@pytest.mark.parametrize(
    ("pattern", "line"),
    [(_SLOW, _LINE), (r"(a|a)*$", "a" * 60 + "b"), (r"(.*)*x", "y" * 500), (r".*.*.*.*.*.*.*x", "y" * 2000)],
)
def test_cpu_limit_ends_a_match_that_would_take_for_ever(pattern: str, line: str) -> None:
    with pytest.raises(TooSlow), cpu_limit(0.05):
        LogPatterns(None, pattern).metrics(line)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_punctuation_behind_a_number_is_no_part_of_it() -> None:
    found = LogPatterns(None, r"loss=(?P<loss>\S+)")
    assert found.metrics("(loss=0.5), acc=1") == [("loss", 0.5, None)]
    assert found.metrics("loss=0.25, acc=1") == [("loss", 0.25, None)]
    assert found.no_number is None
    assert found.metrics("loss=12ms") == []
    assert found.no_number == "12ms"


@pytest.mark.parametrize("flag", ["--metric-regex", "--progress-regex"])
def test_run_with_a_slow_pattern_can_be_looked_at_and_stopped(run_cli: Console, flag: str) -> None:
    script = f"echo loss {_LINE}; touch said; while :; do sleep 0.05; done"
    number = run_cli.detach("sh", "-c", script, flags=(flag, _SLOW))
    wait_for((run_cli.cwd / "said").exists, "the line")
    wait_for(lambda: _GIVEN_UP in run_cli("show", str(number)).out, "the record to say so")
    for args in (("runs",), ("logs", str(number)), ("run", "exec", "--", "true")):
        assert run_cli(*args).code == 0
    stopped = run_cli("stop", str(number), "--grace", "0")
    assert (stopped.code, run_cli.show(number)["state"]) == (0, "cancelled")


def test_slow_pattern_of_a_killed_run_hangs_no_command(run_cli: Console) -> None:
    script = "touch begun; while [ ! -e say ]; do sleep 0.05; done; echo " + _LINE + "; touch said; sleep 300"
    number = run_cli.detach("sh", "-c", script, flags=("--metric-regex", _SLOW, "--attempts", "1"))
    wait_for((run_cli.cwd / "begun").exists, "the worker")
    run_cli.running(number)
    gate = run_cli.show(number)["attempt"][-1]["worker_pid"]
    for who in processes.supervisors(run_cli.home, number):
        if who.pid != gate:
            processes.send(who, signal.SIGSTOP)  # it reads nothing more
    (run_cli.cwd / "say").touch()
    wait_for((run_cli.cwd / "said").exists, "the line")
    end_all_of(run_cli.home)
    assert run_cli("runs").code == 0  # settles, and gives the log to a supervisor
    run = run_cli.ended(number)
    assert run.state == "interrupted"
    assert _GIVEN_UP in run_cli("show", str(number)).out


def test_metrics_before_a_slow_line_stay_and_are_taken_once(run_cli: Console) -> None:
    script = f"echo 'loss=1 '; echo 'loss=2 '; while [ ! -e go ]; do sleep 0.05; done; echo {_LINE}"
    pattern = r"loss=(?P<loss>[0-9.]+) |([0-9]+)+\.$"
    number = run_cli.detach("sh", "-c", script, flags=("--metric-regex", pattern))

    def losses() -> int:
        return next((int(s["n"]) for s in run_cli.show(number)["series"] if s["name"] == "loss"), 0)

    wait_for(lambda: losses() == 2, "two points")
    (run_cli.cwd / "go").touch()
    assert run_cli.ended(number).state == "succeeded"
    assert losses() == 2
    assert _GIVEN_UP in run_cli("show", str(number)).out


@pytest.mark.parametrize("letter", ["x", "é", "内", "🙂", "\0", '"', "\\"])
def test_an_end_is_kept_whatever_its_reason_is_written_in(tmp_path: Path, letter: str) -> None:
    path = tmp_path / "outcome.slot"
    run_folder.reserve(path)
    ending = run_folder.Ending("out_of_memory", letter * 5000, -(1 << 40), 1 << 40, 1234567890.123456)
    run_folder.write_ending(path, ending)
    found = run_folder.read_ending(path)
    assert found is not None and found.reason is not None
    assert found.reason == letter * len(found.reason) and len(found.reason) >= 200
    assert (found.state, found.exit_code, found.attempt) == (ending.state, ending.exit_code, ending.attempt)
    assert path.stat().st_size == run_folder.SIZE


NO_PATTERNS = LogPatterns(None, None)


def told(at: float, rate: float | None, unit: str | None = "batch") -> bytes:
    said = {"event": "progress", "done": 1, "total": 9, "at": at, "rate": rate, "unit": unit}
    return json.dumps(said).encode() + b"\n"


def test_rates_are_kept_a_second_apart_and_under_the_name_of_their_unit(
    conn: Connection, tmp_path: Path
) -> None:
    add(conn, 1)
    folder = RunFolder(tmp_path)
    lines = [told(100 + i / 4, 10 + i) for i in range(9)]
    lines += [told(103, None), told(104, 3.5, "epoch"), told(105, 2.5, None)]
    folder.events.write_bytes(b"".join(lines))
    Intake(conn, 1, folder, NO_PATTERNS).take_all(1)
    kept = {
        one.name: [(p.at, p.value) for p in series.points(conn, 1, one.name)]
        for one in series.of_run(conn, 1)
    }
    assert kept == {
        "batch_per_s": [(100.0, 10.0), (101.0, 14.0), (102.0, 18.0)],
        "epoch_per_s": [(104.0, 3.5)],
        "it_per_s": [(105.0, 2.5)],
    }


def test_days_of_rates_are_some_thousand_points_that_become_ever_more_seldom(
    conn: Connection, tmp_path: Path
) -> None:
    add(conn, 1)
    folder = RunFolder(tmp_path)
    seconds = range(0, 200_000, 2)
    with folder.events.open("wb") as file:
        file.writelines(told(1e9 + at, 5.0) for at in seconds[:50_000])
    intake = Intake(conn, 1, folder, NO_PATTERNS)
    while intake.take(1, final=False):
        pass
    with folder.events.open("ab") as file:
        file.writelines(told(1e9 + at, 5.0) for at in seconds[50_000:])
    Intake(conn, 1, folder, NO_PATTERNS).take_all(1)
    at = [point.at - 1e9 for point in series.points(conn, 1, "batch_per_s")]
    gaps = [after - before for before, after in pairwise(at)]
    assert 5000 < len(at) < 8000
    assert at[-1] > 199_000
    assert gaps == sorted(gaps)  # never denser again, whoever takes it in


def emit(event: dict[str, Any]) -> str:
    return f"echo '{json.dumps(event)}' >> \"$KGOPS_EVENTS\";"


def test_the_page_of_a_run_draws_its_rate_and_only_tells_what_never_changed(run_cli: Console) -> None:
    now = time.time()
    script = "".join(
        emit({"event": "progress", "done": i, "total": 9, "at": now + 2 * i, "rate": 20.0 + i, "unit": "it"})
        + emit({"event": "metric", "name": "learning_rate", "value": 0.125, "step": i})
        + emit({"event": "memory", "mib": {"libraries": 512}, "at": now + i})
        for i in range(5)
    )
    assert run_cli("run", "exec", "--", "sh", "-c", script).code == 0

    async def story(seen: Seen) -> None:
        await seen.until(lambda: "RECENT" in seen.text, "runs")
        await seen.press("enter", shows="CURVES")
        assert re.search(r"\bit/s +24\b", seen.text)  # a panel of its own, with its last value
        unchanged = seen.row_of("constant: ")
        assert "libraries MiB 512" in unchanged
        assert "learning rate 0.125" in unchanged

    look(run_cli.home, story)
