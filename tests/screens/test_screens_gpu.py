"""Who is on a GPU: one key from the dashboard, with processes, users, slices and a way to end one's own."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from driving import Console, identity_in
from nvml_standin import Machine, Slice, StandIn, a100, cuda_build, t4
from screen_driving import Step, shown_after

from kgops.gpus.history import BUCKET_S, KEPT, GpuHistory
from kgops.gpus.readings import GpuReading
from kgops.present.gpu_cells import gpu_row, memory_bar
from kgops.present.gpus import GpuUsage

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """With a torch that can use the GPUs."""
    monkeypatch.setenv("PYTHONPATH", str(cuda_build(tmp_path / "build")))
    return StandIn(tmp_path)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


OPENED: Step = ((), ("who",))


def test_one_key_says_who_is_on_gpu_1(
    run_cli: Console, standin: StandIn, child: subprocess.Popen[bytes]
) -> None:
    busy = replace(t4("GPU-b", used_mib=14_600, processes=((child.pid, 14_500),)), busy=((child.pid, 98),))
    standin.show(Machine((t4("GPU-a"), busy)))
    for keys in (("1",), ("home", "down", "enter")):
        page = (keys, ("GPU 1 · Tesla T4", str(child.pid)))
        lines = standin.ask(shown_after, run_cli.home, OPENED, page, size=(80, 24))
        row = next(line.split() for line in lines if line.split()[:1] == [str(child.pid)])
        assert row[1:4] == [ME, "14,500", "98"]
        assert row[-2:] == ["sleep", "1000"]


def test_the_run_of_a_process_opens_from_there(run_cli: Console, standin: StandIn, tmp_path: Path) -> None:
    number = run_cli.detach(
        "sh", "-c", f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 60"
    )
    pid = identity_in(tmp_path / "pid").pid
    standin.show(Machine((t4("GPU-a", used_mib=900, processes=((pid, 800),)),)))
    standin.ask(shown_after, run_cli.home, OPENED, (("0", "enter"), (f"{number} exec sh", "Record")))


def test_slices_have_lines_of_their_own_under_their_gpu_on_both_screens(
    run_cli: Console, standin: StandIn, child: subprocess.Popen[bytes]
) -> None:
    slices = (
        Slice(0, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-a", 20096, 700, ((child.pid, 600),)),
        Slice(1, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-b", 20096, 0),
    )
    standin.show(Machine((replace(a100(used_mib=700), mig=True, slices=slices),)))
    lines = standin.ask(shown_after, run_cli.home, ((), ("who", "0:1", "HOST")))
    first = next(line for line in lines if "0:0" in line)
    assert "MIG 3g.20gb" in first[:24] or "MIG 3g.2" in first
    assert "18.9 GiB free  a100-40" in first and ME in first
    lines = standin.ask(shown_after, run_cli.home, OPENED, (("0",), ("0:1", str(child.pid))))
    row = next(line.split() for line in lines if line.split()[:1] == [str(child.pid)])
    assert "0:0" in row


def test_ending_a_process_asks_and_escape_is_no(
    run_cli: Console, standin: StandIn, child: subprocess.Popen[bytes]
) -> None:
    standin.show(Machine((t4(processes=((child.pid, 500),)),)))
    asked: Step = (("T",), (f"send SIGTERM to {child.pid}, sleep 1000", "y yes"))
    begun = OPENED, (("0",), (str(child.pid),)), asked
    standin.ask(shown_after, run_cli.home, *begun, (("escape",), ("T end",)))
    assert child.poll() is None
    standin.ask(shown_after, run_cli.home, *begun, (("y",), (f"sent SIGTERM to {child.pid}",)))
    assert child.wait() == -15


def test_a_process_that_is_not_mine_cannot_be_ended(run_cli: Console, standin: StandIn) -> None:
    standin.show(Machine((t4(processes=((999_999_999, 500),)),)))
    steps = OPENED, (("0",), ("999999999",)), (("K",), ("only your own can be ended",))
    lines = standin.ask(shown_after, run_cli.home, *steps)
    assert not any("y yes" in line for line in lines)


def test_hidden_processes_are_unknown_and_not_absent(run_cli: Console, standin: StandIn) -> None:
    unlisted = replace(t4("GPU-a", used_mib=900), fails={"nvmlDeviceGetComputeRunningProcesses_v3": 3})
    standin.show(Machine((unlisted, t4("GPU-b", used_mib=900))))
    lines = standin.ask(shown_after, run_cli.home, ((), ("who", "HOST")))
    assert all("n/a" in line for line in lines if line.startswith(("0 Tesla", "1 Tesla")))
    for key, told in (
        ("0", "n/a: the driver does not list its processes"),
        ("1", "no process is visible from here"),
    ):
        standin.ask(shown_after, run_cli.home, OPENED, ((key,), (told,)))


# ---- bar and curves ----


def reading(used_mib: int) -> GpuReading:
    return replace(GpuReading(0, "GPU-a"), memory_used_mib=used_mib, memory_total_mib=1000, problem=None)


def test_a_bar_parts_runs_others_reserved_and_predicted() -> None:
    from kgops.supervisor.on_gpus import RunOnGpu

    usage = GpuUsage(reading(500), "0", (RunOnGpu(7, "", 300, "processes"),), ((7, 400),))
    bar = "".join(piece.text for piece in memory_bar(gpu_row(usage), 101, 200))
    assert [bar.count(sign) for sign in "▇▓░┄·"] == [30, 20, 10, 20, 20]


def test_history_is_bounded_and_has_gaps_where_nobody_looked() -> None:
    history = GpuHistory()
    history.add(0.0, [reading(100)])
    history.add(2.0, [reading(300)])
    assert history.curves == {}  # a bucket that is not whole
    history.add(3.0 * BUCKET_S, [reading(500)])
    assert history.curves[0].memory_mib == (200.0, None, None)
    history.add(1e6, [reading(1)])
    history.add(2e6, [reading(1)])
    assert len(history.curves[0].memory_mib) == KEPT
