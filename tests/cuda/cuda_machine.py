"""Machines whose GPUs torch can use, without one: `python tests/cuda/cuda_machine.py t4 COMMAND` runs it on a Tesla T4.

The command sees the same GPUs through the driver library and through CUDA. Its Python must be that of the environment
that build_standin.py made (`.venv-cuda`), which is first in its PATH. KGOPS_CUDA_VALUES=0 leaves the results of kernels
out: much faster, and enough where no value is looked at.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from driving import Console
from nvml_standin import STATE, Gpu, Machine, Slice, a100, h200, library, state_text, t4

PROJECT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = PROJECT / ".venv-cuda"
CONTEXT_MIB = 250  # near what drivers take; kgops must learn it, and not know it
_DRIVER = "580.65.06"


def usable(gpu: Gpu, multiprocessors: int, uuid: str) -> Gpu:
    return replace(
        gpu,
        uuid=f"GPU-5ad0{uuid}-0000-4000-8000-000000000000",
        multiprocessors=multiprocessors,
        context_mib=CONTEXT_MIB,
    )


T4 = usable(t4(), 40, "0075")
SECOND_T4 = usable(t4(), 40, "1075")
A100 = usable(a100(), 108, "0080")
H200 = usable(h200(), 132, "0090")
SMALL = replace(T4, total_mib=1400, reserved_mib=100)
# A seventh of an H200, as the driver cuts it: 16 multiprocessors and 18 GB.
SLICE = Slice(0, "NVIDIA H200 MIG 1g.18gb", "MIG-5ad00090-0000-4000-8000-000000000001", 16384)
SLICED = replace(H200, mig=True, slices=(SLICE,), multiprocessors=16)

MACHINES = {
    "t4": (T4,),
    "a100": (A100,),
    "h200": (H200,),
    "two-t4": (T4, SECOND_T4),
    "mig": (SLICED,),
    "small": (SMALL,),
}


@dataclass(frozen=True)
class CudaMachine:
    """`folder` holds the state that every process of the machine reads; `show` changes it under their feet."""

    folder: Path
    gpus: tuple[Gpu, ...]

    def show(self, *gpus: Gpu, driver: str = _DRIVER, cuda: int = 13000) -> None:
        fresh = self.folder / "machine.new"
        fresh.write_text(state_text(Machine(gpus or self.gpus, driver=driver, cuda=cuda)), encoding="utf-8")
        fresh.replace(self.folder / "machine")

    def triton(self, log: Path) -> dict[str, str]:
        """With Triton, which compiles kernels for these GPUs. They are launched, and compute nothing."""
        (driver,) = (ENVIRONMENT / "lib").glob("python*/site-packages/**/libcuda.so.1")
        return {
            **self.environment(values=False, log=log),
            "PYTHONPATH": str(ENVIRONMENT / "triton"),
            "TRITON_LIBCUDA_PATH": str(driver.parent),
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
        }

    def environment(self, *, values: bool = True, log: Path | None = None) -> dict[str, str]:
        return {
            **os.environ,
            STATE: str(self.folder / "machine"),
            "LD_LIBRARY_PATH": os.pathsep.join(
                [str(library()), os.environ.get("LD_LIBRARY_PATH", "")]
            ).rstrip(os.pathsep),
            "PATH": os.pathsep.join([str(ENVIRONMENT / "bin"), os.environ["PATH"]]),
            "KGOPS_CUDA_VALUES": "1" if values else "0",
            **({"KGOPS_CUDA_LOG": str(log)} if log else {}),
        }


@dataclass(slots=True)
class GpuConsole(Console):
    """`kgops` with torch's CUDA build, on a machine whose GPUs a test decides."""

    machine: CudaMachine | None = None

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        assert self.machine is not None
        kept = super(GpuConsole, self).environment()
        given = {**self.machine.environment(), **(more or {})}
        return {**given, "KGOPS_HOME": kept["KGOPS_HOME"], "KGOPS_CUDA_VALUES": "1"}

    def argv(self, *args: str | Path) -> list[str]:
        return [str(ENVIRONMENT / "bin" / "python"), "-m", "kgops", *map(str, args)]


def shown(folder: Path, name: str) -> CudaMachine:
    """The machine with this name, which processes see from now on."""
    machine = CudaMachine(folder, MACHINES[name])
    machine.show()
    return machine


def machine_of_test(folder: Path, name: str) -> CudaMachine:
    """As `shown`; skips the test where there is no CUDA build of torch."""
    if not (ENVIRONMENT / "bin" / "python").exists():
        import pytest  # not at the top: this module also starts commands, for which pytest is nothing

        pytest.skip("requires torch's CUDA build: `make test-cuda` sets it up")
    return shown(folder, name)


@contextmanager
def consoles(folder: Path, home: Path) -> Iterator[Callable[[str], GpuConsole]]:
    """Consoles on the machines with these names."""
    opened: list[GpuConsole] = []

    def open_on(name: str) -> GpuConsole:
        state = folder / f"machine-{name}"
        state.mkdir()
        opened.append(GpuConsole(home, folder, machine=machine_of_test(state, name)))
        return opened[-1]

    yield open_on
    for console in opened:
        console.close()


def main(name: str, command: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="kgops-cuda-") as folder:
        values = os.environ.get("KGOPS_CUDA_VALUES") != "0"
        environment = shown(Path(folder), name).environment(values=values)
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
