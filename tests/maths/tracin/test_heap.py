"""Freed memory between pieces that are still in use goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from kgops.maths.tracin.scan import trim_heap

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20

pieces = [bytes(60_000) for _ in range(4000)]
pins = [bytes(600) for _ in range(40_000)]
kept = pieces[::8] + pins
del pieces
before = resident_mib()
trim_heap()
print(before - resident_mib())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="requires glibc's heap")
def test_what_lies_free_between_pieces_in_use_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100
