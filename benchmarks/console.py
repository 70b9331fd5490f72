"""`python -m benchmarks.console`: cost of the console and the supervisor, and lost events."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.entry import run
from benchmarks.measure import PYTHON, Line, as_measurements, quietness, run_process, table
from kgops.experiments.fingerprint import fingerprint
from kgops.jobs.job import read_job
from kgops.planning.targets import cpu_target
from kgops.settings import Home, find_home, make_home
from kgops.supervisor import processes
from kgops.supervisor.control import stop_run, wait_for_end
from kgops.supervisor.launch import launch
from kgops.supervisor.plan_job import Planned
from storage import attempts, measurements, run_list, runs, series
from storage.database import open_reader, open_writer, transaction

COMMAND = "python -m benchmarks.console"
MANY = 100_000
REPORTERS = 8
POINTS_PER_S = 100


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter, with fewer repetitions")
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    quick: bool = parser.parse_args().quick
    store: bool = parser.parse_args().store
    print(f"{quietness()}; {json.dumps(fingerprint()['machine'])}")
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="kgops-bench-") as base:
        lines += commands(Path(base) / "many", repetitions=7 if quick else 25)
        lines += idle_supervisor(Path(base) / "idle", seconds=8 if quick else 60)
        lines += reporters(Path(base) / "reporters", seconds=5 if quick else 30)
        lines += commits(Path(base) / "commits", seconds=5 if quick else 30)
    print("\n".join(table(lines)))
    if store:
        home = find_home()
        make_home(home)
        conn = open_writer(home.database)
        for measurement in as_measurements(lines, COMMAND):
            measurements.add(conn, measurement)
    sys.exit(1 if any(line.reached is False for line in lines) else 0)


def commands(path: Path, *, repetitions: int) -> list[Line]:
    """`kgops --help` and `kgops runs`, over a history of 100,000 runs."""
    home = Home(path)
    fill(home, MANY)
    environment = {**os.environ, "KGOPS_HOME": str(home.path)}
    out = []
    for name, arguments in (("help", ["--help"]), ("runs", ["runs", "--json"])):
        spent = [
            run_process([PYTHON, "-P", "-m", "kgops", *arguments], environment) for _ in range(repetitions)
        ]
        shown = f"kgops {' '.join(arguments)}"
        out.append(Line(f"{name}_cpu", f"{shown}: CPU", "ms", tuple(s.cpu_ms for s in spent), 60))
        out.append(
            Line(f"{name}_memory", f"{shown}: memory", "MiB", tuple(s.peak_mib for s in spent), 25 / 1.048576)
        )
    return out


def fill(home: Home, count: int) -> None:
    """Writes a history of `count` ended runs."""
    make_home(home)
    conn = open_writer(home.database)
    spec = runs.RunSpec({"exec": {"command": ["python", "train.py"]}}, {}, {})
    with transaction(conn):
        for number in range(1, count + 1):
            runs.add(
                conn,
                number=number,
                workload=("train", "tracin", "exec")[number % 3],
                label=f"graph {number % 977}",
                profile=None,
                state="queued",
                folder=f"{number:04d}-bench",
                submitted_at=1.7e9 + number,
                gpu_request=None,
                reserved_mib=None,
                exclusive=False,
                predicted_mib=None,
                spec=spec,
            )
            runs.end(conn, number, state="succeeded", reason=None, exit_code=0, ended_at=1.7e9 + number + 60)
    conn.close()
    # Fold the write-ahead log, which every reading process would otherwise replay.
    writer = open_writer(home.database)
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    writer.close()


def idle_supervisor(path: Path, *, seconds: float) -> list[Line]:
    """A supervisor whose worker does nothing."""
    home = Home(path)
    make_home(home)
    conn = open_writer(home.database)
    number = launch(home, conn, _planned([PYTHON, "-c", f"import time; time.sleep({seconds + 30})"]))
    supervisor = _supervisor_of(home, number)
    time.sleep(5)  # wait until start-up is over
    before = processes.cpu_seconds([supervisor])
    memory = []
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        time.sleep(1)
        memory.append(processes.host_memory_mib([supervisor]) or 0.0)
    share = (processes.cpu_seconds([supervisor]) - before) / (time.monotonic() - begin) * 100
    _stop(home, conn, number)
    return [
        Line("supervisor_memory", "supervisor: memory", "MiB", tuple(memory), 16 / 1.048576),
        Line("supervisor_cpu", "supervisor idle: CPU", "%", (share,), 0.2),
    ]


def reporters(path: Path, *, seconds: float) -> list[Line]:
    """Eight runs that report 100 points a second each, with a reader that polls twice a second."""
    home = Home(path)
    make_home(home)
    conn = open_writer(home.database)
    points = int(seconds * POINTS_PER_S)
    code = (
        "import json, os, time\n"
        "fd = os.open(os.environ['KGOPS_EVENTS'], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)\n"
        "begin = time.monotonic()\n"
        f"for i in range({points}):\n"
        "    line = {'event': 'metric', 'at': time.time(), 'name': 'loss', 'value': 1 / (1 + i), 'step': i}\n"
        "    os.write(fd, json.dumps(line).encode() + b'\\n')\n"
        f"    time.sleep(max(0, begin + (i + 1) / {POINTS_PER_S} - time.monotonic()))\n"
    )
    numbers = [launch(home, conn, _planned([PYTHON, "-I", "-S", "-c", code])) for _ in range(REPORTERS)]
    reads = []
    reader = open_reader(home.database)
    while any(run.state in runs.UNFINISHED for run in runs.in_states(reader, runs.UNFINISHED)):
        begin = time.perf_counter()
        for number in numbers:
            series.curve(reader, number, "loss")
        run_list.page(reader)
        reads.append((time.perf_counter() - begin) * 1000)
        time.sleep(0.5)
    lost = sum(points - len(series.points(reader, number, "loss")) for number in numbers)
    return [
        Line("events_lost", f"events lost of {REPORTERS * points:,}", "events", (float(lost),), 0),
        Line("read", "reading 8 curves and a page of runs meanwhile", "ms", tuple(reads)),
    ]


def commits(path: Path, *, seconds: float) -> list[Line]:
    """How long a supervisor's commit takes while seven others commit too."""
    home = Home(path)
    fill(home, REPORTERS)
    with multiprocessing.get_context("spawn").Pool(REPORTERS) as pool:
        arguments = [(str(home.database), number, seconds) for number in range(1, REPORTERS + 1)]
        took = [ms for one in pool.starmap(_commit_for, arguments) for ms in one]
    p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
    return [
        Line("commit_p50", "a commit of 50 points beside 7 others: median", "ms", tuple(took)),
        Line("commit_p99", "a commit of 50 points beside 7 others: p99", "ms", tuple(took), metric=p99),
    ]


