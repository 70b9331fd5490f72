"""`python -m benchmarks.screens`: cost of the screens: opening, idling, bytes sent, key latency, a million-line log."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import PYTHON, Line, arguments, finish, json_of, quietness, run
from benchmarks.open_screen import Gpus, screens
from kgops.experiments.fingerprint import fingerprint
from kgops.settings import Home, make_home
from kgops.supervisor.control import stop_run, wait_for_end
from kgops.tour import home as tours
from kgops.tour.filling import fill
from storage import runs
from storage.database import open_writer


def main() -> int:
    parser = arguments("screens", __doc__)
    parser.add_argument("--quick", action="store_true", help="shorter, with fewer repetitions")
    given = parser.parse_args()
    print(f"{quietness()}; {json.dumps(fingerprint()['machine'])}")
    with tempfile.TemporaryDirectory(prefix="kgops-bench-") as base:
        lines = measure(Path(base), rounds=5 if given.quick else 15, seconds=8 if given.quick else 30)
    return finish(lines, keep=given.store)


def measure(base: Path, *, rounds: int, seconds: float) -> list[Line]:
    home = Home(base / "home")
    make_home(home)
    gpus = Gpus.built(base)
    for number in range(1, 6):
        _launch(home, f"ended-{number}", "pass")
    with screens(home):
        pass  # whatever has to be compiled is
    lines = [*first_paint(home, rounds), *at_rest(home, seconds)]
    if gpus is None:
        print("no C compiler: nothing is measured with GPUs", file=sys.stderr)
    else:
        gpus.show(delay_ms=200)
        lines += first_paint(home, rounds, gpus, " with a driver of 200 ms a call")
        gpus.show()
        lines += sent_to_open(base, gpus, rounds)
        with _running(home, 3, every_s=1.0, gpus=gpus), gpus.moving():
            lines += moving(home, seconds, gpus)
    with _running(home, 8, every_s=0.1):
        lines += keys(home, presses=60 if rounds < 10 else 300)
    return [*lines, *log(home, rounds)]


# --- what is measured ---


def first_paint(home: Home, rounds: int, gpus: Gpus | None = None, how: str = "") -> list[Line]:
    """CPU of all its threads until the first frame, and until the runs are in it."""
    first, whole, wall = [], [], []
    for _ in range(rounds):
        begin = time.monotonic()
        with screens(home, gpus) as screen:
            screen.until(b"kgops")
            first.append(screen.cpu_s * 1000)
            screen.until(b"ended-1")
            whole.append(screen.cpu_s * 1000)
            wall.append((time.monotonic() - begin) * 1000)
    slow = "_slow_driver" if gpus else ""
    return [
        Line(f"screens_first_paint{slow}", f"first paint{how}: CPU", "ms", tuple(first), 350),
        Line(f"screens_runs_shown{slow}", f"runs are shown{how}: CPU", "ms", tuple(whole), 350),
        Line(f"screens_runs_shown_wall{slow}", f"the same{how}: wall clock", "ms", tuple(wall)),
    ]


def sent_to_open(base: Path, gpus: Gpus, rounds: int) -> list[Line]:
    """Bytes until a screen of the sample data is complete, at 120x40."""
    tour = Home(base / "tour")
    fill(tour, lambda _: None, ())
    opened: dict[str, list[float]] = {"dashboard": [], "history": [], "run": []}
    try:
        for _ in range(rounds):
            with screens(tour, gpus) as screen:
                screen.until(b"GPUS", b"Tesla T4", b"a curve to watch", b"RECENT")
                screen.read_until_silent()
                opened["dashboard"].append(len(screen.seen) / 1000)
                for name, keys in (("history", b"h"), ("run", b"\r")):
                    screen.seen = b""
                    screen.press(keys)
                    screen.read_until_silent(0.6)
                    opened[name].append(len(screen.seen) / 1000)
    finally:
        tours.remove(tour, own_too=True)
    said = {
        "dashboard": "the whole dashboard",
        "history": "the history, from there",
        "run": "a run, from there",
    }
    return [
        Line(f"screens_sent_{name}", f"sent to open {said[name]}, four GPUs, 120x40", "kB", tuple(sent), 25)
        for name, sent in opened.items()
    ]


def at_rest(home: Home, seconds: float) -> list[Line]:
    """Five ended runs, no GPUs, nothing going on."""
    with screens(home) as screen:
        screen.until(b"ended-1")
        screen.read_for(3)
        idle, sent = screen.share_for(seconds)
        rss = screen.rss_mb
        screen.press(b"p")
        screen.read_for(2)
        paused, _ = screen.share_for(seconds)
    return [
        Line("screens_rss", "dashboard: memory", "MB", (rss,), 70),
        Line("screens_idle_cpu", "nothing changes, 1 Hz: CPU", "%", (idle,), 0.3),
        Line("screens_idle_bytes", "nothing changes, 1 Hz: sent", "B/s", (sent,), 20),
        Line("screens_paused_cpu", "paused: CPU", "%", (paused,), 0.1),
    ]


def moving(home: Home, seconds: float, gpus: Gpus) -> list[Line]:
    with screens(home, gpus) as screen:
        screen.until(b"moving-2")
        screen.read_for(5)
        busy, sent = screen.share_for(seconds)
        rss = screen.rss_mb
    return [
        Line("screens_moving_bytes", "four GPUs and three runs moving, 120x40: sent", "B/s", (sent,), 2500),
        Line("screens_moving_cpu", "the same: CPU", "%", (busy,)),
        Line("screens_moving_rss", "the same: memory", "MB", (rss,), 70),
    ]


def keys(home: Home, presses: int) -> list[Line]:
    """Time from a key to the painted cursor row, among ended runs, which other runs' reports do not repaint."""
    took = []
    with screens(home) as screen:
        screen.until(b"ended-1")
        screen.press(b"G")
        screen.read_for(2)
        for i in range(presses):
            screen.seen = b""
            begin = time.perf_counter()
            screen.press(b"k" if i % 2 == 0 else b"j")
            screen.until_painted(b"ended-2" if i % 2 == 0 else b"ended-1")
            took.append((time.perf_counter() - begin) * 1000)
            screen.read_for(0.02 + 0.03 * (i % 5))  # at all places between two looks of the feed
    p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
    return [
        Line("screens_key_p50", "key to screen while 8 runs report: median", "ms", tuple(took)),
        Line("screens_key_p99", "the same: p99", "ms", tuple(took), 40, metric=p99),
    ]


