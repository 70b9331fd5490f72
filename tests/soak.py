"""Runs the screens and a supervisor for a while, with runs coming and going, and says what of them has grown.

`python tests/soak.py --minutes 30` prints memory, open files, threads and the sizes of files at the start and at the
end; exit code 1 if anything has grown that should not.
"""

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeVar

from driving import QUICK, Console, Terminal, all_of, wait_for

from kgops.supervisor import locks, processes
from kgops.supervisor.run_folder import RunFolder
from storage import runs, series
from storage.database import Connection, open_reader
from storage.runs import Run

T = TypeVar("T")

SAMPLE_EVERY_S = 5.0
KEY_EVERY_S = 1.5
LAUNCH_EVERY_S = 6.0
WARM = 0.25  # of the samples: what is loaded and filled once is no growth
# What memory may differ by: an allocator keeps what it will use again.
MIB_ALLOWED, SHARE_ALLOWED = 1.5, 0.03
# Screens look things up in asyncio's pool, which starts a thread when none is idle, up to so many and no more; and
# where a sample falls decides which screen is open, with a database of its own or without.
POOL = min(32, (os.cpu_count() or 1) + 4)
ALLOWED_TO_SCREENS = {"threads": POOL, "files": 2}

# Reports and logs until its file is gone: the run whose supervisor is watched.
LONG = """
import os, sys, time
events = open(os.environ["KGOPS_EVENTS"], "ab", buffering=0)
for n in range(10**9):
    if not os.path.exists(sys.argv[1]):
        break
    events.write(b'{"event": "metric", "name": "loss", "value": %f, "step": %d}\\n' % (1 / (n + 1), n))
    events.write(b'{"event": "progress", "done": %d, "total": 1000000, "unit": "step"}\\n' % n)
    print("INFO step", n, "x" * (n % 200), flush=True)
    time.sleep(0.1)
"""
METRICS = """
import os, time
events = open(os.environ["KGOPS_EVENTS"], "ab", buffering=0)
for n in range(40):
    events.write(b'{"event": "metric", "name": "loss", "value": %f, "step": %d}\\n' % (1 / (n + 1), n))
    time.sleep(0.05)
"""
TOO_LARGE = "import sys; sys.argv[1] == '64' and sys.exit('torch.OutOfMemoryError: CUDA out of memory')"
SHORT: tuple[tuple[str, ...], ...] = (  # what comes and goes: one of each in turn
    ("--label", "reports", "--", *QUICK, METRICS),
    ("--label", "fails", "--", "sh", "-c", "echo no; exit 3"),
    ("--label", "steps down", "--on-oom", "batch=64,32", "--", *QUICK, TOO_LARGE, "{batch}"),
    ("--label", "is stopped", "--", "sleep", "600"),
    ("--label", "talks", "--", *QUICK, "for n in range(20000): print('line', n)"),
    ("--label", "leaves one behind", "--", "sh", "-c", "sleep 600 & exit 0"),
)
# Open the run under the cursor, its log, all that is known; the history, filtered; every other screen; and back.
KEYS = (
    *("down", "enter", "l", "l", "esc", "h", "/", "r", "e", "p", "enter", ">", "<", "esc", "esc"),
    *("b", "esc", "f", "esc", "n", "esc", "?", "esc", "i", "esc", "c", "c", "c", "up"),
)
_SENT = {"down": b"\x1b[B", "up": b"\x1b[A", "enter": b"\r", "esc": b"\x1b"}


# --- what is measured -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """Of one process, at one moment."""

    mib: float
    files: int
    threads: int


def taken_of(pid: int) -> Taken:
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident_mib = int(told["VmRSS"].split()[0]) / 1024
    return Taken(resident_mib, len(list(Path(f"/proc/{pid}/fd").iterdir())), int(told["Threads"]))


