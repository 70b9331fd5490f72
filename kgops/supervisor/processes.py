"""Identifies processes, lists their descendants, and sends signals safely despite reused PIDs."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TAG = "KGOPS_TAG"  # in the environment of every process of an attempt
SUPERVISOR = "KGOPS_SUPERVISOR"  # in the environment of supervisors, which count as no run's descendants
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
_MARK = 10  # RLIMIT_LOCKS
_LARGEST_MARK = 1 << 62
MACHINE_OOM_KILLS = _PROC / "vmstat"


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, identified by PID, start time and boot: Linux reuses PIDs."""

    pid: int
    started: int  # clock ticks since boot
    boot: str

    def is_alive(self) -> bool:
        return self.boot == boot_id() and _start_ticks(self.pid) == self.started

    def as_table(self) -> dict[str, int | str]:
        return {"pid": self.pid, "started": self.started, "boot": self.boot}


def identify(pid: int) -> Identity | None:
    started = _start_ticks(pid)
    return None if started is None else Identity(pid, started, boot_id())


def identity_from(table: object) -> Identity | None:
    if not isinstance(table, dict):
        return None
    pid, started, boot = table.get("pid"), table.get("started"), table.get("boot")
    if isinstance(pid, int) and isinstance(started, int) and isinstance(boot, str):
        return Identity(pid, started, boot)
    return None


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the state on; the command name may contain brackets."""
    try:
        raw = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return raw[raw.rindex(b")") + 2 :].split()


def _start_ticks(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[19])


def born_at(pid: int) -> float | None:
    """Start time of the process, as `time.time()`, to a hundredth of a second."""
    started = _start_ticks(pid)
    if started is None:
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def parent(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def tag_of(pid: int) -> str | None:
    """The attempt's tag in the process's environment; None also if the environment cannot be read."""
    prefix = f"{TAG}=".encode()
    variable = next((text for text in _environment(pid) if text.startswith(prefix)), None)
    return None if variable is None else variable.removeprefix(prefix).decode("utf-8", "surrogateescape")


def send(who: Identity, number: int) -> bool:
    """Signals exactly this process or none: the pidfd pins it while its start time is checked."""
    if who.boot != boot_id():
        return False
    try:
        fd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    try:
        if _start_ticks(who.pid) != who.started:
            return False
        signal.pidfd_send_signal(fd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def descendants(roots: Iterable[int]) -> list[int]:
    """The processes below `roots`, the roots included."""
    pids: list[int] = []
    queue = list(roots)
    listed = set(queue)
    while queue:
        pid = queue.pop()
        pids.append(pid)
        for child in children(pid):
            if child not in listed:
                listed.add(child)
                queue.append(child)
    return pids


def children(pid: int) -> list[int]:
    pids: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names only; this runs every tick
    except (FileNotFoundError, ProcessLookupError):
        return pids
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123  quicker for many processes
                pids += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pids


def is_supervisor(pid: int) -> bool:
    """Whether it is a supervisor: a `kgops run` inside a run starts one, which the outer run must not count or kill."""
    return any(variable.startswith(SUPERVISOR.encode() + b"=") for variable in _environment(pid))


def supervisors(home: Path, number: int) -> list[Identity]:
    """Supervisors of run `number` of this home, and their gates, which are forks of them. Reads all of /proc: for cases
    where the lock cannot tell."""
    wanted = f"{SUPERVISOR}={number}".encode()

    def is_one(pid: int) -> bool:
        variables = _environment(pid)
        return wanted in variables and _is_home(variables, home)

    return _others(is_one)


def _others(is_one: Callable[[int], bool]) -> list[Identity]:
    """All processes but this one of which it is true. Reads all of /proc."""
    processes = []
    for entry in os.listdir(_PROC):  # noqa: PTH208  quicker for many processes
        try:
            if entry.isdigit() and int(entry) != os.getpid() and is_one(int(entry)):
                process = identify(int(entry))
                processes += [process] if process else []
        except (OSError, ValueError):  # gone, or another user's
            continue
    return processes


def _is_home(variables: list[bytes], home: Path) -> bool:
    path = next(
        (variable.partition(b"=")[2] for variable in variables if variable.startswith(b"KGOPS_HOME=")), b""
    )
    try:
        return home.samefile(os.fsdecode(path))
    except OSError:
        return False


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP or a debugger stopped the process."""
    fields = _stat(pid)
    return fields is not None and fields[0] in (b"T", b"t")


