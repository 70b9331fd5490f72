"""`--device cuda:N` means a run on GPU N, as `--gpu N` does: planned for it, reserved there and queued for it."""

import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import Console, Done
from gpu_machine import LARGE, OTHERS, GpuMachine
from nvml_standin import a100, t4

PIPELINE = """workload = "pipeline"
[pipeline.train]
dataset = "nations"
device = "cuda:1"
[pipeline.tracin]
max_triples = 2
"""


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    """A T4 and two A100s, nobody on them."""
    return GpuMachine(tmp_path, t4(), a100("GPU-a"), a100("GPU-b"))


def test_a_numbered_device_waits_for_its_gpu_as_any_run_does(
    kgops: Callable[..., Done], machine: GpuMachine, run_cli: Console
) -> None:
    machine.show(t4(used_mib=14_100, processes=OTHERS), a100("GPU-a"), a100("GPU-b"))
    by = (("--device", "cuda:0"), ("--gpu", "0"))
    planned = [kgops("suggest", *LARGE, *words, "--json").json()[0] for words in by]
    assert [(plan["now"], plan["on"], plan["gpu"], plan["profile"]) for plan in planned] == [
        ("later", "Tesla T4", "0", "t4")
    ] * 2
    waits = "would wait now for 14,100 MiB that another user holds"
    assert waits in kgops("run", *LARGE, *by[0], "--dry-run").out
    rows = []
    for words in by:
        run = run_cli.row(int(kgops("run", *LARGE, *words, "--detach").out))
        rows.append((run.state, run.gpu_request, run.gpu, run.reserved_mib, run.reason))
    assert rows[0][:3] == ("queued", "0", None)
    assert rows[0][3] is not None and rows[0][4] == "14,100 MiB that another user holds, on GPU 0"
    assert rows[0][:4] == rows[1][:4]  # what it waits for is then the first of the two


@pytest.mark.parametrize(
    ("number", "uuid", "title", "profile"),
    [(0, "GPU-t4", "Tesla T4", "t4"), (2, "GPU-b", "NVIDIA A100-SXM4-40GB", "a100-40")],
)
def test_a_numbered_device_is_planned_for_that_gpu_and_gets_it(
    kgops: Callable[..., Done], run_cli: Console, number: int, uuid: str, title: str, profile: str
) -> None:
    words = (*LARGE, "--device", f"cuda:{number}")
    (plan,) = kgops("suggest", *words, "--json").json()
    assert (plan["gpu"], plan["on"], plan["profile"], plan["now"]) == (str(number), title, profile, "now")
    assert f"cuda:{number}" in plan["command"]
    run = run_cli.ended(int(kgops("run", *words, "--detach").out))  # its worker's torch is only to look at
    assert (run.gpu_request, run.gpu, run.profile) == (str(number), uuid, profile)
    shown = run_cli.show(run.id)
    assert shown["job"]["train"]["device"] == f"cuda:{number}"  # as it was asked
    assert (shown["plan"]["forecast"]["on"], shown["reserved_mib"]) == (title, run.reserved_mib)
    assert run.reserved_mib == pytest.approx(shown["predicted_mib"] * 1.1, abs=1)


def test_job_files_of_every_workload_reserve_the_gpu_they_number(
    kgops: Callable[..., Done], run_cli: Console, tmp_path: Path
) -> None:
    trained = tmp_path / "trained"
    trained.mkdir()
    (trained / "model_epoch_1.pt").touch()
    data = 'dataset = "nations"\ndevice = "cuda:1"\n'
    model = f'{data}model_path = "{trained / "model_epoch_1.pt"}"\n'
    files = {
        "pipeline": PIPELINE,
        "train": f'workload = "train"\n[train]\n{data}',
        "tracin": f'workload = "tracin"\n[tracin]\n{data}checkpoint_dir = "{trained}"\nlearning_rate = 0.1\n',
        "predict": f'workload = "predict"\n[predict]\n{model}head = "usa"\nrelation = "embassy"\n',
        "explain": f'workload = "explain"\n[explain]\n{model}triple = "usa embassy china"\n',
        "regress": 'workload = "regress"\n[regress]\ndata_directory = "."\ndevice = "cuda:1"\n',
    }
    got = {}
    for name, text in files.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        done = kgops("run", path, "--detach")
        assert done.code == 0, (name, done.err)
        run = run_cli.ended(int(done.out))
        got[name] = (run.gpu_request, run.gpu)
        (plan,) = kgops("suggest", path, "--json").json()
        assert plan["gpu"] == "1", name
    assert got == dict.fromkeys(files, ("1", "GPU-a"))


