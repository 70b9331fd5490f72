"""GPUs are shared by memory, nobody overtakes, and whoever waits starts by itself."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from driving import Console, wait_for
from nvml_standin import Machine, StandIn, compiler, t4

from kgops.supervisor import processes
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.run_folder import RunFolder

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler for the stand-in driver")


@pytest.fixture
def start(run_cli: Console, on_t4: dict[str, str]) -> Callable[..., int]:
    def start(*flags: str, command: tuple[str, ...] = ("sleep", "60")) -> int:
        return run_cli.detach(*command, flags=flags, env=on_t4)

    return start


def test_two_runs_share_a_gpu_and_a_third_starts_by_itself_when_there_is_room(
    run_cli: Console, start: Callable[..., int]
) -> None:
    first, second = (
        start("--gpu", "0", "--gpu-memory", "6000"),
        start("--gpu", "auto", "--gpu-memory", "6000"),
    )
    third = start("--gpu", "0", "--gpu-memory", "6000")
    run_cli.running(first)
    run_cli.running(second)
    waiting = run_cli.row(third)
    assert waiting.state == "queued"
    assert waiting.reason == f"runs {first} and {second}, which reserve 12,000 MiB"
    _end(run_cli, first)  # by a signal to its worker: no command of kgops is given from here on
    wait_for(lambda: _state(run_cli, third) == "running", "the third run to start by itself")
    assert _state(run_cli, second) == "running"


def test_a_small_run_does_not_overtake_a_large_one_that_waits_for_the_same_gpu(
    run_cli: Console, start: Callable[..., int]
) -> None:
    first = start("--gpu", "0", "--gpu-memory", "8000")
    large = start("--gpu", "0", "--gpu-memory", "14000")
    small = start("--gpu", "0", "--gpu-memory", "100")
    run_cli.running(first)
    assert _state(run_cli, large) == _state(run_cli, small) == "queued"
    reason = run_cli.row(small)
    assert reason.reason == f"run {large}, which is earlier in the queue"


def test_what_a_run_uses_of_its_reservation_counts_once(
    run_cli: Console, start: Callable[..., int], standin: StandIn
) -> None:
    first = start("--gpu", "0", "--gpu-memory", "6000")
    run_cli.running(first)
    (worker,) = Tree(RunFolder(run_cli.folder(first)), 1).members()

    def uses(mib: int) -> None:
        standin.show(Machine((t4(used_mib=mib + 2000, processes=((worker.pid, mib), (999_999_999, 2000))),)))

    uses(5500)
    second = start("--gpu", "0", "--gpu-memory", "6900")
    run_cli.running(second)
    uses(6500)  # above its reservation: 14,909 - 2,000 - 6,500 - 6,900 = -491
    run_cli("stop", str(second))
    third = start("--gpu", "0", "--gpu-memory", "6900")
    waiting = run_cli.row(third)
    assert waiting.reason == (
        f"run {first}, which reserves 6,000 MiB and uses 500 MiB more, and 2,000 MiB that another user holds"
    )


def test_gpu_memory_of_the_whole_process_tree_is_recorded(
    run_cli: Console, start: Callable[..., int], standin: StandIn
) -> None:
    number = start("--gpu", "0", command=("sh", "-c", "sleep 60 & wait"))
    run_cli.running(number)
    tree = Tree(RunFolder(run_cli.folder(number)), 1)
    members = wait_for(
        lambda: found if len(found := tree.members()) == 2 else None, "the worker and its child"
    )
    standin.show(Machine((t4(used_mib=3500, processes=tuple((who.pid, 1605) for who in members)),)))
    shown = wait_for(lambda: run if (run := run_cli.run(number)) and run.peak_gpu_mib else None, "a sample")
    assert shown.peak_gpu_mib == 2 * 1605


def test_a_run_gets_several_gpus_together_or_waits_for_them(
    run_cli: Console, start: Callable[..., int], standin: StandIn
) -> None:
    standin.show(Machine((t4("GPU-a"), t4("GPU-b"), t4("GPU-c"))))
    told = ("sh", "-c", "echo GPUs $CUDA_VISIBLE_DEVICES are $KGOPS_GPU; sleep 60")
    middle = start("--gpu", "1", "--gpu-memory", "9000")
    both = start("--gpu", "0,2", command=told)
    every = start("--gpu", "all", "--gpu-memory", "9000", command=told)
    late = start("--gpu", "auto", "--gpu-memory", "100")
    run_cli.running(middle)
    run_cli.running(both)
    waiting = run_cli.row(every)
    assert waiting.reason == (
        f"3 GPUs: run {both}, which has it to itself, on GPU 0; run {middle}, which reserves 9,000 MiB, on GPU 1; "
        f"run {both}, which has it to itself, on GPU 2"
    )
    assert _state(run_cli, late) == "queued"  # it would overtake
    _end(run_cli, both)
    _end(run_cli, middle)
    wait_for(lambda: _state(run_cli, every) == "running", "the run that wants all GPUs")
    wait_for(lambda: _state(run_cli, late) == "running", "the run that finds room beside it")
    for number, gpus in ((both, "GPU-a,GPU-c"), (every, "GPU-a,GPU-b,GPU-c")):
        assert f"GPUs {gpus} are {gpus}\n" in run_cli("logs", str(number)).out
    assert len(run_cli("runs", "gpu:GPU-c").out.splitlines()) == 1 + 2


def test_a_driver_that_hangs_holds_up_no_command_while_runs_wait_for_it(
    run_cli: Console, start: Callable[..., int], standin: StandIn, on_t4: dict[str, str]
) -> None:
    first, second = (start("--gpu", "0", "--gpu-memory", "9000") for _ in range(2))
    run_cli.running(first)
    standin.show(Machine((t4(),), delay_ms=3_600_000))
    assert run_cli("stop", str(first), "--grace", "0", env=on_t4).code == 0
    waiting = run_cli.row(second)
    assert (waiting.state, waiting.reason) == ("queued", "a GPU (the NVIDIA driver does not answer)")
    planned = run_cli("run", "train", "--dataset", "nations", "--gpu", "0", "--dry-run", env=on_t4)
    assert (planned.code, "the NVIDIA driver does not answer" in planned.err) == (2, True)
    shown = run_cli("gpus", env=on_t4)
    assert (shown.code, "does not answer" in shown.out) == (1, True)
    standin.show(Machine((t4(),)))
    wait_for(lambda: run_cli("runs", env=on_t4) and _state(run_cli, second) == "running", "the second run")


def test_a_gpu_that_is_lost_is_waited_for(
    run_cli: Console, start: Callable[..., int], standin: StandIn, on_t4: dict[str, str]
) -> None:
    first, second = (start("--gpu", "0", "--gpu-memory", "9000") for _ in range(2))
    run_cli.running(first)
    standin.show(Machine((replace(t4(), lost=15),)))
    run_cli("runs", env=on_t4)
    waiting = run_cli.row(second)
    assert (waiting.state, waiting.reason) == ("queued", "GPU 0, which does not answer")
    assert _state(run_cli, first) == "running"  # what its worker makes of it is the worker's
    run_cli("stop", str(first), "--grace", "0", env=on_t4)
    standin.show(Machine((t4(),)))
    wait_for(lambda: run_cli("runs", env=on_t4) and _state(run_cli, second) == "running", "the second run")


def _state(run_cli: Console, number: int) -> str:
    run = run_cli.run(number)
    return run.state if run is not None else "missing"


def _end(run_cli: Console, number: int) -> None:
    tree = Tree(RunFolder(run_cli.folder(number)), 1)
    for who in tree.members():
        processes.send(who, 15)
