"""`--device cuda:N` means a run on GPU N, as `--gpu N` does: planned for it, reserved there and queued for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from driving import Console, Done
from gpu_machine import GpuMachine
from nvml_standin import a100, compiler, t4

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler for the stand-in driver")

TRAIN = ("train", "--dataset", "umls", "--embedding-dim", "800")  # 1,424 MiB on a T4
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


@pytest.fixture
def kgops(run_cli: Console, machine: GpuMachine) -> Callable[..., Done]:
    return lambda *words: run_cli(*words, env=machine.environment)


@pytest.mark.parametrize(
    ("number", "uuid", "title", "profile"),
    [(0, "GPU-t4", "Tesla T4", "t4"), (2, "GPU-b", "NVIDIA A100-SXM4-40GB", "a100-40")],
)
def test_a_numbered_device_is_planned_for_that_gpu_and_gets_it(
    kgops: Callable[..., Done], run_cli: Console, number: int, uuid: str, title: str, profile: str
) -> None:
    words = (*TRAIN, "--device", f"cuda:{number}")
    (plan,) = kgops("suggest", *words, "--json").json()
    assert (plan["gpu"], plan["on"], plan["profile"], plan["now"]) == (str(number), title, profile, "now")
    assert f"cuda:{number}" in plan["command"]
    run = run_cli.ended(int(kgops("run", *words, "--detach").out))  # its worker's torch is only to look at
    assert (run.gpu_request, run.gpu, run.profile) == (str(number), uuid, profile)
    shown = run_cli.show(run.id)
    assert shown["job"]["train"]["device"] == f"cuda:{number}"  # as it was asked
    assert (shown["plan"]["forecast"]["on"], shown["reserved_mib"]) == (title, run.reserved_mib)


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
    words = (*TRAIN, "--gpu", gpu, "--device", "cuda:0")
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
        refused = kgops("run", *TRAIN, *asked, "--device", "cpu", more)
        assert refused.code == 2, more
        assert f"{' '.join(asked)} reserves a GPU that --device cpu leaves unused" in refused.err
    assert kgops("runs", "--json").json() == []


@pytest.mark.parametrize(
    "asked", [("--gpu", "5"), ("--device", "cuda:5"), ("--gpu", "0:1"), ("--gpu", "h100")]
)
def test_a_gpu_that_is_not_here_is_refused_by_plan_and_run_alike(
    kgops: Callable[..., Done], asked: tuple[str, str]
) -> None:
    commands: list[tuple[str, ...]] = [("run", *TRAIN, *asked), ("run", *TRAIN, *asked, "--dry-run")]
    commands += [("suggest", *TRAIN, *asked)] if asked[1] != "h100" else []  # of another machine
    for command in commands:
        refused = kgops(*command)
        assert refused.code == 2, (command, refused.out)
        assert asked[1].removeprefix("cuda:") in refused.err
    assert kgops("runs", "--json").json() == []
