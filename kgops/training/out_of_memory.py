"""Out of memory, recognised in whatever torch, Python or a library raises when there is none left."""

from __future__ import annotations

import errno
import re
import resource
from pathlib import Path

__all__ = [
    "describe",
    "host_memory_mib",
    "host_peak_mib",
    "is_at_its_limit",
    "is_out_of_memory",
    "limit_memory",
    "make_room",
]

_SIGNS = (
    "out of memory",
    "DefaultCPUAllocator: ",
    "could not create a primitive",  # oneDNN, for the scratch space of a product
    "could not create a memory object",
    "ALLOC_FAILED",
    "std::bad_alloc",
    "Cannot allocate memory",  # a library that cannot be mapped, a process that cannot be forked
    "failed to map segment",
)
_ONLY_UNDER_A_LIMIT = ("can't start new thread",)  # whose stack has no room; else too many threads
_HOST = "host memory ran out"
_REQUESTED = re.compile(r"tried to allocate (\d+) bytes")
_MIB = 1 << 20
_NEXT_TO_NOTHING = 32 * _MIB  # a library that loads asks for its memory in pieces of this order


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one that it came from, is a lack of memory."""
    return _lack(error) is not None


def limit_memory(mib: int) -> None:
    """From here on allocations beyond it fail; MemoryError where this process has already taken more."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = mib * _MIB
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    # Only the soft one: who ran out lifts it, or could not even say so.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    if (_in_use() or 0) > limit:
        raise MemoryError


def is_at_its_limit() -> bool:
    """Whether next to nothing is left of what this process may take. An extension module whose allocation
    failed while it loads often says something else: SystemError, a RuntimeError of its own, anything."""
    limit, used = _limit(), _in_use()
    return limit is not None and used is not None and limit - used < _NEXT_TO_NOTHING


def describe(error: BaseException) -> str:
    """What was asked for, and what there was: for a GPU in its driver's words, for the host in metrics."""
    limit = make_room()
    text = str(_lack(error) or error).strip().split("\n")[0]
    if (
        "CUDA" in text or "HIP" in text or text.startswith(_HOST)
    ):  # the last by a process that ran out for this one
        return text[:300]
    requested = _REQUESTED.search(text)
    details = [f"{int(requested[1]) / _MIB:,.0f} MiB more were asked for"] if requested else []
    used = _in_use()
    if used is not None:
        details.append(f"{used / _MIB:,.0f} MiB were in use")
    if limit is not None:
        details.append(f"the limit is {limit / _MIB:,.0f} MiB")
    return f"{_HOST}: {', '.join(details) or type(error).__name__}"


def make_room() -> int | None:
    """Lifts the limit that was run into as far as the system lets, and returns it: what failed has failed,
    and to say so takes a little memory."""
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
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def host_memory_mib() -> float | None:
    """That this process holds now."""
    held = _status("VmRSS")
    return None if held is None else held / _MIB


def host_peak_mib() -> float | None:
    """The most that this process has held since its program began, children not counted."""
    held = _status("VmHWM")
    return None if held is None else held / _MIB


def _in_use() -> int | None:
    """Of what counts against a limit of data."""
    return _status("VmData")


def _status(name: str) -> int | None:
    """In bytes; None where the system does not say."""
    try:
        match = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) << 10 if match else None