@pytest.mark.parametrize("gpu", ["1", "0,1", "all", "GPU-b", "a100-40", "auto:2"])
def test_two_flags_that_name_different_gpus_are_refused_by_plan_and_run(
    kgops: Callable[..., Done], gpu: str
) -> None:
    words = (*LARGE, "--gpu", gpu, "--device", "cuda:0")
    commands: list[tuple[str, ...]] = [("run", *words, "--detach"), ("run", *words, "--dry-run")]
    commands += [("suggest", *words)] if gpu != "all" else []
    for command in commands:
        refused = kgops(*command)
        assert refused.code == 2, command
        assert f"--gpu {gpu} and --device cuda:0 name different GPUs" in refused.err
        assert "Hint: name it once" in refused.err
    assert kgops("runs", "--json").json() == []


@pytest.mark.parametrize("asked", [("--gpu", "0"), ("--gpu", "auto"), ("--gpu-memory", "500")])
def test_a_gpu_that_the_device_would_leave_unused_is_refused(
    kgops: Callable[..., Done], asked: tuple[str, str]
) -> None:
    for more in ("--detach", "--dry-run"):
        refused = kgops("run", *LARGE, *asked, "--device", "cpu", more)
        assert refused.code == 2, more
        assert f"{' '.join(asked)} reserves a GPU that --device cpu leaves unused" in refused.err
    assert kgops("runs", "--json").json() == []


@pytest.mark.parametrize(
    "asked", [("--gpu", "5"), ("--device", "cuda:5"), ("--gpu", "0:1"), ("--gpu", "h100")]
)
def test_a_gpu_that_is_not_here_is_refused_by_plan_and_run_alike(
    kgops: Callable[..., Done], asked: tuple[str, str]
) -> None:
    commands: list[tuple[str, ...]] = [("run", *LARGE, *asked), ("run", *LARGE, *asked, "--dry-run")]
    commands += [("suggest", *LARGE, *asked)] if asked[1] != "h100" else []  # of another machine
    for command in commands:
        refused = kgops(*command)
        assert refused.code == 2, (command, refused.out)
        assert (asked[1].removeprefix("cuda:") if asked[1] != "h100" else "no GPU h100") in refused.err
    assert kgops("runs", "--json").json() == []


def test_the_stages_of_a_pipeline_run_on_one_device(kgops: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(f'{PIPELINE}device = "cuda:2"\n')
    refused = kgops("run", path, "--dry-run")
    assert refused.code == 2
    assert "both stages run on one device; found cuda:1 for train and cuda:2 for tracin" in refused.err
    path.write_text(PIPELINE.replace('device = "cuda:1"\n', "") + 'device = "cpu"\n')
    job = tomllib.loads(kgops("run", path, "--dry-run").out)
    assert {job["pipeline"][stage]["device"] for stage in ("train", "tracin")} == {"cpu"}


def test_a_worker_that_was_given_one_gpu_finds_it_by_any_number(machine: GpuMachine) -> None:
    assert machine.ask(device_found, "GPU-b") == "cuda"


def device_found(given: str) -> str:
    """In a child, whose torch says that it sees as many GPUs as were given."""
    import sys

    sys.path[:] = [path for path in sys.path if "torch-to-look-at" not in path]
    import torch

    from kgops.maths.train.worker import find_device

    os.environ["KGOPS_GPU"] = given
    many = given.count(",") + 1
    vars(torch.cuda).update(is_available=lambda: True, device_count=lambda: many)
    return str(find_device("cuda:1"))
