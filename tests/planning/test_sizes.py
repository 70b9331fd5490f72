"""However much a worker says, its supervisor stays small and its log keeps the newest part."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import QUICK, Console, wait_for

from storage import attempts
from storage.database import open_reader


def peak_mib_until_the_end(console: Console, number: int) -> float:
    """Of the supervisor's resident memory, looked at until it leaves."""
    conn = open_reader(console.home / "kgops.db")
    (attempt,) = attempts.of_run(conn, number)
    conn.close()
    seen = [0.0]

    def left() -> bool:
        try:
            status = Path(f"/proc/{attempt.supervisor_pid}/status").read_text()
        except OSError:
            return True
        seen.extend(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        return False

    wait_for(left, "the supervisor to leave")
    return max(seen)


def cpu_s_of(work: Callable[[], object]) -> float:
    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    work()
    return used() - before


def test_huge_logs_lines_and_events_cost_the_supervisor_no_memory(run_cli: Console, tmp_path: Path) -> None:
    worker = (
        "import os, sys, time\n"
        "block = ''.join(f'step {i} of many\\n' for i in range(10_000))\n"
        "for _ in range(100): sys.stdout.write(block)\n"
        "print('x' * 10_000_000)\n"
        "print('the end', flush=True)\n"
        "with open(os.environ['KGOPS_EVENTS'], 'w') as events:\n"
        '    print(\'{"event": "note", "text": "\' + \'y\' * 10_000_000 + \'"}\', file=events)\n'
        '    print(\'{"event": "metric", "name": "after", "value": 1, "step": 1}\', file=events)\n'
        "open('written', 'w').close()\n"
        "while not os.path.exists('gate'): time.sleep(0.02)\n"
    )
    flags = ("--metric-regex", r"step (?P<never>\d+) of none")
    number = run_cli.detach(*QUICK, worker, flags=flags)
    wait_for((tmp_path / "written").exists, "the worker")
    (tmp_path / "gate").touch()
    assert 5 < peak_mib_until_the_end(run_cli, number) < 40
    assert run_cli.ended(number).state == "succeeded"

    huge = cpu_s_of(lambda: run_cli("logs", str(number), "-n", "5"))
    lines = run_cli("logs", str(number), "-n", "5", "--raw").raw.splitlines()
    assert [line[:20] for line in lines] == [
        *(f"step {i} of many".encode() for i in (9997, 9998, 9999)),
        b"x" * 20,
        b"the end",
    ]
    small = cpu_s_of(lambda: run_cli("logs", "1", "-n", "0"))
    assert huge - small < 0.5
    assert run_cli("logs", str(number), "-n", "2").raw == b"(part of a line left out)\nthe end\n"
    assert run_cli("logs", str(number), "--raw").raw == (run_cli.folder(number) / "worker.log").read_bytes()
    assert run_cli("logs", str(number), "--grep", "the end").raw == b"the end\n"
    shown = run_cli.show(number)
    assert [s["n"] for s in shown["series"] if s["name"] == "after"] == [1]
    kinds = {(e["kind"], e["body"]["text"]) for e in shown["event"]}
    assert kinds == {("log", "(part of a line longer than 1 MiB left out)")}


def test_log_keeps_its_newest_part_and_says_which(run_cli: Console, tmp_path: Path) -> None:
    worker = (
        "import os, sys, time\n"
        "for i in range(300_000): print(f'line {i:09d}')\n"
        "sys.stdout.flush()\n"
        "while not os.path.exists('gate'): time.sleep(0.02)\n"
        "print('the end')\n"
    )
    number = run_cli.detach(*QUICK, worker, flags=("--log-limit", "1"))
    log = run_cli.folder(number) / "worker.log"
    wait_for(lambda: (log.exists() and log.stat().st_size == 300_000 * 15) or None, "the log")
    try:
        wait_for(lambda: log.stat().st_blocks * 512 <= 1 << 20, "the old part to go")
    except AssertionError:
        pytest.skip("this file system cannot give back a part of a file")
    (tmp_path / "gate").touch()
    run_cli.ended(number)
    kept = run_cli("logs", str(number)).raw
    assert b"\0" not in kept
    assert kept.endswith(b"line 000299999\nthe end\n")
    assert 1 << 18 < len(kept) <= 1 << 20


def test_a_log_that_is_cut_was_searched_before_and_ends_within_its_limit(run_cli: Console) -> None:
    """Written faster than it is read; the last megabytes while nobody looks."""
    worker = (
        "import sys\n"
        "for i in range(60_000): sys.stdout.write(f'loss={i if i else float(\"nan\")} ' + 'x' * 100 + '\\n')\n"
    )
    flags = ("--log-limit", "1", "--metric-regex", r"loss=(?P<loss>\S+)")
    number = run_cli.detach(*QUICK, worker, flags=flags)
    assert run_cli.ended(number).state == "succeeded"
    (curve,) = (one for one in run_cli.show(number)["series"] if one["name"] == "loss")
    assert (curve["n"], curve["last_value"]) == (60_000, 59_999.0)
    log = run_cli.folder(number) / "worker.log"
    if log.stat().st_blocks * 512 == log.stat().st_size // 4096 * 4096 + 4096:
        pytest.skip("this file system cannot give back a part of a file")
    assert log.stat().st_blocks * 512 <= 1 << 20
