"""Starting a supervisor: a session of its own, nothing of the console's but the lock that proves it lives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kgops.runs import processes
from kgops.runs.folder import RunFolder
from kgops.runs.worker_environment import RUN_VARIABLES
from kgops.settings import Home

# Isolated and without site-packages: half the memory, and nothing on the person's path can replace a module.
ENTRY = "from kgops.runs.supervise import main; main()"
_PREPARE = """
import os, sys
pid = os.fork()
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
    """Starts the supervisor of run `number`, which from now on holds `lock`; the caller's copy is closed."""
    os.set_inheritable(lock, True)
    try:
        log = os.open(
            folder.supervisor_log,
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o600,
        )
        try:
            prelude = f"import sys; sys.path[:0] = {_import_path()!r}; "
            arguments = [prelude + ENTRY, str(home.path), str(number), str(lock)]
            first = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _PREPARE, *arguments],
                _environment(home, number),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
            )
            os.waitpid(first, 0)
        finally:
            os.close(log)
    finally:
        os.close(lock)


def _environment(home: Home, number: int) -> dict[str, str]:
    """Little of the console's: the worker gets its own from the run's folder."""
    names = {"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in names or (name.startswith("KGOPS_") and name not in RUN_VARIABLES)
    }
    return {**kept, "KGOPS_HOME": str(home.path), processes.SUPERVISOR: str(number)}


def _import_path() -> list[str]:
    """Where kgops itself lies, and beside which folder the NVML binding lies."""
    import kgops

    own = str(Path(kgops.__file__).parent.parent)
    other = [entry for entry in sys.path if entry and (Path(entry) / "pynvml.py").exists()]
    return list(dict.fromkeys([own, *other[:1]]))
