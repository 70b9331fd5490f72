"""Processes: who they are, who descends from them, and signals that cannot hit a stranger."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TAG = "KGOPS_TAG"  # in the environment of every process of an attempt
SUPERVISOR = "KGOPS_SUPERVISOR"  # in the environment of supervisors: nobody's descendants
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
    """A PID alone is none: Linux gives it again. The start time and the boot pin it down."""

    pid: int
    started: int  # clock ticks since boot
    boot: str

    def is_alive(self) -> bool:
        return self.boot == boot_id() and _alive_since(self.pid) == self.started

    def as_table(self) -> dict[str, int | str]:
        return {"pid": self.pid, "started": self.started, "boot": self.boot}


def identify(pid: int) -> Identity | None:
    started = _alive_since(pid)
    return None if started is None else Identity(pid, started, boot_id())


def identity_from(table: object) -> Identity | None:
    if not isinstance(table, dict):
        return None
    pid, started, boot = table.get("pid"), table.get("started"), table.get("boot")
    if isinstance(pid, int) and isinstance(started, int) and isinstance(boot, str):
        return Identity(pid, started, boot)
    return None


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the state on; the command name may hold anything, brackets too."""
    try:
        raw = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return raw[raw.rindex(b")") + 2 :].split()


def _alive_since(pid: int) -> int | None:
    found = _stat(pid)
    return None if found is None or found[0] in (b"Z", b"X") else int(found[19])


def born_at(pid: int) -> float | None:
    """When the process began, by the clock of `time.time()`; to a hundredth of a second."""
    started = _alive_since(pid)
    if started is None:
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def parent(pid: int) -> int | None:
    found = _stat(pid)
    return None if found is None else int(found[1])


def tag_of(pid: int) -> str | None:
    """The attempt that the process says it belongs to; None also where it is somebody else's to ask."""
    mark = f"{TAG}=".encode()
    told = next((one for one in _environment(pid) if one.startswith(mark)), None)
    return None if told is None else told.removeprefix(mark).decode("utf-8", "surrogateescape")


