"""`kgops gpus`: GPUs as they are, whose processes are on them, every trouble by its name, and what changed."""

import json
import os
import pwd
import re
import shlex
import signal
import termios
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from driving import Console, Done, Terminal, end_all_of, identity_in, patience
from nvml_standin import Gpu, Machine, Slice, StandIn, a100, h200, t4

from kgops.present.formats import width_of


@pytest.fixture
def show_gpus(run_cli: Console, standin: StandIn) -> Callable[..., Done]:
    def ask(*flags: str) -> Done:
        done = run_cli("gpus", *flags, env=standin.environment())
        assert "Traceback" not in done.err
        return done

    return ask


def test_a_gpu_is_shown_with_memory_load_and_processes(
    show_gpus: Callable[..., Done], standin: StandIn
) -> None:
    gpu = t4(used_mib=2048, processes=((os.getpid(), 1900), (999_999_999, None)))
    standin.show(Machine((replace(gpu, utilization=37, temperature=61),), driver="550.54.15", cuda=12040))
    told = show_gpus()
    assert told.code == 0, told.err
    head, names, row, _, processes, ours, hidden = told.out.splitlines()
    assert head == "driver 550.54.15, CUDA up to 12.4; memory in MiB, CC is compute capability"
    assert names.split() == ["GPU", "NAME", "CC", "USED", "FREE", "RESV", "TOTAL", "UTIL", "TEMP", "POWER"]
    assert " ".join(row.split()) == "0 Tesla T4 7.5 2,048 12,861 451 15,360 37% 61°C 30/70 W"
    assert processes.split() == ["GPU", "PID", "USER", "MIB", "SM", "%", "CPU", "%", "AGE", "RUN", "COMMAND"]
    assert ours.split()[:5] == ["0", str(os.getpid()), pwd.getpwuid(os.getuid()).pw_name, "1,900", "n/a"]
    assert hidden.split() == ["0", "999999999", *["n/a"] * 6]


def test_json_has_every_metric_under_its_units_name(show_gpus: Callable[..., Done], standin: StandIn) -> None:
    slices = (Slice(1, "NVIDIA H200 MIG 1g.18gb", "MIG-a", 16384, 700, ((4711, 600),)),)
    standin.show(Machine((a100(used_mib=1000), replace(h200(), mig=True, slices=slices))))
    told = show_gpus("--json").json()
    assert (told["driver_version"], told["cuda_version"], told["problem"]) == ("570.86.15", "12.8", None)
    first, second = told["gpu"]
    assert first["known_as"] == "a100-40"
    assert first["compute_capability"] == "8.0"
    assert first["memory_used_mib"] == 1000
    assert first["memory_free_mib"] == 40960 - 633 - 1000
    assert first["memory_accounting"] == "v2"
    assert first["power_limit_w"] == 400
    assert first["slice"] == first["process"] == first["run"] == []
    assert second["mig_enabled"] is True
    assert [(part["name"], part["memory_used_mib"]) for part in second["slice"]] == [
        ("NVIDIA H200 MIG 1g.18gb", 700)
    ]
    assert [(p["gpu"], p["pid"], p["used_mib"]) for p in second["process"]] == [("1:1", 4711, 600)]
    rows = [line.split()[:4] for line in show_gpus().out.splitlines()]
    assert ["1:1", "MIG", "1g.18gb"] in [row[:3] for row in rows] and ["1:1", "4711"] in [
        row[:2] for row in rows
    ]


HOSTILE = replace(t4("GPU-x"), name="NVIDIA [red]№ 1[/]\x1b[31m " + "x" * 80)


@pytest.mark.parametrize(
    "gpus",
    [
        (t4(),),
        tuple(replace(h200(f"GPU-{i}", 140_000), power_mw=699_000, utilization=100) for i in range(8)),
        (HOSTILE, replace(t4("GPU-y"), lost=15), replace(a100(), fails={"nvmlDeviceGetMemoryInfo_v2": 3})),
        (replace(h200(), mig=True, slices=(Slice(0, "NVIDIA H200 MIG 1g.18gb", "MIG-a", 16384),)),),
        (replace(t4(), fails={"nvmlDeviceGetComputeRunningProcesses_v3": 4}),),
    ],
    ids=["one", "eight", "hostile", "sliced", "unlisted"],
)
def test_no_gpu_is_wider_than_80_columns_and_none_carries_an_escape(
    show_gpus: Callable[..., Done], standin: StandIn, gpus: tuple[Gpu, ...]
) -> None:
    long_command = (os.getpid(), 10)
    standin.show(Machine((replace(gpus[0], processes=(long_command,)), *gpus[1:])))
    told = show_gpus()
    of_gpus, _, _ = told.out.partition("PID")  # commands of processes go into a pipe whole
    assert max(width_of(line) for line in of_gpus.splitlines()) <= 80
    assert "\x1b" not in told.out


