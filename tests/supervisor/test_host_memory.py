"""Host memory: who holds it; and where it is out, for real, the kernel kills the worker and the next value is tried."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Console

GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A memory cgroup of 60 MB, of either version; skipped where this user may not make one."""
    one, two = GROUPS / "memory" / f"kgops-test-{os.getpid()}", GROUPS / f"kgops-test-{os.getpid()}"
    group, limit = (one, "memory.limit_in_bytes") if one.parent.is_dir() else (two, "memory.max")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a memory cgroup here: {error}")
    try:
        (group / limit).write_text("60000000")
    except OSError as error:
        group.rmdir()
        pytest.skip(f"cannot limit a memory cgroup here: {error}")
    yield group
    group.rmdir()


def test_a_kernel_oom_kill_is_told_from_other_kills_and_the_fallbacks_steps_down(
    run_cli: Console, small_group: Path
) -> None:
    script = f"echo $$ > {small_group}/cgroup.procs; exec {sys.executable} -c 'x = bytearray({{mib}} << 20)'"
    told = run_cli("run", "exec", "--json", "--on-oom", "mib=400,10", "--", "sh", "-c", script)
    run = told.json()
    assert run["state"] == "succeeded"
    assert [attempt["outcome"] for attempt in run["attempt"]] == ["out_of_memory", "succeeded"]
    assert "the kernel killed the worker" in run["attempt"][0]["reason"]