def send(who: Identity, number: int) -> bool:
    """Signals exactly this process or nobody: the descriptor pins it while its start time is checked."""
    if who.boot != boot_id():
        return False
    try:
        fd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    try:
        if _alive_since(who.pid) != who.started:
            return False
        signal.pidfd_send_signal(fd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def descendants(roots: Iterable[int]) -> list[int]:
    """The processes below `roots`, the roots included."""
    seen: list[int] = []
    todo = list(roots)
    known = set(todo)
    while todo:
        pid = todo.pop()
        seen.append(pid)
        for child in children(pid):
            if child not in known:
                known.add(child)
                todo.append(child)
    return seen


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names only; this runs every tick
    except (FileNotFoundError, ProcessLookupError):
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def is_supervisor(pid: int) -> bool:
    """A `kgops run` inside a run starts a supervisor of its own run: nobody else's to count or kill."""
    return any(variable.startswith(SUPERVISOR.encode() + b"=") for variable in _environment(pid))


def supervisors(home: Path, number: int) -> list[Identity]:
    """Processes that were started as the supervisor of run `number` of this home, and their gates, which are copies of
    them. Reads all of /proc: for where the lock cannot tell."""
    found = []
    for entry in os.listdir(_PROC):  # noqa: PTH208
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        variables = _environment(int(entry))
        if f"{SUPERVISOR}={number}".encode() in variables and _is_home(variables, home):
            who = identify(int(entry))
            found += [who] if who else []
    return found


def _is_home(variables: list[bytes], home: Path) -> bool:
    path = next((one.partition(b"=")[2] for one in variables if one.startswith(b"KGOPS_HOME=")), b"")
    try:
        return home.samefile(os.fsdecode(path))
    except OSError:
        return False


def is_stopped(pid: int) -> bool:
    """By SIGSTOP, or by a debugger."""
    found = _stat(pid)
    return found is not None and found[0] in (b"T", b"t")


def orphans(tag: str) -> list[int]:
    """Children of this supervisor, the subreaper of all that its worker started: also those that have closed
    every file and cleared their environment. Without those of a run that was started inside the run."""
    if not is_supervisor(os.getpid()):
        return []
    found = []
    for pid in children(os.getpid()):
        variables = _environment(pid)
        if not variables:  # cleared, or just between two programs
            time.sleep(0.01)
            variables = _environment(pid)
        tags = [variable for variable in variables if variable.startswith(f"{TAG}=".encode())]
        if not any(variable.startswith(f"{SUPERVISOR}=".encode()) for variable in variables) and tags in (
            [],
            [f"{TAG}={tag}".encode()],
        ):
            found.append(pid)
    return found


def tagged(tag: str) -> list[Identity]:
    """Every process that carries the attempt's tag, wherever it has gone: found by reading all of /proc."""
    wanted = f"{TAG}={tag}".encode()
    found = []
    for entry in os.listdir(_PROC):  # noqa: PTH208
        if entry.isdigit() and int(entry) != os.getpid() and wanted in _environment(int(entry)):
            who = identify(int(entry))
            if who is not None:
                found.append(who)
    return found


def new_mark() -> int | None:
    """A number for an attempt's processes that they cannot take off: see `set_mark`. None where none is left."""
    try:
        _, most = resource.getrlimit(_MARK)
    except (OSError, ValueError):  # no kernel of Linux's own
        return None
    most = _LARGEST_MARK if most == resource.RLIM_INFINITY else min(most, _LARGEST_MARK)
    # In the upper half of what is left: a run that is started inside this one needs a lower one.
    return most // 2 + int.from_bytes(os.urandom(8)) % (most // 2) if most > 1 << 20 else None


def set_mark(mark: int) -> None:
    """Marks this process and all that come from it. The limit of file locks has bounded nothing since Linux 2.4.25, is
    inherited through everything, and can be lowered by anybody and raised by root alone."""
    try:
        resource.setrlimit(_MARK, (mark, mark))
    except (OSError, ValueError):
        pass  # the lock, the environment and the parents tell of nearly everybody


def marked(mark: int) -> list[Identity]:
    """Every process with this mark, but for supervisors of runs that were started inside this one. Asks for all."""
    found = []
    for entry in os.listdir(_PROC):  # noqa: PTH208
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            is_ours = resource.prlimit(int(entry), _MARK)[1] == mark
        except (OSError, ValueError):  # gone, or somebody else's
            continue
        if is_ours and not is_supervisor(int(entry)):
            who = identify(int(entry))
            found += [who] if who else []
    return found


def holders(lock: Path) -> list[Identity]:
    """Processes that hold this flock: the kernel says so beside each open file. Reads all of /proc."""
    found = []
    try:
        wanted = lock.lstat()
    except OSError:
        return []
    for entry in os.listdir(_PROC):  # noqa: PTH208
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            for fd in os.listdir(f"/proc/{entry}/fd"):  # noqa: PTH208
                # By what it is, not by its name: a home may be reached through a symbolic link.
                if (
                    os.path.samestat(Path(f"/proc/{entry}/fd/{fd}").stat(), wanted)
                    and b"FLOCK  ADVISORY  WRITE" in Path(f"/proc/{entry}/fdinfo/{fd}").read_bytes()
                ):
                    who = identify(int(entry))
                    found += [who] if who else []
                    break
        except OSError:  # gone, or somebody else's
            continue
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []


def host_memory_mib(pids: Iterable[int]) -> float | None:
    """Resident memory of these processes together, shared pages counted in each; None if all are gone."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = None
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
                resident = int(file.read().split()[1]) * page
        except (FileNotFoundError, ProcessLookupError):
            continue
        total = (total or 0) + resident
    return None if total is None else total / (1 << 20)


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time these processes and their ended children have used."""
    ticks = 0
    for pid in pids:
        found = _stat(pid)
        if found is not None:
            ticks += sum(int(found[i]) for i in (11, 12, 13, 14))
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
    """The control groups it is in, as the kernel writes them; None once it has gone."""
    try:
        return (_PROC / str(pid) / "cgroup").read_bytes()
    except OSError:
        return None


def oom_kill_counter(pid: int) -> Path | None:
    """Where the kernel counts whom it killed for memory in the control group of `pid`; None where no group counts."""
    return next((place for place in _counters(pid) if oom_kills(place) is not None), None)


def _counters(pid: int) -> list[Path]:
    """Of either version of control groups, the nearest first."""
    found = []
    for line in (groups_of(pid) or b"").decode("utf-8", "surrogateescape").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            found.append(_GROUPS / group.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(_GROUPS / "memory" / group.lstrip("/") / "memory.oom_control")
    # In a container the path is the host's, and the root that is seen there is the group.
    return [*found, _GROUPS / "memory.events", _GROUPS / "memory" / "memory.oom_control"]
