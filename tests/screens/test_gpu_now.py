"""A plan is made for the GPU that the run gets, as that GPU is now; every page says so in the same words."""

import os
import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from driving import Console, Done, wait_for
from gpu_machine import LARGE, OTHERS, TOO_LARGE, GpuMachine
from nvml_standin import Slice, a100, t4
from screen_driving import Step, shown_after

from storage import runs

WAITS = "fits an empty Tesla T4; would wait now for 14,100 MiB that another user holds"
NEW_RUN: Step = (("n",), ("to spare",))
SLEEP = ("exec", "--gpu", "0", "--gpu-memory", "14000", "--", "sleep", "60")


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    """One T4, nobody on it."""
    return GpuMachine(tmp_path, t4())


def mixed(machine: GpuMachine, used_mib: tuple[int, int, int] = (0, 0, 0)) -> None:
    machine.show(
        t4(used_mib=used_mib[0]), a100("GPU-a", used_mib=used_mib[1]), a100("GPU-b", used_mib=used_mib[2])
    )


def busy(machine: GpuMachine) -> None:
    machine.show(t4(used_mib=14_100, processes=OTHERS))


# --- the GPU picks the profile ---


def test_a_t4_picks_its_profile_for_plan_and_run_alike(kgops: Callable[..., Done]) -> None:
    suggested = kgops("suggest", "train", "--dataset", "nations")
    assert suggested.out.rstrip().endswith("kgops train --dataset nations --profile t4")
    assert "fits now" in suggested.out.splitlines()[1]
    job = tomllib.loads(kgops("run", "train", "--dataset", "nations", "--dry-run").out)
    assert job["profile"] == "t4"
    assert job["options"]["precision"] == "fp16"


def test_on_a_mixed_machine_the_gpu_that_is_free_decides(
    kgops: Callable[..., Done], machine: GpuMachine
) -> None:
    mixed(machine)
    free = kgops("suggest", *LARGE).out
    assert "NVIDIA A100-SXM4-40GB" in free.splitlines()[1]
    assert "profile a100-40" in free and "bf16" in free
    assert "on Tesla T4: profile t4, precision fp16" in free
    assert "--profile" not in free.splitlines()[-1]  # the GPU decides when the run gets one
    mixed(machine, (0, 40_300, 40_300))
    taken = kgops("suggest", *LARGE).out
    assert "Tesla T4" in taken.splitlines()[1] and "profile t4" in taken
    assert "on NVIDIA A100-SXM4-40GB: profile a100-40, precision bf16" in taken


def test_a_run_that_waited_takes_the_plan_of_the_gpu_it_gets(
    kgops: Callable[..., Done], machine: GpuMachine, run_cli: Console
) -> None:
    mixed(machine, (14_800, 40_300, 40_300))
    number = int(kgops("run", *LARGE, "--detach").out)
    waiting = run_cli.row(number)
    assert waiting.state == "queued"
    assert waiting.profile == "a100-40"  # that it would fit on, and has most memory
    assert waiting.reason is not None and waiting.reason.count("that another user holds") == 3
    mixed(machine, (0, 40_300, 40_300))

    def got_the_t4() -> runs.Run | None:
        kgops("runs")  # whoever looks gives turns
        run = run_cli.run(number)
        return run if run is not None and run.gpu == "GPU-t4" else None

    run = wait_for(got_the_t4, "the T4 to be given to the run")
    assert run.profile == "t4"
    run_cli.ended(number)  # its worker's torch is only to look at
    shown = run_cli.show(number)
    assert shown["job"]["options"]["precision"] == "fp16"
    assert shown["plan"]["forecast"]["on"] == "Tesla T4"
    assert {one["option"]: one["applied"] for one in shown["plan"]["choices"]}["precision"] == "fp16"
    job = tomllib.loads((run_cli.folder(number) / "job.toml").read_text())
    assert (job["profile"], job["options"]["precision"]) == ("t4", "fp16")


