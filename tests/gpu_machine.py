"""A machine with GPUs, as the console sees one: the driver's stand-in, and a torch that says it was built for CUDA.

The console reads a torch's version from its files and never imports it, so files are all that this torch has. A worker
that was given it ends at once: what runs here is the planning, the queue and the record.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from nvml_standin import Gpu, Machine, StandIn, ask_child

LARGE = ("train", "--dataset", "umls", "--embedding-dim", "800")  # 1,424 MiB on a T4
TOO_LARGE = ("train", "--dataset", "umls", "--embedding-dim", "20000")
OTHERS = ((999_999_999, 14_100),)  # a process that nobody here can see
P = ParamSpec("P")
T = TypeVar("T")
_METADATA = "Metadata-Version: 2.1\nName: torch\nVersion: 2.12.1+cu128\n"


class GpuMachine:
    """Its environment is for a console; `show` changes the GPUs that every process sees."""

    def __init__(self, folder: Path, *gpus: Gpu) -> None:
        self._standin = StandIn(folder)
        self._packages = folder / "torch-to-look-at"
        about = self._packages / "torch-2.12.1+cu128.dist-info"
        for made in (self._packages / "torch", about):
            made.mkdir(parents=True)
        (about / "METADATA").write_text(_METADATA)
        (self._packages / "torch" / "__init__.py").write_text("raise ImportError('only to look at')\n")
        self.use_torch(cuda="12.8")
        self.show(*gpus)

    def use_torch(self, *, cuda: str | None) -> None:
        """None: the build for CPUs."""
        (self._packages / "torch" / "version.py").write_text(f"cuda = {cuda!r}\n")

    def show(self, *gpus: Gpu, driver: str = "570.86.15", cuda: int = 12080) -> None:
        self._standin.show(Machine(gpus, driver=driver, cuda=cuda))

    @property
    def environment(self) -> dict[str, str]:
        paths = [str(self._packages), os.environ.get("PYTHONPATH", "")]
        return {**self._standin.environment(), "PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    def ask(self, look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function of a test module returns in a fresh Python on this machine."""
        return ask_child(self.environment, look, *args, **kwargs)
