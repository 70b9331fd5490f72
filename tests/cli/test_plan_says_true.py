"""A plan's first line names the GPU that the run would get and says whether it would start, within its own limits."""

from collections.abc import Callable
from pathlib import Path

import pytest
from driving import Console, Done
from gpu_machine import LARGE, OTHERS, GpuMachine
from nvml_standin import t4

SMALL = ("train", "--dataset", "nations", "--num-epochs", "3")


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    """Two T4s, of which others fill the first."""
    return GpuMachine(tmp_path, t4("GPU-a", 14_100, OTHERS), t4("GPU-b"))


# --- the GPU that it would get ---


@pytest.mark.parametrize("asked", [(), ("--gpu", "t4"), ("--gpu", "auto"), ("--device", "cuda")])
def test_of_two_gpus_alike_the_one_that_the_run_gets_is_named(
    kgops: Callable[..., Done], run_cli: Console, asked: tuple[str, ...]
) -> None:
    head = kgops("suggest", *LARGE, *asked).out.splitlines()[1]
    assert "on GPU 1 Tesla T4 (14,909 MiB, 14,909 free now): fits now" in head
    (plan,) = kgops("suggest", *LARGE, *asked, "--json").json()
    run = run_cli.ended(int(kgops("run", *LARGE, *asked, "--detach").out))
    assert (plan["gpu"], plan["free_mib"], run.gpu) == ("1", 14_909, "GPU-b")


def test_a_run_that_waits_for_either_of_two_gpus_is_planned_for_neither(
    kgops: Callable[..., Done], machine: GpuMachine
) -> None:
    machine.show(t4("GPU-a", 14_100, OTHERS), t4("GPU-b", 14_000, OTHERS))
    head = kgops("suggest", *LARGE).out.splitlines()[1]
    assert "on Tesla T4 (14,909 MiB, 909 free now): fits an empty Tesla T4; would wait now" in head
    assert "on GPU 0; or 14,000 MiB that another user holds, on GPU 1" in head
    assert "on GPU 1 Tesla T4 (14,909 MiB, 909 free now)" in kgops("suggest", *LARGE, "--gpu", "1").out


# --- whether it would start ---


@pytest.mark.parametrize("asked", [("--device", "cuda"), ("--device", "cuda:1"), ("--gpu", "1")])
def test_what_torch_cannot_use_does_not_fit_now(
    kgops: Callable[..., Done], machine: GpuMachine, asked: tuple[str, ...]
) -> None:
    machine.use_torch(cuda=None)
    told = kgops("suggest", *SMALL, *asked)
    assert told.code == 3
    assert "would not start here: a GPU was requested, but the installed torch is a CPU build" in told.out
    head = next(line for line in told.out.splitlines() if line.startswith("train nations"))
    assert "would not start here" in head and "on the CPU" not in head
    (plan,) = kgops("suggest", *SMALL, *asked, "--json").json()
    assert plan["now"] == "never" and plan["verdict"].startswith("would not start here")
    for plan_of in (told, kgops("run", *SMALL, *asked, "--dry-run")):
        assert "fits now" not in plan_of.out
        assert plan_of.out.count("would not start here") == 1


@pytest.mark.parametrize("asked", [("--gpu", "0"), ("--gpu", "auto"), ()])
def test_a_reservation_that_no_gpu_has_never_fits(kgops: Callable[..., Done], asked: tuple[str, ...]) -> None:
    words = (*LARGE, *asked, "--gpu-memory", "30000")
    told = kgops("suggest", *words)
    assert told.code == 3
    assert told.out.splitlines()[1].endswith("does not fit: reserves 30,000 of 14,909 MiB")
    for plan_of in (told, kgops("run", *words, "--dry-run")):
        assert "does not fit: reserves 30,000 of 14,909 MiB" in plan_of.out
        assert "would wait" not in plan_of.out and "fits an empty" not in plan_of.out
    refused = kgops("run", *words, "--force")
    assert refused.code == 3
    assert "reserves 30,000 MiB of a GPU; the largest here has 14,909 MiB" in refused.err


# --- the job's own limit of host memory ---


def test_a_limit_of_memory_is_in_the_plan_and_what_exceeds_it_is_refused(run_cli: Console) -> None:
    limited = (*SMALL, "--memory-limit", "100")
    told = run_cli("suggest", *limited)
    assert told.code == 3
    head = told.out.splitlines()[1]
    assert "--memory-limit 100" in head and "of 100 MiB that --memory-limit allows" in head
    assert "nearest change that fits" in told.out or "no option makes it fit" in told.out
    dry = run_cli("run", *limited, "--dry-run")
    assert "MiB predicted of 100 that --memory-limit allows on the CPU" in dry.out
    assert "does not fit" in dry.out and "fits now" not in dry.out
    refused = run_cli("run", *limited)
    assert refused.code == 3
    assert "of which --memory-limit allows 100 MiB" in refused.err
    assert "a --memory-limit of " in refused.err and "--force runs it anyway" in refused.err
    assert run_cli("runs", "--json").json() == []


def test_the_limit_that_a_refusal_names_is_one_that_the_run_ends_well_with(run_cli: Console) -> None:
    refused = run_cli("run", *SMALL, "--memory-limit", "100")
    enough = refused.err.partition("a --memory-limit of ")[2].partition(".")[0].replace(",", "")
    within = (*SMALL, "--memory-limit", enough)
    assert "fits now" in run_cli("suggest", *within).out.splitlines()[1]
    run_cli.must("run", *within)


def test_a_limit_of_host_memory_is_not_for_a_run_that_a_gpu_would_get(kgops: Callable[..., Done]) -> None:
    told = kgops("suggest", *SMALL, "--memory-limit", "4000")
    assert told.code == 3
    assert "would not start here: --memory-limit is for runs on the CPU" in told.out.splitlines()[1]
    refused = kgops("run", *SMALL, "--memory-limit", "4000")
    assert refused.code == 2
    assert "add --device cpu" in refused.err
    limited = kgops("suggest", *SMALL, "--memory-limit", "4000", "--device", "cpu")
    assert limited.code == 0
    assert "on the CPU" in limited.out.splitlines()[1]
