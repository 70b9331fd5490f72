"""The outcome of an attempt: succeeded, failed, out of memory, cancelled or lost."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Literal

from kgops.jobs.text import out_of_memory_reason

_OOM = re.compile(
    rb"CUDA out of memory"
    rb"|(?:torch\.(?:cuda\.)?)?OutOfMemoryError"
    rb"|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    rb"|CUDNN_STATUS_ALLOC_FAILED"
    rb"|CUDNN_STATUS_NOT_SUPPORTED[^\n]{0,120}memory"
    rb"|CUBLAS_STATUS_ALLOC_FAILED"
    rb"|DefaultCPUAllocator: (?:can't allocate|not enough) memory"
    rb"|HIP out of memory"
    rb"|^Out of memory: host memory ran out"
    rb"|std::bad_alloc"
    rb"|OpenBLAS error: Memory allocation still failed"
    rb"|[Cc]annot allocate memory"
    rb"|^(?:numpy\.(?:core\._exceptions\.)?_?(?:Array)?)?MemoryError\b",
    re.MULTILINE,
)
_KILLED = re.compile(
    rb"\bSIGKILL\b|killed by signal: Killed|^(?:.*: line \d+: +\d+ )?Killed\b|exit ?code:? -9\b|exit ?code:? 137\b"
    rb"|\bsignal 9\b",
    re.MULTILINE | re.IGNORECASE,
)
_DISK = re.compile(rb"No space left on device|ENOSPC")
_FILE_TOO_LARGE = re.compile(rb"File too large|File size limit exceeded|EFBIG")
_LIMITS: dict[int, str] = {
    signal.SIGXCPU: "stopped by its CPU time limit (ulimit -t)",
    signal.SIGXFSZ: "wrote a file larger than its limit (ulimit -f)",
}


def sign_of_out_of_memory(log: bytes) -> str | None:
    """What the line of the out-of-memory error says; None if there is none."""
    match = _OOM.search(log)
    if match is None:
        return None
    start = log.rfind(b"\n", 0, match.start()) + 1
    end = log.find(b"\n", match.end())
    line = log[start : end if end >= 0 else len(log)]
    return out_of_memory_reason(line.decode("utf-8", "replace"))


def says_killed(log: bytes) -> bool:
    """Whether a shell, Python or torch reports a child killed by SIGKILL."""
    return _KILLED.search(log) is not None


def says_disk_full(log: bytes) -> bool:
    return _DISK.search(log) is not None


def says_file_too_large(log: bytes) -> bool:
    return _FILE_TOO_LARGE.search(log) is not None


# Crashes repeat; other signals come from outside.
_CRASHES = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)

Next = Literal["end", "again", "step_down"]


@dataclass(frozen=True, slots=True)
class Facts:
    has_result: bool = False  # a valid manifest
    result_trouble: str | None = None  # why the manifest is invalid
    exit_code: int | None = None
    exit_signal: int | None = None
    stop_requested: bool = False
    stop_sent: bool = False  # before the worker's exit
    out_of_memory: str | None = None  # the message that says so
    last_resort: str | None = None  # what to try when no fallback is left
    failure: str | None = None  # as the worker reported it
    disk_full: bool = False
    file_too_large: bool = False
    cpu_limit_reached: bool = False  # and the kernel killed the worker
    rebooted: bool = False
    fallbacks_left: int = 0
    attempts_left: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`outcome` of the attempt, and the next step of the run."""

    outcome: str
    reason: str | None
    next: Next


def decide(facts: Facts) -> Verdict:
    if facts.has_result:
        return Verdict("succeeded", None, "end")
    if facts.stop_requested and (facts.stop_sent or facts.exit_code is None):
        return Verdict("cancelled", "stopped on request", "end")
    if (limit := _limit(facts)) is not None:  # a retry would reach it, too
        return Verdict("failed", limit, "end")
    if facts.out_of_memory is not None:
        if facts.fallbacks_left:
            return Verdict("out_of_memory", facts.out_of_memory, "step_down")
        reason = "; ".join(filter(None, (facts.out_of_memory, facts.last_resort)))
        return Verdict("out_of_memory", reason, "end")
    if facts.exit_code is not None:
        return Verdict("failed", _failure(facts, facts.exit_code), "end")
    if facts.exit_signal in _CRASHES:
        return Verdict("failed", facts.failure or f"crashed: {_name(facts.exit_signal)}", "end")
    return Verdict("interrupted", _loss(facts), "again" if facts.attempts_left else "end")


def _limit(facts: Facts) -> str | None:
    """The limit of the worker's shell that ended it, if one did."""
    if facts.cpu_limit_reached:
        return _LIMITS[signal.SIGXCPU]
    as_in_shells = (facts.exit_code or 0) - 128
    return _LIMITS.get(facts.exit_signal or as_in_shells)


def _failure(facts: Facts, code: int) -> str:
    if facts.disk_full:
        return "no space left on the disk"
    if facts.file_too_large:
        return _LIMITS[signal.SIGXFSZ]
    if facts.failure:
        return facts.failure
    if facts.result_trouble:
        return facts.result_trouble
    if code == 0:
        return "the worker ended without a result"
    return f"exit code {code}"


def _loss(facts: Facts) -> str:
    if facts.rebooted:
        return "the machine was restarted"
    if facts.exit_signal == signal.SIGKILL:
        return "killed by SIGKILL, which kgops did not send (out of host memory?)"
    if facts.exit_signal is not None:
        return f"killed by {_name(facts.exit_signal)}, which kgops did not send"
    return "worker and supervisor both vanished"


def _name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
