"""`python -m benchmarks.history`: cost of viewing 100,000 runs, as many values and a log of a million lines."""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.entry import run
from benchmarks.history_screen import history_screen
from benchmarks.measure import PYTHON, Line, quietness, run_process, store, table
from kgops.experiments.fingerprint import fingerprint
from kgops.settings import Home, make_home
from kgops.views.listing import BLOCK, Listing, Sort
from kgops.views.log_index import LogIndex
from kgops.views.log_lines import Level, LineFilter
from kgops.views.log_search import LogSearch
from storage import attempts, filters, reports, run_list, runs, series
from storage.database import Connection, open_reader, open_writer, transaction

COMMAND = "python -m benchmarks.history"
RUNS = 100_000
LINES = 1_000_000
# Filters typed key by key.
TYPED = (
    "a",
    "umls baseline",
    "workload:train gpu:t4 mrr>0.3 tag:paper since:400d",
    "state:failed -tag:old label:seed",
    "peak_gpu>10g best.loss<0.5 treats",
    "python train.py",
    "x",
)
_GPUS = {"GPU-1": "Tesla T4", "GPU-2": "Tesla T4", "GPU-3": "NVIDIA A100-SXM4-80GB", "GPU-4": "NVIDIA H200"}
_WORDS = ("robokop", "treats disease", "umls", "kinships", "wn18rr", "ablation", "baseline", "sweep", "seed")


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the runs and lines, for a rough check"
    )
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="folder of the history: created if missing, else reused"
    )
    arguments = parser.parse_args()
    share = 10 if arguments.quick else 1
    print(f"{quietness()}; {json.dumps(fingerprint()['machine'])}")
    with tempfile.TemporaryDirectory(prefix="kgops-bench-") as base:
        home = Home(arguments.keep or Path(base) / "home")
        if not home.database.exists():
            fill(home, RUNS // share)
        lines = [*listing(home), *history_screen(home, TYPED), *command(home)]
        lines += log(Path(base) / "worker.log", LINES // share)
    print("\n".join(table(lines)))
    if arguments.store:
        store(lines, COMMAND)
    sys.exit(1 if any(line.reached is False for line in lines) else 0)


def fill(home: Home, count: int) -> None:
    """Writes a realistic history: three workloads, curves, values, tags, notes, several GPUs."""
    make_home(home)
    conn = open_writer(home.database)
    chance = random.Random(1)
    with transaction(conn):
        for number in range(1, count + 1):
            _add(conn, number, time.time() - (count - number) * 300, chance)
    conn.close()
    writer = open_writer(home.database)
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    writer.close()


def _add(conn: Connection, number: int, at: float, chance: random.Random) -> None:
    workload = chance.choice(("train", "train", "train", "tracin", "exec"))
    label = f"{chance.choice(_WORDS)} {chance.choice(_WORDS)} {chance.randrange(1000)}"
    gpu = chance.choice((None, *_GPUS))
    gpus = [{"uuid": uuid, "name": name} for uuid, name in _GPUS.items()]
    runs.add(
        conn,
        number=number,
        workload=workload,
        label=label,
        profile=chance.choice((None, "t4", "a100")),
        state="queued",
        folder=f"{number:04d}-{workload}",
        submitted_at=at,
        gpu_request=None if gpu is None else "auto",
        reserved_mib=None,
        exclusive=False,
        predicted_mib=chance.uniform(100, 80_000),
        spec=runs.RunSpec(
            {"exec": {"command": ["python", "train.py", "--seed", str(number)]}}, {}, {"gpus": gpus}
        ),
    )
    runs.claim(conn, number, gpu=gpu)
    attempts.begin(
        *(conn, number, 1),
        settings={},
        gpu=gpu,
        boot_id="none",
        worker_pid=0,
        worker_started=0,
        supervisor_pid=0,
        started_at=at + 5,
    )
    gpu_mib, host_mib = chance.uniform(100, 80_000) if gpu else None, chance.uniform(300, 9_000)
    attempts.note_peaks(conn, number, 1, gpu_mib=gpu_mib, host_mib=host_mib, cpu_s=None)
    succeeded = chance.random() < 0.7
    if workload != "exec":
        names = ("loss", "valid_mrr", "valid_hits_at_10", "learning_rate", "epoch_seconds")
        series.append(conn, number, [series.Point(name, 1, chance.random(), at) for name in names])
        metrics = ("test_mrr", "test_hits_at_1", "test_hits_at_10", "best_epoch", "train_s")
        reports.record_result(
            conn, number, [], {name: chance.random() for name in metrics} if succeeded else {}
        )
    if chance.random() < 0.1:
        reports.change_tags(conn, number, add=[chance.choice(("paper", "old", "keep"))], remove=[])
    if chance.random() < 0.02:
        reports.add_note(conn, number, at, "diverged after the second epoch")
    runs.end(
        conn,
        number,
        state="succeeded" if succeeded else chance.choice(("failed", "out_of_memory", "interrupted")),
        reason=None if succeeded else "ValueError: what it was",
        exit_code=0 if succeeded else 1,
        ended_at=at + chance.uniform(10, 9000),
    )


def listing(home: Home) -> list[Line]:
    """Opening, paging, sorting, and each key press of the filters."""
    conn = open_reader(home.database)
    count = runs.count(conn)
    opened = [_opened(home) for _ in range(7)]
    before = _resident_mib()
    shown = Listing(conn)
    shown.show(())
    chance = random.Random(2)
    pages = [_ms(lambda: _page(conn, shown, chance.randrange(count))) for _ in range(50)]
    keys, slowest = _typed(conn)
    sorts = []
    for by, metric in (("peak_host_mib", False), ("mrr", True), ("label", False)):
        sorts.append(_ms(partial(shown.show, (), Sort(by, metric))))
        pages += [_ms(lambda: _page(conn, shown, chance.randrange(count))) for _ in range(50)]
    p99 = sorted(keys)[int(len(keys) * 0.99)]
    return [
        Line("history_open", f"open a history of {count:,} runs, first page", "ms", tuple(opened), 100),
        Line(
            "history_page", "a page of 200 anywhere, four orders: slowest", "ms", tuple(pages), 50, max(pages)
        ),
        Line("history_key", f"a key press of {len(TYPED)} filters, median", "ms", tuple(keys), 35),
        Line("history_key_p99", f"a key press of {len(TYPED)} filters, p99", "ms", tuple(keys), 35, p99),
        Line("history_key_max", f"the same: slowest, {slowest!r}", "ms", tuple(keys), 35, max(keys)),
        Line("history_sort", "sorting all runs, slowest order", "ms", tuple(sorts), None, max(sorts)),
        Line("history_memory", "memory of a window with its caches", "MiB", (_resident_mib() - before,)),
    ]


def _typed(conn: Connection) -> tuple[list[float], str]:
    """Best of three for each key, each in a fresh window without cached filters."""
    best: dict[str, float] = {}
    for _ in range(3):
        for text in TYPED:
            window = Listing(conn)
            window.show(())
            for end in range(1, len(text) + 1):
                took = _ms(partial(_press, conn, window, text[:end]))
                best[text[:end]] = min(took, best.get(text[:end], took))
    return list(best.values()), max(best, key=best.__getitem__)


def _page(conn: Connection, window: Listing, first: int = 0) -> None:
    """Reads a screen's rows, as the history does."""
    run_list.of_numbers(conn, list(window.numbers[first : first + BLOCK]))


def _press(conn: Connection, window: Listing, text: str) -> None:
    window.show(filters.read(text, typing=True).terms)
    _page(conn, window)


def _opened(home: Home) -> float:
    def work() -> None:
        conn = open_reader(home.database)
        window = Listing(conn)
        window.show(())
        _page(conn, window)

    return _ms(work)


def command(home: Home) -> list[Line]:
    """`kgops runs` in a new process."""
    environment = {**os.environ, "KGOPS_HOME": str(home.path)}
    out = []
    for name, target, arguments in (
        ("runs", (60.0, 25 / 1.048576), ["runs", "--json"]),
        ("filtered", (None, None), ["runs", "--json", "mrr>0.3 tag:paper"]),
        ("csv", (None, None), ["runs", "--all", "--csv", "--metric", "mrr"]),
    ):
        spent = [run_process([PYTHON, "-P", "-m", "kgops", *arguments], environment) for _ in range(7)]
        shown = f"kgops {' '.join(arguments)}"
        out.append(Line(f"{name}_cpu", f"{shown}: CPU", "ms", tuple(s.cpu_ms for s in spent), target[0]))
        out.append(
            Line(f"{name}_memory", f"{shown}: memory", "MiB", tuple(s.peak_mib for s in spent), target[1])
        )
    return out


def log(path: Path, count: int) -> list[Line]:
    """A log of a million lines in the page cache, as a log that is being written."""
    with path.open("w") as file:
        for i in range(count):
            file.write(
                f"2026-01-01 12:00:00 epoch {i // 500} batch {i % 500}: loss 0.{i % 9973:04d} lr 0.001, 2.7 it/s\n"
            )
        file.write("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n")
    mib = path.stat().st_size >> 20
    before = _resident_mib()
    opened, read, chunks, calls = [], [], [], []
    for _ in range(7):
        opened.append(_ms(lambda: LogIndex(path).tail(200)))
        index = LogIndex(path)
        read.append(sum(new_chunks := _each(index.advance)))
        chunks += new_chunks
    lines = [
        Line("log_open", f"open a log of {count:,} lines ({mib} MiB) at its end", "ms", tuple(opened), 150),
        Line("log_read", "count all its lines", "ms", tuple(read), 150),
        Line("log_piece", "count all its lines: the longest chunk", "ms", tuple(chunks), None, max(chunks)),
    ]
    chance = random.Random(3)
    jumps = [_ms(lambda: index.lines(chance.randrange(count), 60)) for _ in range(200)]
    lines.append(Line("log_lines", "60 lines anywhere: slowest", "ms", tuple(jumps), None, max(jumps)))
    for name, wanted, target in (
        ("text", LineFilter("cuda OUT of memory"), 300.0),
        ("exact", LineFilter("CUDA out of memory", ignore_case=False), 300.0),
        ("error", LineFilter(levels=frozenset[Level]({"error"})), None),
        ("regex", LineFilter(r"allocate \d+\.\d+ MiB$", regex=True), None),
    ):
        spent = [_search(path, wanted) for _ in range(5)]
        calls += [longest for _, longest in spent]
        subject = f"search {name}, no index yet, hit in the last line"
        lines.append(Line(f"log_search_{name}", subject, "ms", tuple(took for took, _ in spent), target))
    lines.append(Line("log_call", "search: the longest call", "ms", tuple(calls), None, max(calls)))
    lines.append(Line("log_memory", "memory after all log operations", "MiB", (_resident_mib() - before,)))
    return lines


def _search(path: Path, wanted: LineFilter) -> tuple[float, float]:
    """Total time and longest call of a search, in ms."""
    search = LogSearch(LogIndex(path), wanted)
    calls = []
    next_line: int | None = 0
    while next_line is not None:
        begin = time.perf_counter()
        result = search.forward(next_line)
        calls.append((time.perf_counter() - begin) * 1000)
        if result.hits:
            return sum(calls), max(calls)
        next_line = result.next_line
    raise RuntimeError("the line was not found")


def _each(step: Callable[[], bool]) -> list[float]:
    took = []
    more = True
    while more:
        begin = time.perf_counter()
        more = step()
        took.append((time.perf_counter() - begin) * 1000)
    return took


def _ms(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    run(main)