def test_a_gpu_can_be_asked_for_by_its_model(
    kgops: Callable[..., Done], machine: GpuMachine, run_cli: Console
) -> None:
    mixed(machine)
    number = int(
        kgops("run", "--detach", "exec", "--gpu", "t4", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").out
    )
    run_cli.ended(number)
    assert (run_cli.folder(number) / "worker.log").read_text() == "GPU-t4\n"


# --- as the GPU is now ---


def test_a_taken_gpu_is_told_in_the_same_words_on_every_page(
    kgops: Callable[..., Done], machine: GpuMachine, run_cli: Console
) -> None:
    busy(machine)
    suggested = kgops("suggest", *LARGE)
    assert suggested.code == 0  # it fits, and would wait
    assert WAITS in suggested.out.splitlines()[1]
    assert WAITS in kgops("run", *LARGE, "--dry-run").out
    started = kgops("run", *LARGE, "--detach")
    assert f"Note: {WAITS}" in started.err
    number = int(started.out)
    waits = WAITS.replace("would wait now", "waits")
    assert waits in kgops("show", str(number)).out
    assert waits in " ".join(kgops("gpus").out.split())
    (found,) = kgops("suggest", *LARGE, "--json").json()
    assert (found["now"], found["verdict"]) == (
        "later",
        f"fits an empty Tesla T4; would wait now for run {number}, which is earlier in the queue",
    )


def test_nothing_fits_a_taken_gpu_but_what_fits_it_now(
    kgops: Callable[..., Done], machine: GpuMachine
) -> None:
    """Also the batch sizes and options that a plan lists beside the job."""
    empty = kgops("suggest", *LARGE).out
    assert re.search(r"would fit$", empty, re.M) and re.search(r"^ALSO FITS  ", empty, re.M)
    busy(machine)
    taken = kgops("suggest", *LARGE).out
    fits = re.findall(r"(?i)(?:would|also|activations) fits?\b.{,13}", taken)
    assert len(fits) == 3
    assert all("an empty gpu" in one.lower() for one in fits), fits


def test_new_run_says_it_too_and_names_the_profile(machine: GpuMachine, home: Path, tmp_path: Path) -> None:
    busy(machine)
    wider = (*["down"] * 4, *["right"] * 4), ("800", "would wait now")
    lines = machine.ask(shown_after, home, NEW_RUN, wider, size=(80, 24))
    shown = "\n".join(lines)
    assert WAITS in " ".join(shown.split()).replace("another user holds ·", "another user holds")
    assert "t4, for the Tesla T4 in this machine" in shown
    assert "kgops train --dataset nations --embedding-dim 800 --profile t4" in shown


def test_a_driver_too_old_for_torch_is_told_on_every_page_and_no_gpu_run_is_started(
    kgops: Callable[..., Done], machine: GpuMachine, home: Path
) -> None:
    machine.use_torch(cuda="13.0")
    machine.show(t4(), driver="550.54.15", cuda=12040)
    too_old = "driver 550.54.15 runs CUDA up to 12.4, and torch 2.12 is built for CUDA 13.0"
    job = ("train", "--dataset", "nations")
    assert (
        f"✗  torch        2.12.1+cu128, built for CUDA 13.0\n{' ' * 16}→ no GPU is used: {too_old}"
        in kgops("doctor").out
    )
    unusable = f"CPU only: 1 GPU unusable: {too_old}; update the driver to 580"
    for told in (kgops("suggest", *job), kgops("run", *job, "--dry-run")):
        assert told.out.splitlines()[0].removeprefix("# ").startswith(unusable)
        assert "on the CPU" in told.out
    for asked in (("--gpu", "0"), ("--gpu-memory", "500"), ("--device", "cuda")):
        refused = kgops("run", *job, *asked)
        assert refused.code == 2
        assert f"a GPU was requested, but {too_old}" in refused.err
    assert kgops("runs", "--json").json() == []
    assert too_old in " ".join(" ".join(machine.ask(shown_after, home, NEW_RUN, size=(120, 24))).split())
    started = kgops("run", *job, "--detach")
    assert f"Warning: {unusable}" in started.err


def test_what_would_start_at_once_is_named_and_does(kgops: Callable[..., Done], machine: GpuMachine) -> None:
    asked = ("train", "--dataset", "wn18rr", "--batch-size", "4096", "--loss", "1vsall-ce", "--gpu", "0")
    machine.show(t4(used_mib=13_750, processes=OTHERS))
    (found,) = kgops("suggest", *asked, "--json").json()
    assert found["now"] == "later"
    near = found["nearest_now"]
    assert near["need_mib"] <= 14_909 - 13_750 < found["need_mib"]
    assert f"{near['need_mib']:,.0f} MiB" in kgops("suggest", *asked).out.splitlines()[2]
    flags = [word for name, value in near["changes"].items() for word in _flag(name, value)]
    (now,) = kgops("suggest", *asked, *flags, "--json").json()
    assert now["now"] == "now"


def _flag(name: str, value: object) -> list[str]:
    flag = {"gradient_checkpointing": "--use-gradient-checkpointing"}.get(name, f"--{name.replace('_', '-')}")
    return [flag] if value is True else [flag, str(value)]


def test_your_own_process_on_the_gpu_is_not_called_another_users(
    kgops: Callable[..., Done], machine: GpuMachine
) -> None:
    machine.show(t4(used_mib=14_100, processes=((os.getpid(), 14_100),)))
    assert f"14,100 MiB that your process {os.getpid()} holds" in kgops("suggest", *LARGE).out


def test_a_forced_run_that_exceeds_the_gpu_starts_once_no_other_run_holds_it(
    kgops: Callable[..., Done], machine: GpuMachine, run_cli: Console
) -> None:
    machine.show(t4(used_mib=5, processes=((999_999_999, 5),)))  # a desktop, which never leaves
    small = int(kgops("run", "--detach", *SLEEP[:-4], "100", *SLEEP[-3:]).out)
    run_cli.running(small)
    forced = int(kgops("run", *TOO_LARGE, "--force", "--detach").out)
    assert f"waits for run {small}, to have it to itself" in kgops("show", str(forced)).out
    assert kgops("stop", str(small)).code == 0
    ended = run_cli.ended(forced)  # its worker's torch is only to look at
    assert (ended.gpu, ended.state) == ("GPU-t4", "failed")


def test_a_gpu_that_mig_divides_gives_its_slices_to_runs_and_never_itself(
    kgops: Callable[..., Done], machine: GpuMachine, run_cli: Console
) -> None:
    slices = tuple(Slice(n, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", f"MIG-{n}", 4864) for n in (0, 1))
    machine.show(replace(a100("GPU-whole"), mig=True, slices=slices))
    plan = kgops("suggest", "train", "--dataset", "nations").out.splitlines()[1]
    assert "MIG 1g.5gb (4,864 MiB" in plan
    both = [
        int(
            kgops("run", "--detach", "exec", "--gpu", "auto", "--gpu-memory", "4000", "--", "sleep", "60").out
        )
        for _ in "12"
    ]
    assert {run_cli.running(number).gpu for number in both} == {"MIG-0", "MIG-1"}
    refused = kgops("run", "exec", "--gpu", "0", "--", "true")
    assert refused.code == 2 and "name a slice by its UUID" in refused.err
    for number in both:
        assert kgops("stop", str(number)).code == 0
    named = int(kgops("run", "--detach", "exec", "--gpu", "MIG-1", "--", "sleep", "60").out)
    assert run_cli.running(named).gpu == "MIG-1"


@pytest.mark.parametrize("gpu", ["0", "t4"])
def test_the_printed_command_repeats_the_gpu_that_was_asked_for(kgops: Callable[..., Done], gpu: str) -> None:
    words = shlex.split(kgops("suggest", "train", "--dataset", "nations", "--gpu", gpu).out.splitlines()[-1])
    assert words[-2:] == ["--gpu", gpu]
    job = tomllib.loads(kgops(*words[1:], "--dry-run").out)
    assert (job["gpu"]["wanted"], job["profile"]) == (gpu, "t4")