def log(home: Home, rounds: int, count: int = 1_000_000) -> list[Line]:
    """Log of a million lines: time from a key to the terminal, in new screens each time."""
    _launch(home, "long-log", "pass")
    _write_log(home, count)
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        with screens(home) as screen:
            screen.until(b"long-log")
            screen.read_for(1)
            before = screen.rss_mb
            screen.press(b"g")  # the newest stands first
            screen.read_for(0.2)
            begin, cpu = time.perf_counter(), screen.cpu_s
            screen.press(b"\r")
            screen.until(b"the-last-line")
            taken["open"].append((time.perf_counter() - begin) * 1000)
            taken["open_cpu"].append((screen.cpu_s - cpu) * 1000)
            screen.until(f"of {count:,} lines".encode())
            taken["counted"].append((time.perf_counter() - begin) * 1000)
            screen.press(b"/")
            screen.until(b"search the log")
            screen.press(b"/only once: \\d+/")
            screen.read_for(1)
            begin, cpu = time.perf_counter(), screen.cpu_s
            screen.press(b"\r")
            screen.until(b"only once: 42")
            taken["found"].append((time.perf_counter() - begin) * 1000)
            taken["found_cpu"].append((screen.cpu_s - cpu) * 1000)
            taken["memory"].append(screen.rss_mb - before)
    many = f"a log of {count:,} lines"
    said = {
        "open": (f"open a run with {many}: key to its end on the screen", "ms", 150),
        "open_cpu": ("the same: CPU", "ms", None),
        "counted": ("the same: until all are counted", "ms", None),
        "found": (f"search {many}: key to the only hit, its first line", "ms", 300),
        "found_cpu": ("the same: CPU", "ms", None),
        "memory": ("memory of the log, with the run's page", "MB", None),
    }
    return [
        Line(f"screens_log_{name}", subject, unit, tuple(taken[name]), target)
        for name, (subject, unit, target) in said.items()
    ]


def _write_log(home: Home, count: int) -> None:
    (newest,) = home.runs.glob("*long-log*")
    with (newest / "worker.log").open("w") as file:
        file.write("this is there only once: 42\n")
        file.writelines(
            f"2026-01-01 12:00:00 epoch {i // 500} batch {i % 500}: loss 0.{i % 9973:04d}, 2.7 it/s\n"
            for i in range(count - 2)
        )
        file.write("the-last-line\n")


# --- what is on them ---


@contextmanager
def _running(home: Home, count: int, *, every_s: float, gpus: Gpus | None = None) -> Iterator[None]:
    """Runs that report progress, a rate and a metric until the benchmark ends."""
    code = (
        "import json, math, os, time\n"
        "fd = os.open(os.environ['KGOPS_EVENTS'], os.O_WRONLY | os.O_APPEND)\n"
        "i = 0\n"
        "while True:\n"
        "    i += 1\n"
        "    loss = {'event': 'metric', 'name': 'loss', 'value': 2 * math.exp(-i / 200), 'step': i}\n"
        "    far = {'event': 'progress', 'phase': 'epoch', 'done': i, 'total': 100000, 'unit': 'it',"
        " 'rate': 5 + i % 7 / 10}\n"
        "    os.write(fd, (json.dumps(loss) + '\\n' + json.dumps(far) + '\\n').encode())\n"
        f"    time.sleep({every_s})\n"
    )
    for i in range(count):
        on = [] if gpus is None or i > 1 else ["--gpu", str(i), "--gpu-memory", "6000"]
        _launch(home, f"moving-{i}", code, "--detach", *on, gpus=gpus)
    try:
        yield
    finally:
        conn = open_writer(home.database)
        going = runs.in_states(conn, runs.UNFINISHED)
        for run in going:
            stop_run(home, conn, run, 1.0)
        for run in going:
            wait_for_end(home, conn, run.id)
        conn.close()


def _launch(home: Home, label: str, code: str, *flags: str, gpus: Gpus | None = None) -> None:
    """Runs the code, and waits for its end unless detached; its process may see GPUs that this one does not."""
    seen = gpus.environment if gpus is not None else {}
    words = ["run", "exec", "--label", label, *flags, "--json", "--", PYTHON, "-I", "-S", "-c", code]
    json_of("kgops", *words, KGOPS_HOME=str(home.path), **seen)


if __name__ == "__main__":
    run(main)
