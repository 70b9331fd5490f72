"""When a waiting run is expected to start, and a host line that keeps still."""

from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # ships no types
import pytest
from screen_home import OTHER_MEMORY

from kgops.gpus.readings import GpuReading
from kgops.present import host
from kgops.present.gpus import GpuUsage, expected_start
from kgops.present.host import HostReader
from kgops.settings import Home
from kgops.supervisor.on_gpus import RunOnGpu
from storage import runs


def waiting(need_mib: int | None, gpu: str = "auto") -> runs.Run:
    return runs.Run(id=9, state="queued", gpu_request=gpu, reserved_mib=need_mib)


def gpu(index: int, used_mib: int, *reserved: tuple[int, int]) -> GpuUsage:
    """Of 10,000 MiB; what runs reserve, they use."""
    empty = GpuReading(index, f"GPU-{index}")
    reading = replace(empty, memory_total_mib=10_000, memory_used_mib=used_mib, problem=None)
    held = tuple(RunOnGpu(run, "", mib, "processes") for run, mib in reserved)
    return GpuUsage(reading, str(index), held, reserved)


def test_a_run_starts_when_enough_of_those_before_it_are_expected_to_end() -> None:
    busy = gpu(0, 9_000, (1, 3_000), (2, 6_000))
    found = expected_start([waiting(5_000)], [busy], {1: 100.0, 2: 500.0})
    assert found is not None
    assert (found.run, found.gpu, found.need_mib, found.at) == (9, "0", 5_000, 500.0)
    sooner = expected_start([waiting(3_500)], [busy], {1: 100.0, 2: 500.0})
    assert sooner is not None and sooner.at == 100.0


def test_the_gpu_that_is_free_first_is_named_and_what_is_unknown_is_not_guessed() -> None:
    late, early = gpu(0, 9_000, (1, 9_000)), gpu(1, 9_000, (2, 9_000))
    found = expected_start([waiting(5_000)], [late, early], {1: 900.0, 2: 100.0})
    assert found is not None and (found.gpu, found.at) == ("1", 100.0)
    found = expected_start([waiting(5_000)], [late], {1: None})
    assert found is not None and found.at is None
    # Other users are taken to stay.
    others = expected_start([waiting(5_000)], [gpu(0, 9_000, (1, 1_000))], {1: 100.0})
    assert others is not None and others.at is None
    assert expected_start([waiting(None)], [late], {}) is None
    assert expected_start([waiting(20_000)], [late], {}) is None
    assert expected_start([waiting(5_000, gpu="1")], [late], {}) is None


def test_the_host_line_changes_only_where_that_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_PROC", tmp_path)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    others = "".join(f"{name}: 0 kB\n" for name in OTHER_MEMORY)
    monkeypatch.setattr(host, "_EVERY_S", 0.0)

    def machine(busy: int, idle: int, available_kib: int) -> None:
        (tmp_path / "stat").write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0\n")
        (tmp_path / "meminfo").write_text(f"MemTotal: 1024000 kB\nMemAvailable: {available_kib} kB\n{others}")

    reader = HostReader(Home(tmp_path))
    machine(0, 0, 512_000)
    first = reader.read()
    assert first.cpu_percent is None  # a share needs two readings
    assert (first.memory_used_mib, first.memory_total_mib) == (500.0, 1000.0)
    reader._read_at = -1e9
    machine(30, 70, 512_500)
    second = reader.read()
    assert (second.cpu_percent, second.memory_used_mib) == (30.0, 500.0)
    machine(62, 138, 512_500)  # 32 % since
    assert reader.read() == second
    machine(162, 138, 200_000)
    third = reader.read()
    assert third.cpu_percent == 100.0
    assert third.memory_used_mib is not None and third.memory_used_mib > 800
