"""GPUs are read in a thread: nobody waits for a driver, however slow it is."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from driving import patience
from nvml_standin import Machine, StandIn, t4

from kgops.gpus.readings import Snapshot
from kgops.gpus.sampler import GpuSampler

SLOW_MS = 200


def wait_for(sampler: GpuSampler, wanted: Callable[[Snapshot], bool]) -> tuple[Snapshot, int]:
    """The first snapshot that is as wanted, and how often the sampler could be looked at until then."""
    looks, begun = 0, time.monotonic()
    while time.monotonic() < begun + patience():
        snapshot = sampler.newest()
        looks += 1
        if snapshot is not None and wanted(snapshot):
            return snapshot, looks
        time.sleep(0.005)
    raise AssertionError(f"no such snapshot; the newest is {sampler.newest()}")


def test_the_sampler_follows_the_gpus(standin: StandIn) -> None:
    standin.show(Machine((t4(used_mib=100),)))
    before, after = standin.ask(sample_change, standin)
    assert before.gpus[0].memory_used_mib == 100
    assert after.gpus[0].memory_used_mib == 900
    assert after.number > before.number
    assert after.taken_at >= before.taken_at
    assert (after.driver_version, after.cuda_version) == ("570.86.15", (12, 8))
    assert "shutdown while" not in "\n".join(standin.calls())


def sample_change(standin: StandIn) -> tuple[Snapshot, Snapshot]:
    with GpuSampler(0.02) as sampler:
        before, _ = wait_for(sampler, lambda snapshot: True)
        standin.show(Machine((t4(used_mib=900),)))
        after, _ = wait_for(sampler, lambda snapshot: snapshot.gpus[0].memory_used_mib == 900)
    return before, after


def test_a_driver_of_200_ms_a_call_blocks_no_reader_and_stops_within_a_call(standin: StandIn) -> None:
    standin.show(Machine((t4(), t4("GPU-b")), delay_ms=SLOW_MS))
    told = standin.ask(sample_slow_driver, standin)
    assert told.first_look is None
    assert told.took_s >= SLOW_MS / 1000 * 10
    # A look that waited for the driver would come once a round, or once a call.
    assert told.looks > 3 * told.calls
    assert told.stopped
    assert told.threads == ["MainThread"]
    # The call under way, one that began before the stop was heard, and the shutdown; a round has more than ten.
    assert len(told.calls_after_stop) <= 3, told.calls_after_stop
    calls = standin.calls()
    assert calls[-1].startswith("nvmlShutdown")
    assert "shutdown while" not in "\n".join(calls)


@dataclass(frozen=True)
class Told:
    first_look: Snapshot | None
    took_s: float
    looks: int
    calls: int
    calls_after_stop: list[str]
    stopped: bool
    threads: list[str]


def sample_slow_driver(standin: StandIn) -> Told:
    sampler = GpuSampler(0.05)
    sampler.start()
    first_look = sampler.newest()
    snapshot, looks = wait_for(sampler, lambda snapshot: True)
    calls = len(standin.calls())
    # Into the middle of the next round.
    time.sleep(0.3)
    before = len(standin.calls())
    stopped = sampler.stop()
    after = standin.calls()[before:]
    names = [thread.name for thread in threading.enumerate()]
    return Told(first_look, snapshot.took_s, looks, calls, after, stopped, names)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_driver_that_hangs_holds_up_neither_stop_nor_the_end_of_the_program(
    standin: StandIn, at_once: bool
) -> None:
    hanging = Machine((t4(),), delay_ms=600_000)  # longer than this test may take
    standin.show(hanging if at_once else Machine((t4(),)))
    assert standin.ask(stop_a_hanging_driver, standin, hanging, at_once) is False
    # Shutting down under a call that is still out may crash the real library.
    assert not [call for call in standin.calls() if call.startswith("nvmlShutdown")]


def stop_a_hanging_driver(standin: StandIn, hanging: Machine, at_once: bool) -> bool:
    sampler = GpuSampler(0.01)
    sampler.start()
    if not at_once:
        wait_for(sampler, lambda snapshot: True)
        standin.show(hanging)
    time.sleep(0.2)
    return sampler.stop(timeout_s=0.3)


def test_a_driver_that_comes_up_later_is_found(standin: StandIn) -> None:
    standin.show(Machine((t4(),), init=9))
    first, later = standin.ask(sample_late_driver, standin)
    assert first.problem is not None
    assert first.problem.kind == "driver-not-loaded"
    assert first.gpus == ()
    assert later.problem is None
    assert [gpu.name for gpu in later.gpus] == ["Tesla T4"]


def sample_late_driver(standin: StandIn) -> tuple[Snapshot, Snapshot]:
    sampler = GpuSampler(0.02)
    sampler.retry_s = 0.02
    with sampler:
        first, _ = wait_for(sampler, lambda snapshot: True)
        standin.show(Machine((t4(),)))
        later, _ = wait_for(sampler, lambda snapshot: snapshot.problem is None)
    return first, later
