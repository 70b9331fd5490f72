"""The start of an attempt: its worker process and its environment."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable
from kgops.jobs.files import NotAFile, open_regular, set_aside, size_of, sync_folder, write_json
from kgops.settings import Home
from kgops.supervisor import gate, locks, processes, run_folder
from kgops.supervisor.environment import RUN_VARIABLES, worker_environment
from kgops.supervisor.gate import SURVIVED
from kgops.supervisor.plan_file import Plan, Private
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.watch import reap

__all__ = [
    "Beginning",
    "full_path_of_home",
]

# Isolated and without site-packages: half the memory, and the user's path cannot replace a module.
ENTRY = "from kgops.supervisor.supervise import main; main()"
_PREPARE = """
import os, sys
try:
    pid = os.fork()
except OSError as error:
    os._exit(error.errno)  # the console says it
if pid:
    os._exit(0)  # the supervisor is nobody's child: no console has to reap it
os.setsid()
# A console inside a run has that run's worker lock open: the supervisor of another run must not keep it held.
lock = int(sys.argv[-1])
os.closerange(3, lock)
os.closerange(lock + 1, os.sysconf("SC_OPEN_MAX"))
import ctypes
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # survives the exec; ctypes' memory does not
os.execv(sys.executable, [sys.executable, "-I", "-S", "-OO", "-c", *sys.argv[1:]])
"""


def start_supervisor(home: Home, number: int, folder: RunFolder, lock: int) -> None:
    """Starts the supervisor of run `number`, which inherits `lock`; the caller's copy is closed.

    Unavailable if no process can be created: then the caller keeps the lock.
    """
    os.set_inheritable(lock, True)
    try:
        _spawn(home, number, folder, lock)
    except OSError as error:
        raise Unavailable(
            f"cannot start a supervisor for run {number}: {error.strerror}",
            "check the limits on processes: `ulimit -u`, and those of the container",
        ) from error
    os.close(lock)


def _spawn(home: Home, number: int, folder: RunFolder, lock: int) -> None:
    log = _open_log(folder)
    try:
        prelude = f"import sys; sys.path[:0] = {_import_path()!r}; "
        arguments = [prelude + ENTRY, str(home.path), str(number), str(lock)]
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _PREPARE, *arguments],
            _environment(home, number),
            setsigmask=SURVIVED,  # until the supervisor ignores them
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
        )
    finally:
        os.close(log)
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:  # our parent set SIGCHLD to be ignored: the exit is unknown
        return
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        is_errno = 0 < code < 128
        raise OSError(
            code if is_errno else errno.ECHILD, os.strerror(code) if is_errno else f"it ended with {code}"
        )


def _open_log(folder: RunFolder) -> int:
    """Opens the log to append; moves aside anything at its path that is not a file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        return open_regular(folder.supervisor_log, flags)
    except NotAFile:
        set_aside(folder.supervisor_log)
        return open_regular(folder.supervisor_log, flags)


def _environment(home: Home, number: int) -> dict[str, str]:
    """A minimal environment; the worker gets its own from the run's folder."""
    names = {"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in names or (name.startswith("KGOPS_") and name not in RUN_VARIABLES)
    }
    return {**kept, "KGOPS_HOME": str(home.path), processes.SUPERVISOR: str(number)}


def _import_path() -> list[str]:
    """Import paths of kgops and of the NVML binding."""
    import kgops

    own = str(Path(kgops.__file__).parent.parent)
    other = [entry for entry in sys.path if entry and (Path(entry) / "pynvml.py").exists()]
    return list(dict.fromkeys([own, *other[:1]]))


@dataclass(frozen=True, slots=True)
class Beginning:
    """Starts a new attempt."""

    folder: RunFolder
    plan: Plan
    private: Private
    gpu: str | None
    number: int
    settings: dict[str, Any]
    spelled_home: Path

    def begin(self, report_wait: Callable[[str], bool]) -> tuple[Identity, int]:
        """The gate, and the pipe that opens it; the gate exits when the pipe closes. OSError if nothing was started.

        `report_wait` gets the reason why there is no process yet, and returns whether to keep waiting.
        """
        tree = Tree(self.folder, self.number)
        attempt = self.folder.attempt(self.number)
        attempt.path.mkdir(parents=True)
        run_folder.reserve(attempt.exit)
        attempt.reserve_marks()
        sync_folder(self.folder.attempts)
        began = gate.Clocks.now()
        details = {
            "settings": self.settings,
            "at": began.wall_s,
            "log_from": size_of(self.folder.log),
            "tag": tree.tag,
            "mark": (mark := processes.new_mark()),
        }
        start = self._start(tree, began, mark)
        opening, opener = os.pipe()
        try:
            lock = self._worker_lock()
            try:
                pid = _fork(report_wait)
                if pid == 0:
                    os.close(opener)
                    gate.run_gate(start, opening, lock)
            finally:
                os.close(lock)  # now only the worker's tree holds it
            identity = processes.identify(pid)
            if identity is None:
                raise ProcessLookupError(errno.ESRCH, "the gate ended before it was opened")
            write_json(attempt.identity, {**identity.as_table(), **details})
        except BaseException:
            os.close(opener)
            raise
        finally:
            os.close(opening)
        return identity, opener

    def _start(self, tree: Tree, began: gate.Clocks, mark: int | None) -> gate.Start:
        home = Home(full_path_of_home(self.spelled_home))
        folder = RunFolder(home.runs / self.folder.path.name)
        command, environment = worker_environment(
            home, folder, self.plan, self.private, self.number, self.settings, tree.tag, self.gpu
        )
        return gate.Start(
            self.folder.attempt(self.number),
            command,
            Path(self.private.cwd),
            environment,
            self.private.umask,
            self.folder.log,
            began,
            mark,
            # kgops' workers set the limit after loading their libraries, which do not report out-of-memory clearly.
            self.plan.memory_limit_mib if self.plan.is_command else None,
        )

    def _worker_lock(self) -> int:
        """Takes the worker lock, after killing what is left of earlier attempts."""
        set_aside(self.folder.worker_lock)
        while (lock := locks.take(self.folder.worker_lock)) is None:
            for earlier in range(1, self.number):
                Tree(self.folder, earlier).end(grace_s=0, reap=reap)
            for who in processes.holders(self.folder.worker_lock):
                processes.send(who, signal.SIGKILL)
        return lock


def full_path_of_home(spelled: Path) -> Path:
    """Path of the home, the working folder: as the user wrote it, if that still leads here."""
    try:
        is_here = spelled.is_absolute() and spelled.samefile(Path())
    except OSError:
        is_here = False
    return spelled if is_here else Path.cwd()


def _fork(report_wait: Callable[[str], bool]) -> int:
    """Forks; retries while the machine has no process or memory to spare."""
    while True:
        try:
            return os.fork()
        except OSError as error:
            is_temporary = error.errno in (errno.EAGAIN, errno.ENOMEM)
            if not is_temporary or not report_wait(f"cannot create a process yet: {error.strerror}"):
                raise
        time.sleep(1.0)
