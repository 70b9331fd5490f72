"""The gate: the small process between a supervisor and a worker.

It lets no code of the worker run before the worker's identity is on disk, and it records the worker's exit,
which would be lost otherwise if the supervisor was killed.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from kgops.jobs.files import open_own
from kgops.supervisor import run_folder
from kgops.supervisor.processes import host_memory_mib, set_mark
from kgops.supervisor.run_folder import AttemptFolder, RunFolder, put_right

OPENED = b"!"
NEVER_OPENED = 97
COULD_NOT_START = 127
_FORK_TRIES = 60
# Signals that a person, shell or cluster may send to a whole group, and timers that a supervisor may have set.
SURVIVED = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR),
)
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them; a shell's pipes rely on them


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker's exit. `code` is None if a signal ended it."""

    code: int | None
    signal: int | None
    at: float
    peak_mib: float | None  # of the largest single process of the tree; None: unknown
    asked_to_stop: bool  # whether a stop was sent before
    could_not_start: str | None = None  # reason, if none of the worker's code ran
    cpu_s: float | None = None  # of the worker and of the processes that it waited for
    cpu_limit_reached: bool = False  # the hard limit of `ulimit -t`, at which the kernel sends SIGKILL


def read_exit(attempt: AttemptFolder) -> Exit | None:
    table = run_folder.read(attempt.exit)
    try:
        return Exit(**table) if table else None
    except TypeError:
        return None


@dataclass(frozen=True, slots=True)
class Clocks:
    """One time on two clocks: the wall clock, which may be set, and the seconds since boot."""

    wall_s: float
    since_boot_s: float

    @classmethod
    def now(cls) -> Clocks:
        return cls(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))

    def wall_now(self) -> float:
        """The current wall time, unaffected by clock changes since this time."""
        return self.wall_s + time.clock_gettime(time.CLOCK_BOOTTIME) - self.since_boot_s


@dataclass(frozen=True, slots=True)
class Start:
    """All that the gate needs to start a worker."""

    attempt: AttemptFolder
    command: list[str]
    cwd: Path
    environment: dict[str, str]
    umask: int
    log: Path
    began: Clocks
    mark: int | None  # of processes.set_mark
    memory_limit_mib: int | None = None


def run_gate(start: Start, opening: int, worker_lock: int) -> None:
    """Runs the gate in the forked child; never returns. The worker inherits `worker_lock`."""
    try:
        _run_gate(start, opening, worker_lock)
    finally:  # after any error: this copy of the supervisor must not continue as a second one
        os._exit(COULD_NOT_START)


def _run_gate(start: Start, opening: int, worker_lock: int) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    # O_APPEND and a file, not a pipe: no death of an owner can block the worker or end it by SIGPIPE.
    try:
        out = _open_log(start.log)
    except OSError as error:
        _write_exit(start, code=COULD_NOT_START, why=f"cannot write the worker's log: {error.strerror}")
        os._exit(COULD_NOT_START)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    low, high = sorted((opening, worker_lock))
    for first, end in ((3, low), (low + 1, high), (high + 1, os.sysconf("SC_OPEN_MAX"))):
        os.closerange(first, end)
    for number in SURVIVED:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the worker would inherit
    if os.read(opening, 1) != OPENED:
        os._exit(NEVER_OPENED)  # the supervisor is gone: the worker has not run and will not
    os.close(opening)
    try:
        start.attempt.mark_begun()
    except OSError as error:
        _write_exit(start, code=COULD_NOT_START, why=f"cannot mark the attempt as begun: {error.strerror}")
        os._exit(COULD_NOT_START)
    gate_mib = host_memory_mib([os.getpid()]) or 0.0
    tries_left = iter(range(_FORK_TRIES - 1))
    try:
        worker = fork_patiently(lambda why: next(tries_left, None) is not None)
    except OSError as error:
        _write_exit(start, code=COULD_NOT_START, why=f"cannot create the worker process: {error.strerror}")
        os._exit(COULD_NOT_START)
    if worker == 0:
        _exec_worker(start, worker_lock)
    os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    cpu_limit_s = _cpu_limit_s(worker)  # while it can still be asked for
    _, status, used = os.wait4(worker, 0)
    code = os.waitstatus_to_exitcode(status)
    # Before exec the worker was a copy of the gate: a peak no larger than the gate's is not the worker's.
    peak_mib = used.ru_maxrss / 1024 if used.ru_maxrss / 1024 > gate_mib + 1 else None
    was_killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)  # the latter as shells report a child's
    cpu_s = used.ru_utime + used.ru_stime
    reached = was_killed and cpu_limit_s is not None and _is_about(cpu_limit_s, cpu_s)
    _write_exit(start, code=code, peak_mib=peak_mib, cpu_s=cpu_s, cpu_limit_reached=reached)
    os._exit(code if code >= 0 else 128 - code)


