"""The stand-in speaks NVML's ABI and not only our idea of it: nvitop, which knows nothing of us, reads it too."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from driving import patience
from nvml_standin import Machine, StandIn, h200, t4

pytest.importorskip("nvitop", reason="a dev dependency")


def test_nvitop_shows_the_same_gpus_memory_and_processes(tmp_path: Path) -> None:
    standin = StandIn(tmp_path)
    busy = replace(t4(used_mib=2048, processes=((os.getpid(), 1900),)), utilization=37, temperature=61)
    standin.show(Machine((busy, h200(used_mib=70_000)), driver="550.54.15", cuda=12040))
    done = subprocess.run(
        [sys.executable, "-m", "nvitop", "--once", "--ascii"],
        env={**standin.environment(), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for seen in ("550.54.15", "12.4", "Tesla T4", "2048MiB / 15360MiB", "37%", "61C", "H200", "1900MiB"):
        assert seen in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if "1900MiB" in line]
    assert str(os.getpid()) in row.split()
