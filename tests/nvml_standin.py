"""Machines with any GPUs, for tests without one: builds `nvml/standin.c` and shows it to child processes.

The stand-in is only ever the driver of a child that is started with `StandIn.environment()`. Loaded into
pytest itself it could not be unloaded again, and torch, asking it for calls it lacks, would stop at an
internal assertion in somebody else's test. For the same reason no training child may be given it.

    standin = StandIn(tmp_path)
    standin.show(Machine((t4(processes=((4711, 2048),)),)))
    seen = standin.ask(see, {4711})                       # a module-level function, run in the child
    subprocess.run([...], env=standin.environment())      # or any program
"""

import atexit
import functools
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

from driving import patience

TESTS = Path(__file__).resolve().parent
SONAME = "libnvidia-ml.so.1"
STATE = "KGOPS_NVML_STANDIN"
MIB = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")

Processes = tuple[tuple[int, int | None], ...]


@dataclass(frozen=True)
class Slice:
    place: int
    name: str
    uuid: str
    total_mib: int
    used_mib: int = 0
    processes: Processes = ()


@dataclass(frozen=True)
class Gpu:
    """A GPU as the stand-in shows it; None is "not supported". `fails` maps a call's name to its error."""

    name: str
    uuid: str
    capability: tuple[int, int]
    total_mib: int
    reserved_mib: int = 0
    used_mib: int = 0
    utilization: int | None = 0
    temperature: int | None = 40
    power_mw: int | None = 30_000
    limit_mw: int | None = 70_000
    processes: Processes = ()
    clients: Processes = ()  # of an MPS server
    drawing: Processes = ()
    busy: tuple[
        tuple[int, int], ...
    ] = ()  # PID and SM %; empty: the driver does not count; ((0, 0),): all idle
    lost: int = 0
    fails: dict[str, int] = field(default_factory=dict)
    mig: bool | None = None
    slices: tuple[Slice, ...] = ()
    multiprocessors: int | None = None  # what the stand-in for CUDA says besides
    context_mib: int | None = None


@dataclass(frozen=True)
class Machine:
    gpus: tuple[Gpu, ...] = ()
    init: int = 0
    driver: str | None = "570.86.15"
    cuda: int | None = 12080
    delay_ms: int = 0
    epoch: int = 0
    fails: dict[str, int] = field(default_factory=dict)


_TORCH = "__version__ = '2.11.0+cu128'\n"


