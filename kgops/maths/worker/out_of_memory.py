"""Recognises out-of-memory errors of torch, Python and libraries."""

from __future__ import annotations

import errno
import re
import resource
from pathlib import Path

from kgops.jobs.text import out_of_memory_reason

_SIGNS = (
    "out of memory",
    "DefaultCPUAllocator: ",
    "could not create a primitive",  # oneDNN, for the scratch space of a product
    "could not create a memory object",
    "ALLOC_FAILED",
    "std::bad_alloc",
    "Cannot allocate memory",  # mapping a library or forking a process failed
    "failed to map segment",
)
_ONLY_UNDER_A_LIMIT = ("can't start new thread",)  # no memory for its stack; else too many threads
_HOST = "host memory ran out"
_REQUESTED = re.compile(r"tried to allocate (\d+) bytes")
_MIB = 1 << 20
_MARGIN = 32 * _MIB  # loading libraries allocate about this much at a time
_untouched = 0  # bytes of this process that its limit does not count


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one in its chain of causes, is out of memory."""
    return _lack(error) is not None


def limit_memory(mib: int) -> None:
    """Sets a limit beyond which allocations fail; MemoryError where this process already uses more.

    What libraries map and never touch is not counted: with a CUDA build of torch that is 220 MiB.
    """
    global _untouched
    _untouched = max(0, (_status("VmData") or 0) - (_status("VmRSS") or 0))
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = mib * _MIB + _untouched
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    # Only the soft limit: a process out of memory lifts it in order to report.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    if (_status("VmData") or 0) > limit:
        raise MemoryError


def is_at_its_limit() -> bool:
    """Whether this process is close to its memory limit. An extension module whose allocation failed during import
    may raise other errors: SystemError, RuntimeError or its own."""
    limit, used = _limit(), _in_use()
    return limit is not None and used is not None and limit - used < _MARGIN


def describe(error: BaseException) -> str:
    """Message with the requested memory and the memory in use: torch's message for a GPU, MiB for the host."""
    limit = make_room()
    text = str(_lack(error) or error).strip().split("\n")[0]
    if (
        "CUDA" in text or "HIP" in text or text.startswith(_HOST)
    ):  # the last from another process that ran out for this one
        return out_of_memory_reason(text)
    requested = _REQUESTED.search(text)
    details = [f"{int(requested[1]) / _MIB:,.0f} MiB more were requested"] if requested else []
    used = _in_use()
    if used is not None:
        details.append(f"{used / _MIB:,.0f} MiB were in use")
    if limit is not None:
        details.append(f"the limit is {limit / _MIB:,.0f} MiB")
    return f"{_HOST}: {', '.join(details) or type(error).__name__}"


def make_room() -> int | None:
    """Raises the soft limit as far as the system allows and returns the old one: reporting the error needs
    some memory."""
    limit = _limit()
    for which in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        most = resource.getrlimit(which)[1]
        resource.setrlimit(which, (most, most))
    return limit


def _lack(error: BaseException) -> BaseException | None:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if _says_so(one):
            return one
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return None


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error)
    if any(sign in text for sign in _SIGNS):
        return isinstance(error, (RuntimeError, ImportError, OSError))
    return _limit() is not None and any(sign in text for sign in _ONLY_UNDER_A_LIMIT)


def _limit() -> int | None:
    limits = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    smallest = min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)
    return None if smallest is None else smallest - _untouched


def host_memory_mib() -> float | None:
    """Resident bytes of this process."""
    held = _status("VmRSS")
    return None if held is None else held / _MIB


def host_peak_mib() -> float | None:
    """Peak resident bytes of this process, without children."""
    held = _status("VmHWM")
    return None if held is None else held / _MIB


def _in_use() -> int | None:
    """Bytes that count against the limit."""
    data = _status("VmData")
    return None if data is None else data - _untouched


def _status(name: str) -> int | None:
    """A line of /proc/self/status in bytes; None where it is missing."""
    try:
        match = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) << 10 if match else None
