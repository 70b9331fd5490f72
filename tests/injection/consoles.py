"""`kgops` as a person calls it, in children of one process that has imported it: thousands of calls in minutes.

That process has the library preloaded; a child that is to be attacked arms it, all others leave it asleep.
"""

import importlib
import os
import pkgutil
import select
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from injected_mutants import MUTANTS
from interposing import Arming

import kgops
import kgops.cli
from kgops.settings import Home
from kgops.supervisor import locks, processes, spawn
from kgops.supervisor.run_folder import RunFolder

HERE = Path(__file__).parent
# A stop is seen within a tick: supervisors that look more often change nothing else.
_ENTRY = "from kgops.supervisor import supervise, watch; watch.TICK_S = 0.05; "
_planted = ""


@dataclass(frozen=True, slots=True)
class Room:
    """What one injection has for itself: a home, what its workers say, and the notes of the library."""

    path: Path

    @property
    def home(self) -> Home:
        return Home(self.path / "home")

    @property
    def truth(self) -> Path:
        return self.path / "truth"

    @property
    def notes(self) -> Path:
        return self.path / "notes"

    def folder_of(self, name: str) -> RunFolder:
        return RunFolder(self.home.runs / name)

    def is_supervised(self) -> bool:
        return any(locks.is_held(RunFolder(path).supervisor_lock) for path in self.home.runs.glob("[0-9]*"))


@dataclass(frozen=True, slots=True)
class Answer:
    code: int | None  # None: it was killed
    out: str
    err: str
    took_s: float
    is_late: bool = False

    @property
    def has_traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.err or "Exception ignored in" in self.err


def import_everything() -> None:
    """Whatever a console imports, once for all of them. Files that are opened for it are not the home's."""
    for found in pkgutil.walk_packages(kgops.__path__, "kgops."):
        never_needed = ("kgops.maths", "kgops.cluster", "kgops.tour", "kgops.cli.bench", "kgops.cli.demo")
        if not found.name.startswith(never_needed) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    importlib.import_module("storage.schema")
    spawn.ENTRY = _ENTRY + "supervise.main()"


def plant(fault: str) -> None:
    """A mutant, in the consoles and in each supervisor."""
    global _planted
    MUTANTS[fault].plant()
    _planted = (
        f"sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]; "
        f"import injected_mutants; injected_mutants.MUTANTS[{fault!r}].plant(); "
    )
    spawn.ENTRY = _planted + _ENTRY + "supervise.main()"


def fresh_room(path: Path, template: Path | None = None) -> Room:
    """An empty one, or a copy of a template, which is a room too."""
    shutil.rmtree(path, ignore_errors=True)
    if template is not None:
        shutil.copytree(template, path, symlinks=True)
    room = Room(path)
    room.notes.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10):
        (room.truth / str(number)).mkdir(parents=True, exist_ok=True)
    return room


def call(
    room: Room,
    *arguments: str,
    limit_s: float,
    arming: Arming | None = None,
    hold: bool = False,
) -> Answer:
    """Like `kgops ARGUMENTS` in this room; killed once the limit has passed."""
    out, err = room.path / "out", room.path / "err"
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _become_console(room, arguments, arming, hold, out, err)
    is_late = False
    descriptor = os.pidfd_open(child)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(limit_s * 1000):
            is_late = True
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(status)
    return Answer(
        code if code >= 0 else None,
        out.read_text(errors="replace"),
        err.read_text(errors="replace"),
        time.monotonic() - began,
        is_late,
    )


def _become_console(
    room: Room, arguments: tuple[str, ...], arming: Arming | None, hold: bool, out: Path, err: Path
) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        for number, path, flags in (
            (0, Path(os.devnull), os.O_RDONLY),
            (1, out, os.O_WRONLY),
            (2, err, os.O_WRONLY),
        ):
            fd = os.open(path, flags | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(fd, number)
            os.close(fd)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - an open file
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
        os.closerange(3, 1024)
        for name in [name for name in os.environ if name.startswith(("KGOPS", "INJECTED", "LD_PRELOAD"))]:
            del os.environ[name]
        os.environ |= {"KGOPS_HOME": str(room.home.path), "INJECTED_TRUTH": str(room.truth)}
        if hold:
            os.environ["INJECTED_HOLD"] = "1"
        os.chdir(room.path)
        os.umask(0o022)
        sys.argv = ["kgops", *arguments]
        if arming is not None:
            arming.lay_ready()
            look = (
                f"import os, sys; os.access({arming.path('supervisor')!r}, 0) or sys.exit('not preloaded'); "
            )
            spawn.ENTRY = look + _planted + _ENTRY + "supervise.main()"
            assert os.access(arming.path("console"), 0), "the library is not preloaded"
        code = kgops.cli.main(list(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def processes_of(room: Room) -> list[processes.Identity]:
    """Every process that was started in this room and lives: all carry its path in their environment."""
    wanted = str(room.path).encode() + b"/"
    return processes._others(lambda pid: wanted in b"\0".join(processes._environment(pid)))
