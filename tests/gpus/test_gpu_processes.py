"""Processes of GPUs as the kernel and the driver have them; nvitop, an older reader of both, is the judge."""

from __future__ import annotations

import importlib.util
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from driving import Console, wait_for
from nvml_standin import Machine, Slice, StandIn, a100, h200

from kgops.gpus.processes import ProcessReader

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


def test_slices_are_lines_below_their_gpu_with_their_processes(run_cli: Console, tmp_path: Path) -> None:
    standin = StandIn(tmp_path)
    slices = (
        Slice(0, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-a", 20096, 700, ((os.getpid(), 600),)),
        Slice(1, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-b", 20096, 0),
    )
    standin.show(Machine((replace(a100(), mig=True, slices=slices),)))
    lines = run_cli("gpus", env=standin.environment()).out.splitlines()
    rows = [line.split()[:2] for line in lines]
    assert ["0:0", "MIG"] in rows and ["0:1", "MIG"] in rows
    process = next(line.split() for line in lines if str(os.getpid()) in line)
    user = pwd.getpwuid(os.getuid()).pw_name
    assert process[:5] == ["0:0", str(os.getpid()), user, "600", "n/a"]
