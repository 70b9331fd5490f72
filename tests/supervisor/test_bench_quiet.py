"""Whether a machine is quiet is looked at before values are taken, and told with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kgops.gpus.readings import GpuReading, ProcessReading
from kgops.supervisor import machine_load


def test_busy_is_what_was_neither_idle_nor_waiting_for_a_disk() -> None:
    #        user nice system idle iowait irq softirq steal
    before = [100, 0, 50, 1000, 10, 0, 0, 0]
    assert machine_load.busy_share(before, [110, 0, 60, 1070, 20, 0, 0, 0]) == pytest.approx(0.2)
    assert machine_load.busy_share(before, before) is None
    assert machine_load.busy_share(None, before) is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc")
def test_a_process_that_computes_makes_the_machine_busier() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
    try:
        found = machine_load.measure(over_s=0.5)
    finally:
        child.kill()
        child.wait()
    assert found.busy is not None and found.busy > 0.05
    assert machine_load.measure(over_s=0.01, other_runs=2).warnings[-1].startswith("2 other kgops runs")


def _gpu(**told: object) -> GpuReading:
    whole = dict.fromkeys(GpuReading.__dataclass_fields__)
    return GpuReading(**{**whole, "index": 0, "slices": (), **told})  # type: ignore[arg-type]


def test_other_users_load_and_heat_of_a_gpu_are_noted() -> None:
    assert list(machine_load.gpu_warnings(_gpu())) == []
    assert list(machine_load.gpu_warnings(_gpu(processes=(), utilization_percent=3, temperature_c=60))) == []
    assert list(
        machine_load.gpu_warnings(
            _gpu(processes=(ProcessReading(7, None),), utilization_percent=97, temperature_c=88)
        )
    ) == [
        "GPU 0 has 1 other process",
        "GPU 0 is busy (97 %)",
        "GPU 0 is hot (88 °C): it may lower its clock",
    ]


def test_processors_that_were_slowed_for_their_heat_are_counted(tmp_path: Path) -> None:
    counts = []
    for cpu in (0, 1):
        folder = tmp_path / f"cpu{cpu}" / "thermal_throttle"
        folder.mkdir(parents=True)
        counts.append(folder / "core_throttle_count")
        counts[-1].write_text("5\n")
    watch = machine_load.ThrottleCounter(tmp_path)
    assert watch.since() == 0
    counts[1].write_text("9\n")
    assert watch.since() == 4
    assert machine_load.ThrottleCounter(tmp_path / "nothing").since() is None
