"""Processes of GPUs and what they hold: named by the driver, or told by what a GPU gained; nvitop is the judge."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from driving import Console, wait_for
from nvml_standin import Machine, StandIn, h200

from kgops.gpus.processes import (
    HeldMemory,
    MemorySource,
    ProcessReader,
    TreeMemory,
    is_mps_server,
    tree_memory_mib,
)
from kgops.gpus.readings import GpuReading, NvmlProblem, ProcessReading, Snapshot

Found = dict[tuple[int, int], tuple[str | None, int | None, int | None, str | None]]


@pytest.fixture
def sixty() -> Iterator[list[subprocess.Popen[bytes]]]:
    children = [subprocess.Popen(["sleep", str(1000 + i)]) for i in range(60)]
    yield children
    for child in children:
        child.kill()
        child.wait()


def as_nvitop(count: int) -> Found:
    """User, MiB, SM % and command by GPU and PID."""
    from nvitop import NA, Device

    found: Found = {}
    for index in range(count):
        for pid, process in Device(index).processes().items():
            mib, sm = process.gpu_memory(), process.gpu_sm_utilization()
            found[index, pid] = (
                process.username(),
                None if mib is NA else int(mib) >> 20,
                None if sm is NA else int(sm),
                process.command(),
            )
    return found


@pytest.mark.skipif(importlib.util.find_spec("nvitop") is None, reason="nvitop is not installed")
def test_sixty_processes_of_eight_gpus_are_as_nvitop_reads_them(
    run_cli: Console, tmp_path: Path, sixty: list[subprocess.Popen[bytes]]
) -> None:
    standin = StandIn(tmp_path)
    gpus = []
    for i in range(8):
        pids = [child.pid for child in sixty[i::8]]
        held = tuple((pid, 100 + pid % 900) for pid in pids)
        busy = tuple((pid, pid % 100) for pid in pids[::2])  # the others were idle for a second
        gpus.append(replace(h200(f"GPU-{i}", 9000, held[1:]), drawing=held[:2], busy=busy))
    standin.show(Machine(tuple(gpus)))
    theirs = standin.ask(as_nvitop, 8)
    ours: Found = {
        (gpu["index"], one["pid"]): (one["user"], one["used_mib"], one["sm_percent"], one["command"])
        for gpu in run_cli("gpus", "--json", env=standin.environment()).json()["gpu"]
        for one in gpu["process"]
    }
    assert len(ours) == 60
    assert ours == theirs


def test_a_process_is_named_by_user_command_age_and_use_of_a_cpu() -> None:
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass", "--token=hush"])
    try:
        # A process that has begun to execute has no command for a moment.
        wait_for(Path(f"/proc/{spinning.pid}/cmdline").read_bytes, "the command")
        reader = ProcessReader()
        first = reader.read([spinning.pid])[spinning.pid]
        assert first.user == pwd.getpwuid(os.getuid()).pw_name
        assert first.is_own
        assert first.command is not None and first.command.endswith("while True: pass --token=***")
        assert abs(first.started_at - time.time()) < 60
        assert first.cpu_percent is None  # of one reading nothing is known
        while _ticks(spinning.pid) < 5:
            time.sleep(0.01)
        busy = reader.read([spinning.pid])[spinning.pid]
        assert busy.cpu_percent is not None and busy.cpu_percent > 0
        assert busy.start_ticks == first.start_ticks
    finally:
        spinning.kill()
        spinning.wait()
    assert reader.read([spinning.pid]) == {}


def _ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


PIDS = {10, 11}
BORN = 1000.0
NONE = NvmlProblem("other", "", "")
BY_CHANGE: MemorySource = "memory change"


def gpu(uuid: str, used_mib: int | None, *processes: tuple[int, int | None]) -> GpuReading:
    listed = tuple(ProcessReading(pid, mib) for pid, mib in processes)
    return GpuReading(0, uuid, memory_used_mib=used_mib, processes=listed)


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