def cuda_build(folder: Path) -> Path:
    """A folder for PYTHONPATH in which kgops finds a CUDA build of torch: enough to plan, nothing to compute with."""
    for name, text in (
        ("torch/__init__.py", _TORCH),
        ("torch/version.py", f"{_TORCH}cuda: Optional[str] = '12.8'\n"),
        (
            "torch-2.11.0+cu128.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu128\n",
        ),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def t4(uuid: str = "GPU-t4", used_mib: int = 0, processes: Processes = ()) -> Gpu:
    return Gpu("Tesla T4", uuid, (7, 5), 15360, 451, used_mib, processes=processes)


def a100(uuid: str = "GPU-a100", used_mib: int = 0, processes: Processes = ()) -> Gpu:
    gpu = Gpu("NVIDIA A100-SXM4-40GB", uuid, (8, 0), 40960, 633, used_mib, processes=processes, mig=False)
    return replace(gpu, limit_mw=400_000)


def h200(uuid: str = "GPU-h200", used_mib: int = 0, processes: Processes = ()) -> Gpu:
    gpu = Gpu("NVIDIA H200", uuid, (9, 0), 143771, 607, used_mib, processes=processes, mig=False)
    return replace(gpu, limit_mw=700_000)


def state_text(machine: Machine, log: Path | None = None) -> str:
    """The machine in the words of standin.c."""
    lines = [f"init {machine.init}", f"delay_ms {machine.delay_ms}", f"epoch {machine.epoch}"]
    lines += _given(("driver", machine.driver), ("cuda", machine.cuda), ("log", log))
    lines += _failures(machine.fails)
    for gpu in machine.gpus:
        lines += ["gpu", f"name {gpu.name}", f"uuid {gpu.uuid}", f"lost {gpu.lost}"]
        lines += [f"capability {gpu.capability[0]} {gpu.capability[1]}"]
        lines += [_memory(gpu.total_mib, gpu.reserved_mib, gpu.used_mib)]
        lines += _given(
            ("utilization", gpu.utilization),
            ("temperature", gpu.temperature),
            ("power", gpu.power_mw),
            ("limit", gpu.limit_mw),
            ("mig", None if gpu.mig is None else int(gpu.mig)),
            ("multiprocessors", gpu.multiprocessors),
            ("context", None if gpu.context_mib is None else gpu.context_mib * MIB),
        )
        lines += _processes(gpu.processes) + _processes(gpu.clients, "client")
        lines += _processes(gpu.drawing, "drawing") + [f"busy {pid} {percent}" for pid, percent in gpu.busy]
        lines += _failures(gpu.fails)
        for part in gpu.slices:
            lines += [f"slice {part.place}", f"name {part.name}", f"uuid {part.uuid}"]
            lines += [_memory(part.total_mib, 0, part.used_mib), *_processes(part.processes)]
    return "\n".join(lines) + "\n"


def _given(*pairs: tuple[str, object]) -> list[str]:
    return [f"{key} {value}" for key, value in pairs if value is not None]


def _failures(fails: dict[str, int]) -> list[str]:
    return [f"fail {call} {code}" for call, code in fails.items()]


def _memory(total_mib: int, reserved_mib: int, used_mib: int) -> str:
    free_mib = total_mib - reserved_mib - used_mib
    return f"memory {total_mib * MIB} {reserved_mib * MIB} {used_mib * MIB} {free_mib * MIB}"


def _processes(processes: Processes, kind: str = "process") -> list[str]:
    return [f"{kind} {pid} {'hidden' if mib is None else mib * MIB}" for pid, mib in processes]


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


@functools.cache
def library(*, old_driver: bool = False) -> Path:
    """The folder with the built library, once per session; skips the test where there is no compiler."""
    cc = compiler()
    if cc is None:
        import pytest  # not at the top: children import this module, and pytest is none of theirs

        pytest.skip("no C compiler (cc): the stand-in for NVIDIA's driver library cannot be built")
    folder = Path(tempfile.mkdtemp(prefix="kgops-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    command += ["-fvisibility=hidden", f"-Wl,-soname,{SONAME}", *(["-DOLD_DRIVER"] if old_driver else [])]
    command += ["-o", str(folder / SONAME), str(TESTS / "nvml" / "standin.c")]
    subprocess.run(command, check=True)
    return folder


class StandIn:
    """A driver whose GPUs a test decides, and may change at any moment with `show`."""

    def __init__(self, folder: Path, *, old_driver: bool = False) -> None:
        self._library = library(old_driver=old_driver)
        self._state = folder / "nvml-state"
        self._log = folder / "nvml-calls"

    def show(self, machine: Machine) -> None:
        # Replaced, not rewritten: a call in another process must never read half a machine.
        fresh = self._state.with_suffix(".new")
        fresh.write_text(state_text(machine, self._log), encoding="utf-8")
        os.replace(fresh, self._state)  # noqa: PTH105

    def environment(self) -> dict[str, str]:
        """For the child that shall see these GPUs, and for none that trains."""
        paths = [str(self._library), os.environ.get("LD_LIBRARY_PATH", "")]
        joined = os.pathsep.join(path for path in paths if path)
        return {**os.environ, "LD_LIBRARY_PATH": joined, STATE: str(self._state)}

    def variables(self) -> dict[str, str]:
        """Of that environment, what this process has not."""
        return {name: value for name, value in self.environment().items() if os.environ.get(name) != value}

    def calls(self) -> list[str]:
        """Every call that any process made so far: "name GPU answer"."""
        return self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []

    def ask(self, look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function of a test module returns in a fresh Python on this machine."""
        return ask_child(self.environment(), look, *args, **kwargs)


def broken_driver(folder: Path) -> dict[str, str]:
    """Hides the driver that this machine may have: the loader stops at the first file of the name."""
    (folder / SONAME).write_bytes(b"")
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def ask_child(environment: dict[str, str], look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    module_folder = str(Path(look.__code__.co_filename).parent)
    program = (
        "import pickle, sys\n"
        f"sys.path[:0] = {[str(TESTS.parent), str(TESTS), module_folder]!r}\n"
        f"from {look.__module__} import {look.__name__} as look\n"
        "args, kwargs = pickle.load(sys.stdin.buffer)\n"
        "pickle.dump(look(*args, **kwargs), sys.stdout.buffer)\n"
    )
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        input=pickle.dumps((args, kwargs)),
        capture_output=True,
        timeout=patience(),  # a guard against hanging; pytest has its own
    )
    assert child.returncode == 0, f"the child ended with {child.returncode}: {child.stderr.decode()}"
    return cast(T, pickle.loads(child.stdout))