def _commit_for(database: str, number: int, seconds: float) -> list[float]:
    conn = open_writer(Path(database))
    took = []
    until = time.monotonic() + seconds
    n = 0
    while time.monotonic() < until:
        batch = attempts.Batch(
            points=[series.Point("loss", n + i, 0.5, time.time()) for i in range(POINTS_PER_S // 2)]
        )
        n += len(batch.points)
        begin = time.perf_counter()
        attempts.write_batch(conn, number, 1, batch, attempts.Offsets(n, 0))
        took.append((time.perf_counter() - begin) * 1000)
        time.sleep(0.5)
    return took


def _planned(command: list[str]) -> Planned:
    job = read_job({"workload": "exec", "exec": {"command": command}}, "the benchmark's job")
    return Planned(job, (), cpu_target())


def _supervisor_of(home: Home, number: int) -> int:
    from storage import attempts

    conn = open_reader(home.database)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        made = attempts.of_run(conn, number)
        if made and made[0].supervisor_pid:
            return made[0].supervisor_pid
        time.sleep(0.05)
    raise RuntimeError(f"run {number} was not started")


def _stop(home: Home, conn: Any, number: int) -> None:
    run = runs.get(conn, number)
    if run is not None:
        stop_run(home, conn, run, 1.0)
        wait_for_end(home, conn, number)


if __name__ == "__main__":
    run(main)
