"""Starts a supervisor in a new session; it inherits only the lock that proves it is alive."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from kgops.errors import Unavailable
from kgops.jobs import manifest
from kgops.jobs.files import open_own
from kgops.jobs.run_options import GPU
from kgops.settings import Home
from kgops.supervisor import processes
from kgops.supervisor.gate import SURVIVED
from kgops.supervisor.run_folder import RunFolder

# Variables of one run, removed for a run started inside it.
_RUN_VARIABLES = frozenset(
    {
        *("KGOPS_RUN", "KGOPS_RUN_FOLDER", "KGOPS_EVENTS", "KGOPS_ATTEMPT", "KGOPS_SETTINGS", "KGOPS_FORCE"),
        "KGOPS_DATA_BEFORE",
        *(processes.TAG, processes.SUPERVISOR, manifest.OWNER, GPU),
    }
)
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
    log = open_own(folder.supervisor_log, os.O_WRONLY | os.O_APPEND)
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


def _environment(home: Home, number: int) -> dict[str, str]:
    """A minimal environment; the worker gets its own from the run's folder."""
    names = {"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in names or (name.startswith("KGOPS_") and name not in _RUN_VARIABLES)
    }
    return {**kept, "KGOPS_HOME": str(home.path), processes.SUPERVISOR: str(number)}


def _import_path() -> list[str]:
    """Import paths of kgops and of the NVML binding."""
    import kgops

    own = str(Path(kgops.__file__).parent.parent)
    other = [entry for entry in sys.path if entry and (Path(entry) / "pynvml.py").exists()]
    return list(dict.fromkeys([own, *other[:1]]))