def _is_about(limit_s: int, cpu_s: float) -> bool:
    """Whether so much CPU time can have reached the limit: the kernel counts whole ticks against it, which on a busy
    machine differ from the time."""
    return cpu_s >= limit_s - max(1.0, 0.05 * limit_s)


def _cpu_limit_s(pid: int) -> int | None:
    try:
        limit = resource.prlimit(pid, resource.RLIMIT_CPU)[1]
    except (OSError, ValueError):
        return None
    return None if limit == resource.RLIM_INFINITY else limit


def _write_exit(
    start: Start,
    *,
    code: int,
    peak_mib: float | None = None,
    cpu_s: float | None = None,
    why: str | None = None,
    cpu_limit_reached: bool = False,
) -> None:
    exit_record = Exit(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        at=start.began.wall_now(),
        peak_mib=peak_mib,
        asked_to_stop=start.attempt.asked_to_stop.exists(),
        could_not_start=why,
        cpu_s=cpu_s,
        cpu_limit_reached=cpu_limit_reached,
    )
    while True:
        try:
            _put_back(start.attempt)
            run_folder.fill(start.attempt.exit, asdict(exit_record))
            return
        except OSError as error:
            # Only the gate knows the exit: retry until the disk accepts writes.
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return  # the run's folder is gone
            time.sleep(1.0)


def _put_back(attempt: AttemptFolder) -> None:
    """Makes the attempt's folder again if the worker removed it: its exit must not be lost. Not the run's folder."""
    put_right(RunFolder(attempt.path.parent.parent))
    if attempt.path.is_dir():
        return
    for folder in (attempt.path.parent, attempt.path):
        if not folder.is_dir():
            if os.path.lexists(folder):
                folder.rename(folder.with_name(f"{folder.name}.not-a-folder-{time.time_ns()}"))
            folder.mkdir(0o700)
    attempt.mark_begun()


def fork_patiently(keep_waiting: Callable[[str], bool]) -> int:
    """os.fork, retried every second while the machine has no process or memory to spare. `keep_waiting` gets the reason
    and returns whether to try again."""
    while True:
        try:
            return os.fork()
        except OSError as error:
            is_temporary = error.errno in (errno.EAGAIN, errno.ENOMEM)
            if not is_temporary or not keep_waiting(f"cannot create a process yet: {error.strerror}"):
                raise
        time.sleep(1.0)


def _open_log(path: Path) -> int:
    """Opens the log to append."""
    out = open_own(path, os.O_WRONLY | os.O_APPEND)
    os.set_blocking(out, True)  # some programs check how their output was opened
    return out


def _exec_worker(start: Start, worker_lock: int) -> None:
    try:
        for number in (*SURVIVED, *_PYTHON_IGNORES):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.set_inheritable(worker_lock, True)
        if start.mark is not None:
            set_mark(start.mark)
        _prefer_for_oom_killer()
        if start.memory_limit_mib is not None:
            _limit_memory(start.memory_limit_mib)
        os.umask(start.umask)
        os.chdir(start.cwd)
        os.execvpe(start.command[0], start.command, start.environment)
    except OSError as error:
        os.write(
            2,
            f"kgops: cannot start {start.command[0]!r} in {start.cwd}: {os.strerror(error.errno or 0)}\n".encode(),
        )
    finally:
        os._exit(COULD_NOT_START)


def _limit_memory(mib: int) -> None:
    """Limits writable memory (RLIMIT_DATA). An address-space limit would count what libraries only reserve."""
    hard_limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    requested = mib << 20
    limit = requested if hard_limit == resource.RLIM_INFINITY else min(requested, hard_limit)
    # Only the soft limit: a worker that ran out raises it to report the error.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))


def _prefer_for_oom_killer() -> None:
    """When host memory runs out the kernel should take the worker, not the supervisor that records it."""
    try:
        Path("/proc/self/oom_score_adj").write_text("500")
    except OSError:
        pass  # a hardened kernel; the worker is the larger process anyway
