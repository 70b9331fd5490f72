"""Detects out-of-memory and full-disk errors in a worker's log."""

from __future__ import annotations

import re

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


def sign_of_out_of_memory(log: bytes) -> str | None:
    """The line of the out-of-memory error, shortened; None if there is none."""
    match = _OOM.search(log)
    if match is None:
        return None
    start = log.rfind(b"\n", 0, match.start()) + 1
    end = log.find(b"\n", match.end())
    line = log[start : end if end >= 0 else len(log)][:300]
    return line.decode("utf-8", "replace").strip()


def says_killed(log: bytes) -> bool:
    """Whether a shell, Python or torch reports a child killed by SIGKILL."""
    return _KILLED.search(log) is not None


def says_disk_full(log: bytes) -> bool:
    return _DISK.search(log) is not None