def between(taken: list[float]) -> tuple[float, float]:
    """The medians of the first and the last quarter of what follows the warm-up."""
    rest = taken[int(len(taken) * WARM) :]
    quarter = max(len(rest) // 4, 1)
    return median(rest[:quarter]), median(rest[-quarter:])


def grown(what: str, taken: list[float], whose: str = "supervisor") -> bool:
    """Whether that is growth: of memory more than an allocator's whim, of anything else one more that stays."""
    first, last = between(taken)
    if what == "MiB":
        return last - first > max(MIB_ALLOWED, first * SHARE_ALLOWED)
    return last - first > 0.5 + (ALLOWED_TO_SCREENS[what] if whose == "screens" else 0)


@dataclass
class Report:
    minutes: float = 0.0
    samples: dict[str, list[Taken]] = field(default_factory=dict)  # by process
    database: list[float] = field(default_factory=list)  # MiB
    journal: list[float] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    points: int = 0
    keys: int = 0
    wrong: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        states = ", ".join(f"{n} {state}" for state, n in sorted(self.states.items()) if n)
        yield f"{self.minutes:.1f} minutes, {self.keys} keys; runs: {states}; {self.points:,} points"
        yield f"{'':24}{'start':>10}{'end':>10}"
        for name, taken in self.samples.items():
            for what, values in _by_kind(taken).items():
                yield self._row(f"{name}, {what}", values, grown(what, values, name))
        yield self._row("journal, MiB", self.journal, grown("MiB", self.journal))
        for name, values in (("database", self.database), ("logs and events", self.logs)):
            yield self._row(f"{name}, MiB", values, None)
        begun, ended = self.database[0], self.database[-1]
        each_kib = (ended - begun) * 1024 / max(self.states.total(), 1)
        yield f"{each_kib:.1f} KiB of the database for each run, with all that was reported meanwhile"
        yield from ["nothing has grown that should not"] if not self.verdict() else self.verdict()

    def verdict(self) -> list[str]:
        """What went wrong and what grew; empty if nothing did."""
        kinds = {name: _by_kind(taken) for name, taken in self.samples.items()}
        found = [
            f"GREW: {what} of the {name}"
            for name, by_kind in kinds.items()
            for what, values in by_kind.items()
            if grown(what, values, name)
        ]
        found += ["GREW: the database's journal"] if grown("MiB", self.journal) else []
        return found + [f"WRONG: {what}" for what in self.wrong]

    @staticmethod
    def _row(name: str, values: list[float], is_growth: bool | None) -> str:
        first, last = between(values)
        said = "" if is_growth is None else "  GREW" if is_growth else "  steady"
        return f"{name:24}{first:10.1f}{last:10.1f}{said}"


def _by_kind(taken: list[Taken]) -> dict[str, list[float]]:
    return {
        "MiB": [one.mib for one in taken],
        "files": [float(one.files) for one in taken],
        "threads": [float(one.threads) for one in taken],
    }


# --- running it -----------------------------------------------------------------------------------


class Soak:
    def __init__(self, base: Path) -> None:
        self.report = Report()
        self._console = Console(base / "home", base)
        self._going = base / "going"
        self._shorts = itertools.cycle(SHORT)
        self._keys = itertools.cycle(KEYS)
        self._stopped: set[int] = set()

    def run(self, minutes: float) -> Report:
        console, begun = self._console, time.monotonic()
        self._going.touch()
        long = console.detach(*QUICK, LONG, self._going, flags=("--label", "the long one"))
        supervisor = wait_for(lambda: self._supervisor(long), "the long run's supervisor")
        argv = [sys.executable, "-m", "kgops", "tui"]
        terminal = Terminal(argv, console.environment(), console.cwd)
        try:
            terminal.wait_for_text(b"the long one")
            screens = terminal.child.pid
            self._go_on(begun + minutes * 60, terminal, {"screens": screens, "supervisor": supervisor})
            self._leave(terminal)
        finally:
            terminal.close()
        self._going.unlink()
        console.ended(long)
        self._settle()
        self.report.minutes = (time.monotonic() - begun) / 60
        return self.report

    def _go_on(self, until: float, terminal: Terminal, watched: dict[str, int]) -> None:
        doings: list[tuple[float, Callable[[], None]]] = [
            (SAMPLE_EVERY_S, lambda: self._sample(watched)),
            (KEY_EVERY_S, lambda: self._press(terminal)),
            (LAUNCH_EVERY_S, self._launch),
        ]
        due = [time.monotonic()] * len(doings)
        while (now := time.monotonic()) < until:
            terminal.read(0.1)
            terminal.seen = terminal.seen[-(1 << 16) :]  # ours, and not to grow either
            for i, (every_s, do) in enumerate(doings):
                if now >= due[i]:
                    due[i] = now + every_s
                    do()
            if terminal.child.poll() is not None:
                self.report.wrong.append(f"the screens closed: {terminal.seen[-2000:]!r}")
                return

    def _sample(self, watched: dict[str, int]) -> None:
        for name, pid in watched.items():
            self.report.samples.setdefault(name, []).append(taken_of(pid))
        home = self._console.home
        self.report.database.append(_mib(home / "kgops.db"))
        self.report.journal.append(_mib(home / "kgops.db-wal"))
        told = [*home.glob("runs/*/*.log"), *home.glob("runs/*/events.jsonl")]
        self.report.logs.append(sum(map(_mib, told)))

    def _press(self, terminal: Terminal) -> None:
        key = next(self._keys)
        terminal.type(_SENT.get(key, key.encode()))
        self.report.keys += 1

    def _launch(self) -> None:
        """One more, and an end to those that would go on for ever."""
        for run in self._all(runs.ACTIVE):
            if run.label == "is stopped" and run.state == "running" and run.id not in self._stopped:
                self._stopped.add(run.id)
                self._console("stop", str(run.id), "--no-wait", "--grace", "1")
        done = self._console("run", "exec", "--detach", *next(self._shorts))
        if done.code != 0:
            self.report.wrong.append(f"a run was not taken: {done.err}")

    def _leave(self, terminal: Terminal) -> None:
        for key in (b"\x1b", b"\x1b", b"\x1b", b"q"):  # out of whatever was open, each a key of its own
            terminal.type(key)
            until = time.monotonic() + KEY_EVERY_S
            while time.monotonic() < until and terminal.read(0.1):
                pass
        if terminal.wait() != 0:
            self.report.wrong.append(f"the screens left with {terminal.child.returncode}")

    def _settle(self) -> None:
        """Everything ends and nothing stays; then the record is read."""
        for run in self._all(runs.UNFINISHED):
            self._console("stop", str(run.id), "--grace", "1")
        wait_for(lambda: not self._all(runs.UNFINISHED), "the last runs to end")
        wait_for(lambda: not all_of(self._console.home), "the last processes to leave")
        for state in runs.ENDED:
            found = self._all((state,))
            self.report.states[state] += len(found)
            expected = {"failed": ("fails",), "cancelled": ("is stopped",)}
            if state in expected:
                odd = [run for run in found if run.label not in expected[state]]
                self.report.wrong += [f"run {run.id} {run.label}: {state}, {run.reason}" for run in odd]
        wrote = RunFolder(self._console.folder(1)).events.read_bytes().count(b'"metric"')
        taken_in = self._read(lambda conn: len(series.points(conn, 1, "loss")))
        self.report.points = taken_in
        if wrote != taken_in:
            self.report.wrong.append(f"the long run reported {wrote} points, the record has {taken_in}")

    # --- looking ---

    def _supervisor(self, number: int) -> int | None:
        lock = RunFolder(self._console.folder(number)).supervisor_lock
        if not locks.is_held(lock):
            return None
        held = [who.pid for who in processes.holders(lock)]
        return next((pid for pid in held if processes.parent(pid) not in held), None)

    def _all(self, states: tuple[str, ...]) -> list[Run]:
        return self._read(lambda conn: list(runs.in_states(conn, states)))

    def _read(self, look: Callable[[Connection], T]) -> T:
        conn = open_reader(self._console.home / "kgops.db")
        try:
            return look(conn)
        finally:
            conn.close()


def _mib(path: Path) -> float:
    try:
        return path.stat().st_size / (1 << 20)
    except FileNotFoundError:
        return 0.0


def run_soak(minutes: float) -> Report:
    base = Path(tempfile.mkdtemp(prefix="kgops-soak-"))
    soak = Soak(base)
    try:
        return soak.run(minutes)
    finally:
        soak._console.close()
        if not soak.report.wrong:
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # this checkout, from wherever a run starts
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    result = run_soak(parser.parse_args().minutes)
    print("\n".join(result.lines()))
    sys.exit(1 if result.verdict() else 0)
