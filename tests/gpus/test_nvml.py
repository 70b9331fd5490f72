"""Promises of kgops/gpus, kept through the real nvidia-ml-py against the stand-in driver in tests/nvml."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from nvml_standin import Gpu, Machine, Slice, StandIn, a100, ask_child, broken_driver, h200, t4

from kgops.gpus.devices import is_wsl2
from kgops.gpus.nvml import Nvml, open_nvml
from kgops.gpus.processes import tree_memory_mib
from kgops.gpus.readings import GpuReading, NvmlProblem, ProcessReading


@dataclass(frozen=True)
class Seen:
    gpus: tuple[GpuReading, ...]
    driver: str | None
    cuda: tuple[int, int] | None
    tree: dict[str, int | None]


@contextmanager
def opened() -> Iterator[Nvml]:
    nvml = open_nvml()
    assert isinstance(nvml, Nvml), nvml
    with nvml:
        yield nvml


def see(*pids: int, host_pids: bool = True) -> Seen:
    with opened() as nvml:
        tree = tree_memory_mib(nvml.gpus(), set(pids), host_pids=host_pids)
        return Seen(nvml.gpus(), nvml.driver_version(), nvml.cuda_version(), tree)


# ---- GPUs ----


def test_a_t4_is_read_whole(standin: StandIn) -> None:
    gpu = replace(t4("GPU-5f6a", used_mib=2048, processes=((4711, 1900),)), utilization=37, temperature=61)
    standin.show(Machine((gpu,), driver="550.54.15", cuda=12040))
    seen = standin.ask(see)
    assert seen.driver == "550.54.15"
    assert seen.cuda == (12, 4)
    assert seen.gpus == (
        GpuReading(
            index=0,
            uuid="GPU-5f6a",
            name="Tesla T4",
            compute_capability=(7, 5),
            memory_total_mib=15360,
            memory_used_mib=2048,
            memory_free_mib=15360 - 451 - 2048,
            memory_reserved_mib=451,
            memory_accounting="v2",
            utilization_percent=37,
            temperature_c=61,
            power_w=30.0,
            power_limit_w=70.0,
            processes=(ProcessReading(4711, 1900),),
            mig_enabled=None,
            slices=(),
            problem=None,
        ),
    )


def test_two_gpus_keep_their_order_and_their_own_values(standin: StandIn) -> None:
    standin.show(Machine((a100(used_mib=1000), h200(used_mib=70_000))))
    first, second = standin.ask(see).gpus
    assert (first.index, first.name, first.compute_capability) == (0, "NVIDIA A100-SXM4-40GB", (8, 0))
    assert (second.index, second.name, second.compute_capability) == (1, "NVIDIA H200", (9, 0))
    assert (first.memory_total_mib, first.memory_used_mib) == (40960, 1000)
    assert (second.memory_total_mib, second.memory_used_mib) == (143771, 70_000)
    assert first.mig_enabled is False
    assert first.processes == second.processes == ()


ANSWERS = {
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetCudaComputeCapability": "compute_capability",
    "nvmlDeviceGetUtilizationRates": "utilization_percent",
    "nvmlDeviceGetPowerUsage": "power_w",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit_w",
    "nvmlDeviceGetComputeRunningProcesses_v3": "processes",
    "nvmlDeviceGetMigMode": "mig_enabled",
}


@pytest.mark.parametrize("code", [3, 4, 13, 999])
def test_whatever_the_driver_does_not_answer_is_none_and_the_rest_stands(standin: StandIn, code: int) -> None:
    partial = [replace(h200(used_mib=5), fails={call: code}) for call in ANSWERS]
    standin.show(Machine((h200(used_mib=5), *partial)))
    whole, *rest = (asdict(gpu) for gpu in standin.ask(see).gpus)
    for index, (gpu, missing) in enumerate(zip(rest, ANSWERS.values(), strict=True), start=1):
        assert gpu == {**whole, "index": index, missing: None}


def see_one(standin: StandIn, gpu: Gpu) -> GpuReading:
    standin.show(Machine((gpu,)))
    return standin.ask(see).gpus[0]


def test_without_v2_accounting_v1_is_used_and_said(standin: StandIn) -> None:
    gpu = replace(t4(used_mib=1000), fails={"nvmlDeviceGetMemoryInfo_v2": 3})
    read = see_one(standin, gpu)
    assert read.memory_accounting == "v1"
    assert read.memory_reserved_mib is None
    # v1 counts the driver's own 451 MiB as used.
    assert (read.memory_used_mib, read.memory_free_mib) == (1451, 15360 - 1451)


def test_an_old_driver_that_lacks_calls_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    standin = StandIn(tmp_path, old_driver=True)
    read = see_one(standin, replace(t4(used_mib=1000, processes=((1, 2),)), temperature=55))
    assert read.memory_accounting == "v1"
    assert read.temperature_c == 55
    assert read.processes is None
    assert read.problem is None


# ---- processes ----


def test_memory_of_a_tree_is_summed_per_gpu(standin: StandIn) -> None:
    first = t4("GPU-a", processes=((10, 100), (11, 50), (99, 4000)))
    second = t4("GPU-b", processes=((99, 7),))
    standin.show(Machine((first, second)))
    assert standin.ask(see, 10, 11, 12).tree == {"GPU-a": 150, "GPU-b": 0}


def test_hidden_process_memory_is_none_and_so_is_its_tree(standin: StandIn) -> None:
    standin.show(Machine((t4("GPU-a", processes=((10, 100), (11, None))), t4("GPU-b", processes=((10, 5),)))))
    seen = standin.ask(see, 10, 11)
    assert seen.gpus[0].processes == (ProcessReading(10, 100), ProcessReading(11, None))
    assert seen.tree == {"GPU-a": None, "GPU-b": 5}
    assert standin.ask(see, 10).tree == {"GPU-a": 100, "GPU-b": 5}


def test_in_a_container_an_unlisted_tree_is_unknown_not_zero(standin: StandIn) -> None:
    standin.show(Machine((t4("GPU-a", processes=((31337, 900),)), t4("GPU-b", processes=((10, 5),)))))
    assert standin.ask(see, 10, host_pids=False).tree == {"GPU-a": None, "GPU-b": 5}


def see_under(root: str) -> tuple[tuple[ProcessReading, ...] | None, bool]:
    nvml = open_nvml(root)
    assert isinstance(nvml, Nvml), nvml
    with nvml:
        return nvml.gpus()[0].processes, is_wsl2(root)


@pytest.mark.parametrize("sign", ["dev/dxg", "proc/version"])
def test_under_wsl2_an_empty_list_of_processes_is_unknown_and_others_stand(
    standin: StandIn, tmp_path: Path, sign: str
) -> None:
    windows, linux = tmp_path / "windows", tmp_path / "linux"
    for root, version in ((windows, "5.15.167.4-microsoft-standard-WSL2"), (linux, "6.8.0-45-generic")):
        (root / "proc").mkdir(parents=True)
        (root / "dev").mkdir()
        (root / "proc" / "version").write_text(
            f"Linux version {version if sign == 'proc/version' else 6} (gcc)"
        )
    if sign == "dev/dxg":
        (windows / sign).touch()
    standin.show(Machine((t4(used_mib=900),)))
    assert standin.ask(see_under, str(windows)) == (None, True)
    assert standin.ask(see_under, str(linux)) == ((), False)
    standin.show(Machine((t4(used_mib=900, processes=((10, None),)),)))
    assert standin.ask(see_under, str(windows)) == ((ProcessReading(10, None),), True)


def test_clients_of_an_mps_server_are_listed_as_such_and_counted_once(standin: StandIn) -> None:
    shared = replace(t4("GPU-a", processes=((50, 30), (10, 100))), clients=((10, 100), (11, 250)))
    standin.show(Machine((shared,)))
    seen = standin.ask(see, 10, 11)
    server, *clients = seen.gpus[0].processes or ()
    assert server == ProcessReading(50, 30)
    assert clients == [
        ProcessReading(10, 100, is_mps_client=True),
        ProcessReading(11, 250, is_mps_client=True),
    ]
    assert seen.tree == {"GPU-a": 350}


# ---- slices ----


def test_mig_slices_are_read_with_their_own_memory_and_processes(standin: StandIn) -> None:
    slices = (
        Slice(0, "NVIDIA H200 MIG 3g.71gb", "MIG-a", 71168, 5000, ((10, 4000),)),
        Slice(2, "NVIDIA H200 MIG 1g.18gb", "MIG-b", 16384, 700, ((11, 600),)),
    )
    # Without root the driver lists no processes for the GPU as a whole.
    refuses = {"nvmlDeviceGetComputeRunningProcesses_v3": 4, "nvmlDeviceGetUtilizationRates": 3}
    standin.show(Machine((replace(h200(), mig=True, slices=slices, fails=refuses), t4())))
    seen = standin.ask(see, 10, 11)
    gpu, other = seen.gpus
    assert gpu.mig_enabled is True
    assert gpu.utilization_percent is None
    assert [(part.index, part.uuid, part.name) for part in gpu.slices] == [
        (0, "MIG-a", "NVIDIA H200 MIG 3g.71gb"),
        (2, "MIG-b", "NVIDIA H200 MIG 1g.18gb"),
    ]
    assert [part.memory_total_mib for part in gpu.slices] == [71168, 16384]
    assert gpu.slices[1].processes == (ProcessReading(11, 600),)
    assert seen.tree == {"GPU-h200": 4600, "GPU-t4": 0}
    assert other.slices == ()


# ---- weight ----


def bare(environment: dict[str, str], program: str) -> subprocess.CompletedProcess[str]:
    """Run by a Python without site-packages."""
    root = Path(__file__).resolve().parents[2]
    begins = f"import sys; sys.path.append({str(root)!r})\n"
    command = [sys.executable, "-I", "-S", "-c", begins + program]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_nvml_loads_without_site_packages_and_pulls_in_nothing_heavy(tmp_path: Path) -> None:
    child = bare(
        broken_driver(tmp_path),
        "from kgops.gpus import nvml, processes, sampler\n"
        "nvml.open_nvml()\n"
        "heavy = {'pynvml', 'torch', 'numpy', 'psutil', 'subprocess', 'kgops.gpus.known'}\n"
        "found = heavy & set(sys.modules)\n"
        "sys.exit(f'loaded: {found}' if found else 0)\n",
    )
    assert child.returncode == 0, child.stderr


# ---- a driver or a GPU that does not answer ----


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has an NVIDIA driver")
def test_a_machine_without_a_driver_says_that_runs_use_the_cpu() -> None:
    found, modules = ask_child(dict(os.environ), problem_and_modules)
    assert found.kind == "no-library"
    assert "runs use the CPU" in found.hint
    assert "pynvml" not in modules


def problem_and_modules() -> tuple[NvmlProblem, set[str]]:
    found = open_nvml()
    assert isinstance(found, NvmlProblem)
    return found, set(sys.modules)


def test_a_gpu_lost_while_watching_keeps_its_uuid_and_comes_back(standin: StandIn) -> None:
    standin.show(Machine((t4("GPU-a"), t4("GPU-b"))))
    lost, tree, back = standin.ask(lost_and_back, standin)
    assert [gpu.uuid for gpu in lost] == ["GPU-a", "GPU-b"]
    assert lost[1].problem is not None
    assert lost[1].processes is None
    assert tree == {"GPU-a": 0, "GPU-b": None}
    assert [gpu.problem for gpu in back] == [None, None]
    assert back[1].memory_total_mib == 15360


def lost_and_back(
    standin: StandIn,
) -> tuple[tuple[GpuReading, ...], dict[str, int | None], tuple[GpuReading, ...]]:
    with opened() as nvml:
        nvml.gpus()
        standin.show(Machine((t4("GPU-a"), replace(t4("GPU-b"), lost=15))))
        lost = nvml.gpus()
        tree = tree_memory_mib(lost, {1}, host_pids=True)
        standin.show(Machine((t4("GPU-a"), t4("GPU-b"))))
        return lost, tree, nvml.gpus()


def test_a_gpu_that_was_reset_is_read_by_its_new_handle(standin: StandIn) -> None:
    standin.show(Machine((t4(),)))
    (gpu,) = standin.ask(reset, standin)
    assert gpu.problem is None
    assert gpu.memory_total_mib == 15360


def reset(standin: StandIn) -> tuple[GpuReading, ...]:
    with opened() as nvml:
        nvml.gpus()
        standin.show(Machine((replace(t4(), lost=16),)))
        assert [gpu.problem.kind for gpu in nvml.gpus() if gpu.problem] == ["reset-required"]
        standin.show(Machine((t4(),), epoch=1))
        return nvml.gpus()
