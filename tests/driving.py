"""Driving the real command: subprocesses in a home of their own, conditions with deadlines, and a clean end."""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import prepared
from terminal_cells import shows

from kgops.supervisor import processes
from kgops.supervisor.processes import Identity
from storage import runs
from storage.database import open_reader
from storage.runs import Run

T = TypeVar("T")
QUICK = (sys.executable, "-I", "-S", "-c")  # a Python that starts in a few milliseconds
_BROWSERS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
CHROMIUM = next((path for name in _BROWSERS if (path := shutil.which(name))), None)


def patience() -> float:
    """Seconds after which something hangs: longer while more processes than CPUs want to work. A guard, not a
    promise of speed; tests measure no time."""
    return 300.0 * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def wait_for(condition: Callable[[], T | None], what: str) -> T:
    """What `condition` returns once it is true; a failure that names `what` if it never is."""
    begun = time.monotonic()
    while True:
        found = condition()
        if found:
            return found
        waited = time.monotonic() - begun
        assert waited < patience(), f"waited {waited:.0f} s in vain for {what}"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str
    raw: bytes = b""

    def json(self) -> Any:
        return json.loads(self.out)


def _told(done: subprocess.CompletedProcess[bytes]) -> Done:
    out, err = (said.decode("utf-8", "replace") for said in (done.stdout, done.stderr))
    return Done(done.returncode, out, err, done.stdout)


