"""A run's share of a GPU: by its processes where the driver names them, else by what the GPU gained."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from driving import wait_for

from kgops.gpus.processes import HeldMemory, MemorySource, TreeMemory, is_mps_server, tree_memory_mib
from kgops.gpus.readings import GpuReading, NvmlProblem, ProcessReading, Snapshot, silent_gpu

PIDS = {10, 11}
BORN = 1000.0
NONE = NvmlProblem("other", "", "")
BY_CHANGE: MemorySource = "memory change"


def gpu(uuid: str, used_mib: int | None, *processes: tuple[int, int | None]) -> GpuReading:
    listed = tuple(ProcessReading(pid, mib) for pid, mib in processes)
    return replace(silent_gpu(0, uuid, NONE), problem=None, memory_used_mib=used_mib, processes=listed)


def at(seconds: float, *gpus: GpuReading) -> Snapshot:
    return Snapshot(1, BORN + seconds, 0.0, gpus, None, None, None)


BEFORE = at(0.1, gpu("GPU-a", 300, (99, 200)))


def test_named_processes_are_believed_whatever_the_gpu_gained() -> None:
    tree = TreeMemory(("GPU-a",), BORN)
    tree.of(BEFORE, PIDS, host_pids=True)
    now = at(5, gpu("GPU-a", 9000, (10, 100), (11, 50), (99, 200)), gpu("GPU-b", 7))
    assert tree.of(now, PIDS, host_pids=True) == HeldMemory(150, "processes")


def test_in_a_container_a_tree_holds_what_its_own_gpu_gained_since_before_it() -> None:
    tree = TreeMemory(("GPU-a",), BORN)
    assert tree.of(BEFORE, PIDS, host_pids=False) == HeldMemory(0, BY_CHANGE)
    now = at(5, gpu("GPU-a", 5300, (99, 200), (4711, 5000)), gpu("GPU-b", 7777))
    assert tree.of(now, PIDS, host_pids=False) == HeldMemory(5000, BY_CHANGE)


UNKNOWN = HeldMemory(None, None)


@pytest.mark.parametrize(
    ("own_gpu", "born_at", "before", "now"),
    [
        (None, BORN, BEFORE, at(5, gpu("GPU-a", 5300))),
        ("GPU-a", None, BEFORE, at(5, gpu("GPU-a", 5300, (99, 200)))),
        ("GPU-a", BORN, at(3, gpu("GPU-a", 900)), at(5, gpu("GPU-a", 5300))),
        ("GPU-a", BORN, BEFORE, at(5, gpu("GPU-a", 5300))),
        ("GPU-a", BORN, BEFORE, at(5, gpu("GPU-a", None, (99, 200)))),
        ("GPU-a", BORN, BEFORE, at(5, gpu("GPU-b", 5300))),
    ],
    ids=["shared GPU", "adopted", "seen too late", "somebody left", "unreadable", "another GPU"],
)
def test_a_change_that_may_be_somebody_elses_is_unknown_not_guessed(
    own_gpu: str | None, born_at: float | None, before: Snapshot, now: Snapshot
) -> None:
    tree = TreeMemory((own_gpu,) if own_gpu else (), born_at)
    tree.of(before, PIDS, host_pids=False)
    assert tree.of(now, PIDS, host_pids=False) == UNKNOWN


def test_a_tree_that_is_not_listed_beside_an_mps_server_is_unknown(tmp_path: Path) -> None:
    """Before Volta the driver lists the server alone, with the memory of its clients."""
    program = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "600"]) as server:
        wait_for(lambda: is_mps_server(server.pid), "the server's name")
        beside = gpu("GPU-a", 9000, (server.pid, 4000))
        assert tree_memory_mib([beside], PIDS, host_pids=True) == {"GPU-a": None}
        server.kill()
    assert tree_memory_mib([beside], PIDS, host_pids=True) == {"GPU-a": 0}