def orphans(tag: str) -> list[int]:
    """Children of this supervisor, which as subreaper inherits the worker's orphans, also those that closed every
    file and cleared their environment. Without children of a run started inside the run."""
    if not is_supervisor(os.getpid()):
        return []
    pids = []
    for pid in children(os.getpid()):
        variables = _environment(pid)
        if not variables:  # cleared, or during an exec
            time.sleep(0.01)
            variables = _environment(pid)
        tags = [variable for variable in variables if variable.startswith(f"{TAG}=".encode())]
        if not any(variable.startswith(f"{SUPERVISOR}=".encode()) for variable in variables) and tags in (
            [],
            [f"{TAG}={tag}".encode()],
        ):
            pids.append(pid)
    return pids


def tagged(tag: str) -> list[Identity]:
    """Every process with the attempt's tag. Reads all of /proc."""
    wanted = f"{TAG}={tag}".encode()
    return _others(lambda pid: wanted in _environment(pid))


def new_mark() -> int | None:
    """A number that marks an attempt's processes (see `set_mark`); None if none is available."""
    try:
        _, limit = resource.getrlimit(_MARK)
    except (OSError, ValueError):  # not a Linux kernel
        return None
    limit = _LARGEST_MARK if limit == resource.RLIM_INFINITY else min(limit, _LARGEST_MARK)
    # In the upper half: a run started inside this one needs a lower number.
    return limit // 2 + int.from_bytes(os.urandom(8)) % (limit // 2) if limit > 1 << 20 else None


def set_mark(mark: int) -> None:
    """Marks this process and its descendants by RLIMIT_LOCKS: unused since Linux 2.4.25, always inherited, lowered by
    anybody and raised by root alone."""
    try:
        resource.setrlimit(_MARK, (mark, mark))
    except (OSError, ValueError):
        pass  # lock, environment and parents identify nearly all processes


def marked(mark: int) -> list[Identity]:
    """Every process with this mark, except supervisors of runs started inside this one. Checks all processes."""
    return _others(lambda pid: resource.prlimit(pid, _MARK)[1] == mark and not is_supervisor(pid))


def holders(lock: Path) -> list[Identity]:
    """Processes that hold this flock, by /proc/PID/fdinfo. Reads all of /proc."""
    try:
        lock_stat = lock.lstat()
    except OSError:
        return []

    def is_one(pid: int) -> bool:
        return any(
            # By inode, not by path: a home may be reached through a symbolic link.
            os.path.samestat(Path(f"/proc/{pid}/fd/{fd}").stat(), lock_stat)
            and b"FLOCK  ADVISORY  WRITE" in Path(f"/proc/{pid}/fdinfo/{fd}").read_bytes()
            for fd in os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208  quicker for many processes
        )

    return _others(is_one)


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return []


def host_memory_mib(pids: Iterable[int]) -> float | None:
    """Resident memory of these processes together, shared pages counted in each; None if all have ended."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = None
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123  quicker for many processes
                resident = int(file.read().split()[1]) * page
        except (FileNotFoundError, ProcessLookupError):
            continue
        if resident:  # one that has ended has none, and its parent has not asked for its end yet
            total = (total or 0) + resident
    return None if total is None else total / (1 << 20)


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of these processes and their ended children."""
    ticks = 0
    for pid in pids:
        fields = _stat(pid)
        if fields is not None:
            ticks += sum(int(fields[i]) for i in (11, 12, 13, 14))
    return ticks / os.sysconf("SC_CLK_TCK")


def oom_kills(counter: Path | None) -> int | None:
    if counter is None:
        return None
    try:
        text = counter.read_bytes()
    except OSError:
        return None
    at = text.find(b"oom_kill ")
    return int(text[at + 9 :].split(b"\n", 1)[0]) if at >= 0 else None


def groups_of(pid: int) -> bytes | None:
    """Its control groups, from /proc/PID/cgroup; None if it is gone."""
    try:
        return (_PROC / str(pid) / "cgroup").read_bytes()
    except OSError:
        return None


def oom_kill_counter(pid: int) -> Path | None:
    """File with the OOM kill count of the control group of `pid`; None if no group counts."""
    return next((file for file in _counters(pid) if oom_kills(file) is not None), None)


def _counters(pid: int) -> list[Path]:
    """Candidate counter files for cgroup v1 and v2, nearest group first."""
    files = []
    for line in (groups_of(pid) or b"").decode("utf-8", "surrogateescape").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            files.append(_GROUPS / group.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            files.append(_GROUPS / "memory" / group.lstrip("/") / "memory.oom_control")
    # In a container the path is the host's, and the visible root is the group.
    return [*files, _GROUPS / "memory.events", _GROUPS / "memory" / "memory.oom_control"]