@dataclass(slots=True)
class Console:
    """`kgops` as a person calls it, in the home of this test."""

    home: Path
    cwd: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KGOPS")}
        return {**kept, "KGOPS_HOME": str(self.home), **(more or {})}

    def argv(self, *args: str | Path) -> list[str]:
        return [sys.executable, "-m", "kgops", *map(str, args)]

    def benchmark(self, name: str, *args: str | Path) -> Done:
        """`python -m benchmarks.NAME` in this home."""
        return self._done([sys.executable, "-m", f"benchmarks.{name}", *map(str, args)])

    def __call__(
        self,
        *args: str | Path,
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Done:
        words, variables = [str(word) for word in args], self.environment(env)
        # Those that start it in a way of their own have classes of their own.
        done = prepared.call(words, variables, cwd or self.cwd, input) if type(self) is Console else None
        return _told(done) if done else self._done(self.argv(*args), input, env, cwd)

    def must(self, *args: str | Path, **how: Any) -> Done:
        """Of a command that is no use unless it succeeds."""
        done = self(*args, **how)
        assert done.code == 0, done.err + done.out
        return done

    def _done(
        self,
        argv: list[str],
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Done:
        done = subprocess.run(
            argv,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            env=self.environment(env),
            cwd=cwd or self.cwd,
            timeout=patience(),
        )
        return _told(done)

    def start(self, *args: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Goes on in the background, without a terminal and in a session of its own."""
        child = subprocess.Popen(
            self.argv(*args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(env),
            cwd=self.cwd,
            start_new_session=True,
        )
        self.started.append(child)
        return child

    def detach(self, *command: str | Path, flags: tuple[str, ...] = (), **how: Any) -> int:
        """The number of a run that goes on by itself."""
        done = self("run", "exec", "--detach", *flags, "--", *command, **how)
        assert done.code == 0, done.err
        return int(done.out)

    def going(self, *command: str | Path, **how: Any) -> int:
        """As `detach`, once it is running."""
        number = self.detach(*command, **how)
        self.running(number)
        return number

    def run(self, number: int) -> Run | None:
        """As the database has it, without a command that would settle anything."""
        conn = open_reader(self.home / "kgops.db")
        try:
            return runs.get(conn, number)
        finally:
            conn.close()

    def row(self, number: int) -> Run:
        """Of a run that is there."""
        run = self.run(number)
        assert run is not None, f"there is no run {number}"
        return run

    def ended(self, number: int) -> Run:
        """The run once it has ended, with no console looking."""

        def look() -> Run | None:
            run = self.run(number)
            return run if run is not None and run.ended else None

        return wait_for(look, f"the end of run {number}")

    def running(self, number: int) -> Run:
        def look() -> Run | None:
            run = self.run(number)
            assert run is None or not run.ended, f"run {number} ended: {run.state}, {run.reason}"
            return run if run is not None and run.state == "running" else None

        return wait_for(look, f"run {number} to be running")

    def folder(self, number: int) -> Path:
        return self.home / "runs" / self.row(number).folder

    def supervisor(self, number: int) -> Identity:
        """Of a run that goes on: it alone holds the lock."""
        (found,) = processes.holders(self.folder(number) / "supervisor.lock")
        return found

    def show(self, number: int) -> dict[str, Any]:
        done = self("show", str(number), "--json")
        assert done.code == 0, done.err
        shown: dict[str, Any] = done.json()
        return shown

    def close(self) -> None:
        end_all_of(self.home)
        for child in self.started:
            child.kill()
            child.communicate()


def is_clear(text: str) -> bool:
    """An answer that a person can act on: one error, with a hint."""
    return text.count("Error: ") == 1 and "Hint: " in text and "Traceback" not in text


def files_of_runs(console: Console) -> set[str]:
    return {path.name for path in (console.home / "runs").iterdir()}


# --- processes ------------------------------------------------------------------------------------


def with_variable(variable: str) -> list[Identity]:
    """Whoever was started with this name and value, but for this process."""
    return processes._others(lambda pid: variable.encode() in processes._environment(pid))


def words_of(pid: int) -> list[bytes]:
    """Its command line; empty once it is over."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def screens_of(home: Path) -> list[int]:
    """Processes of `kgops tui`."""
    return [who.pid for who in all_of(home) if {b"kgops", b"tui"} <= set(words_of(who.pid))]


def all_of(home: Path) -> set[Identity]:
    """Supervisors, gates, workers and whatever they started: by the home in their environment, or by a
    worker lock they hold, and everything below those."""
    pids = [who.pid for who in with_variable(f"KGOPS_HOME={home}")]
    found = {who for pid in processes.descendants(pids) if (who := processes.identify(pid)) is not None}
    for lock in home.glob("runs/*/worker.lock"):
        found |= set(processes.holders(lock))
    return found


def end_all_of(home: Path, but: Set[Identity] = frozenset()) -> None:
    """At once: nobody among them sees another die, writes down how, or starts somebody."""
    begun = time.monotonic()
    while found := all_of(home) - but:
        assert time.monotonic() < begun + patience(), f"still alive: {found}"
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for who in found:
                processes.send(who, number)
        time.sleep(0.01)


def identity_in(file: Path) -> Identity:
    """Of a process that wrote its own number into `file`; it is alive."""

    def look() -> Identity | None:
        text = file.read_text() if file.exists() else ""
        return processes.identify(int(text)) if text.endswith("\n") else None

    return wait_for(look, f"a living process in {file.name}")


# --- terminals ------------------------------------------------------------------------------------


class Terminal:
    """A real terminal, with the command as the leader of the session that owns it."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], cwd: Path) -> None:
        self.master, slave = pty.openpty()
        self.seen = b""
        # setsid -c makes the terminal the controlling one; a login shell would do the same.
        self.child = subprocess.Popen(
            ["setsid", "-c", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"},
            cwd=cwd,
        )
        os.close(slave)

    def read(self, wait_s: float = 0.02) -> bool:
        """Takes what has been shown; False once nobody has the terminal open any more."""
        if select.select([self.master], [], [], wait_s)[0]:
            try:
                new = os.read(self.master, 1 << 16)
            except OSError:  # EIO: the last one closed it
                return False
            self.seen += new
            return bool(new)
        return True

    def wait_for_text(self, text: bytes) -> None:
        def look() -> bool:
            self.read()
            return text in self.seen or self._shows(text)

        try:
            wait_for(look, f"{text!r} on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows {self.seen!r}") from None

    def _shows(self, text: bytes) -> bool:
        """On a screen, of which only the cells that changed are sent."""
        return b"\x1b[?1049h" in self.seen and shows(self.seen, text.decode())

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    def wait(self) -> int:
        """The command's exit code; what it shows until then is kept in `seen`."""
        begun = time.monotonic()
        while self.child.poll() is None:
            assert time.monotonic() < begun + patience(), f"still running; the terminal shows {self.seen!r}"
            if self.master >= 0:
                self.read()
            else:
                time.sleep(0.02)
        while self.master >= 0 and self.read(0.05) and select.select([self.master], [], [], 0.05)[0]:
            pass
        return self.child.returncode

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        if self.master >= 0:
            self.hang_up()