# ---- troubles ----


@pytest.mark.parametrize(
    ("code", "kind", "what", "advice"),
    [
        (9, "driver-not-loaded", "kernel module is not loaded", "sudo modprobe nvidia"),
        (4, "no-permission", "does not let this user read it", "ls -l /dev/nvidia*"),
        (18, "version-mismatch", "of different versions", "reboot"),
        (15, "gpu-lost", "NVML error 15", "dmesg"),
        (16, "reset-required", "NVML error 16", "--gpu-reset"),
        (999, "other", "NVML error 999", "nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_answer_says_what_it_is_and_what_to_do(
    show_gpus: Callable[..., Done], standin: StandIn, code: int, kind: str, what: str, advice: str
) -> None:
    standin.show(Machine((t4(),), init=code))
    told = show_gpus()
    said = " ".join(told.out.split())
    assert told.code == 1
    assert what in said
    assert advice in said
    found = show_gpus("--json")
    assert found.code == 1
    problem = found.json()["problem"]
    assert problem["kind"] == kind and what in problem["message"]
    assert found.json()["gpu"] == []


def test_a_lost_gpu_is_told_beside_the_others(show_gpus: Callable[..., Done], standin: StandIn) -> None:
    standin.show(Machine((t4("GPU-a", used_mib=7), replace(t4("GPU-b"), lost=15), t4("GPU-c"))))
    told = show_gpus()
    assert told.code == 1
    assert "fallen off the bus" in told.out
    assert "sudo dmesg" in told.out
    rows = [line for line in told.out.splitlines() if re.match(r" *\d  ", line)]
    assert "Tesla T4" in rows[0]
    assert "does not answer" in rows[1]
    assert "Tesla T4" in rows[2]
    lost = show_gpus("--json").json()["gpu"][1]
    assert (lost["problem"]["kind"], lost["memory_total_mib"]) == ("gpu-lost", None)


# ---- whose processes ----


def _writes_its_pid(file: Path) -> tuple[str, ...]:
    return ("sh", "-c", f"echo $$ > {file}.new; mv {file}.new {file}; sleep 60")


def test_a_process_is_told_by_the_run_it_belongs_to_and_a_strangers_by_none(
    show_gpus: Callable[..., Done], run_cli: Console, standin: StandIn, tmp_path: Path
) -> None:
    first = run_cli.detach(*_writes_its_pid(tmp_path / "first"))
    second = run_cli.detach(*_writes_its_pid(tmp_path / "second"))
    pids = [identity_in(tmp_path / name).pid for name in ("first", "second")]
    processes = ((pids[0], 100), (pids[1], 50), (os.getpid(), 7))
    standin.show(Machine((t4("GPU-a", processes=processes), t4("GPU-b", processes=((pids[0], 11),)))))
    one, other = show_gpus("--json").json()["gpu"]
    assert [process["run"] for process in one["process"]] == [first, second, None]
    held = {run["run"]: (run["used_mib"], run["by"]) for run in one["run"]}
    assert held == {first: (100, "processes"), second: (50, "processes")}
    assert [held["run"] for held in other["run"]] == [first]


@pytest.mark.parametrize(
    "child",
    [
        "env -i sh -c 'echo $$ > {f}.new; mv {f}.new {f}; sleep 60' & wait",
        "env -i setsid sh -c 'echo $$ > {f}.new; mv {f}.new {f}; sleep 60' > /dev/null & sleep 60",
        "(setsid sh -c 'echo $$ > {f}.new; mv {f}.new {f}; sleep 60' &) ; sleep 60",
        "(env -i setsid sh -c 'echo $$ > {f}.new; mv {f}.new {f}; sleep 60' &) ; sleep 60",
    ],
    ids=["cleared environment", "own session", "orphan", "orphan, cleared"],
)
def test_what_a_worker_started_belongs_to_its_run_however_far_it_has_gone(
    show_gpus: Callable[..., Done], run_cli: Console, standin: StandIn, tmp_path: Path, child: str
) -> None:
    number = run_cli.detach("sh", "-c", child.format(f=tmp_path / "pid"))
    pid = identity_in(tmp_path / "pid").pid
    standin.show(Machine((t4(processes=((pid, 100),)),)))
    (gpu,) = show_gpus("--json").json()["gpu"]
    assert [process["run"] for process in gpu["process"]] == [number]


def test_a_run_that_a_run_starts_in_another_home_is_neither_ones(
    show_gpus: Callable[..., Done], run_cli: Console, standin: StandIn, tmp_path: Path
) -> None:
    inner = shlex.join(run_cli.argv("run", "--detach", "exec", "--", *_writes_its_pid(tmp_path / "inner")))
    *_, outer = _writes_its_pid(tmp_path / "outer")
    number = run_cli.detach("sh", "-c", f"KGOPS_HOME={tmp_path / 'other'} {inner}; {outer}")
    pids = [identity_in(tmp_path / name).pid for name in ("outer", "inner")]
    try:
        standin.show(Machine((t4(processes=tuple((pid, 100) for pid in pids)),)))
        (gpu,) = show_gpus("--json").json()["gpu"]
        assert [process["run"] for process in gpu["process"]] == [number, None]
    finally:
        end_all_of(tmp_path / "other")


def test_ctrl_c_is_heard_while_the_driver_hangs(run_cli: Console, standin: StandIn) -> None:
    standin.show(Machine((t4(),), delay_ms=600_000))  # longer than this test may take
    child = run_cli.start("gpus", env=standin.environment())
    assert child.stderr is not None
    assert b"Waiting for the GPU driver" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=patience())
    assert child.returncode == 130


@pytest.fixture
def on_a_terminal(
    run_cli: Console, standin: StandIn, open_terminal: Callable[..., Terminal]
) -> Callable[..., Terminal]:
    variables = run_cli.environment(standin.environment() | {"KGOPS_HOME": str(run_cli.home)})
    return lambda *flags: open_terminal("gpus", *flags, environment=variables)


def test_watching_prints_the_page_again_when_it_changes_until_ctrl_c(
    on_a_terminal: Callable[..., Terminal], standin: StandIn
) -> None:
    gpus = (t4("GPU-a", used_mib=111), t4("GPU-b", used_mib=222))
    standin.show(Machine(gpus))
    terminal = on_a_terminal("--watch")
    terminal.wait_for_text(b"222")
    standin.show(Machine((gpus[0], replace(gpus[1], used_mib=333))))
    terminal.wait_for_text(b"333")
    drawn = len(terminal.seen)
    termios.tcsetwinsize(terminal.master, (4, 60))
    standin.show(Machine(gpus))
    terminal.wait_for_text(b"more lines")
    plain = re.sub(rb"\x1b\[[\d;?]*[a-zA-Z]", b"", terminal.seen[drawn:]).decode().splitlines()
    assert max(map(width_of, plain)) <= 60
    terminal.type(b"\x03")
    assert terminal.wait() == 0
    assert b"Traceback" not in terminal.seen


def test_on_a_terminal_the_last_line_names_the_flag_that_watches(
    on_a_terminal: Callable[..., Terminal], standin: StandIn
) -> None:
    standin.show(Machine((t4(),)))
    terminal = on_a_terminal()
    assert terminal.wait() == 0
    assert terminal.seen.endswith(b"--watch updates this every second\r\n")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_watching_into_a_pipe_prints_each_reading_at_once(
    run_cli: Console, standin: StandIn, flags: tuple[str, ...]
) -> None:
    standin.show(Machine((t4(used_mib=111),)))
    child = run_cli.start("gpus", "--watch", *flags, env=standin.environment())
    assert child.stdout is not None
    read = [child.stdout.readline() for _ in range(2 if flags else 6)]
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=patience())
    assert child.returncode == 0, err
    assert b"\x1b" not in b"".join(read) + out
    if flags:
        assert json.loads(read[1])["gpu"][0]["memory_used_mib"] == 111
    else:
        assert sum(b" Tesla T4 " in line for line in read) == 2 and read[0] == read[3]
