"""Whether a machine is quiet is looked at before values are taken, and told with them."""

import pytest

from kgops.gpus.readings import GpuReading, ProcessReading
from kgops.supervisor import machine_load


def test_busy_is_what_was_neither_idle_nor_waiting_for_a_disk() -> None:
    #        user nice system idle iowait irq softirq steal
    before = [100, 0, 50, 1000, 10, 0, 0, 0]
    assert machine_load.busy_share(before, [110, 0, 60, 1070, 20, 0, 0, 0]) == pytest.approx(0.2)
    assert machine_load.busy_share(before, before) is None
    assert machine_load.busy_share(None, before) is None


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
