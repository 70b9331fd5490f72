"""What the NVIDIA driver says of the cards of this machine; None wherever it has no answer.

Standard library only until a driver library was found: on a machine without one, pynvml (6 MB, 25 ms)
is never imported. Indexes are NVML's, in PCI order: CUDA may count the same cards in another order and
CUDA_VISIBLE_DEVICES hides cards from CUDA only, so name a card to a child by its uuid.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

__all__ = [
    "CardReading",
    "CardSampler",
    "Nvml",
    "NvmlProblem",
    "ProcessReading",
    "ReadingAbandoned",
    "SliceReading",
    "Snapshot",
    "open_nvml",
    "sees_host_pids",
    "tree_memory_mib",
]

LIBRARY = "libnvidia-ml.so.1"

ProblemKind = Literal[
    "no-library",
    "library-unusable",
    "no-pynvml",
    "driver-not-loaded",
    "no-permission",
    "version-mismatch",
    "gpu-lost",
    "reset-required",
    "other",
]


@dataclass(frozen=True, slots=True)
class NvmlProblem:
    """Why a machine, or one card of it, cannot be read, and what to do about it."""

    kind: ProblemKind
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class ProcessReading:
    pid: int
    used_mib: int | None  # None: the driver lists the process and hides its memory


@dataclass(frozen=True, slots=True)
class SliceReading:
    """One MIG device: a place of its own to run, named to CUDA by its uuid."""

    index: int
    uuid: str | None
    name: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    memory_free_mib: int | None
    memory_reserved_mib: int | None
    memory_accounting: Literal["v2", "v1"] | None
    processes: tuple[ProcessReading, ...] | None


@dataclass(frozen=True, slots=True)
class CardReading:
    """One card at one moment. `problem` is set when the card as a whole does not answer.

    `memory_accounting` says how used and free were counted: "v2" keeps the driver's reserve apart, "v1"
    (older drivers) counts it as used, and then `memory_reserved_mib` is None.
    """

    index: int
    uuid: str | None
    name: str | None
    compute_capability: tuple[int, int] | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    memory_free_mib: int | None
    memory_reserved_mib: int | None
    memory_accounting: Literal["v2", "v1"] | None
    utilization_percent: int | None
    temperature_c: int | None
    power_w: float | None
    power_limit_w: float | None
    processes: tuple[ProcessReading, ...] | None
    mig_enabled: bool | None
    slices: tuple[SliceReading, ...]
    problem: NvmlProblem | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All cards as one sampling round found them, or the problem that kept NVML from opening."""

    number: int
    taken_at: float
    took_s: float
    cards: tuple[CardReading, ...]
    driver_version: str | None
    cuda_version: tuple[int, int] | None
    problem: NvmlProblem | None


class ReadingAbandoned(Exception):
    """A reading was left half-way because another thread called `Nvml.abandon()`."""


# NVML's own codes, written out: pynvml is not imported where there is no driver.
_UNINITIALIZED, _NO_PERMISSION, _DRIVER_NOT_LOADED = 1, 4, 9
_GPU_LOST, _RESET_REQUIRED, _VERSION_MISMATCH = 15, 16, 18

# After one of these every further call to the card gives the same answer: stop asking it.
_GONE = (_UNINITIALIZED, _DRIVER_NOT_LOADED, _GPU_LOST, _RESET_REQUIRED)

_PROBLEMS: dict[int, NvmlProblem] = {
    _DRIVER_NOT_LOADED: NvmlProblem(
        "driver-not-loaded",
        "the NVIDIA driver's library is installed, but its kernel module is not loaded (NVML error 9).",
        "try `sudo modprobe nvidia`, then `nvidia-smi`; after an update of the system, reboot. "
        "In a container, start it with the cards (`--gpus all`).",
    ),
    _NO_PERMISSION: NvmlProblem(
        "no-permission",
        "the NVIDIA driver does not let this user read it (NVML error 4).",
        "look at `ls -l /dev/nvidia*` and ask for the group that owns them; "
        "in a container or a Slurm job, ask for the card when starting it.",
    ),
    _VERSION_MISMATCH: NvmlProblem(
        "version-mismatch",
        "the NVIDIA library and the kernel module are of different versions (NVML error 18); "
        "the driver was updated while the old one was loaded.",
        "reboot, or stop every program on the cards and reload the module "
        "(`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`).",
    ),
    _GPU_LOST: NvmlProblem(
        "gpu-lost",
        "the GPU has fallen off the bus (NVML error 15).",
        "look for `Xid` in `sudo dmesg`; the card comes back after a reset or, mostly, a reboot. "
        "If it happens again, check its power, cooling and slot.",
    ),
    _RESET_REQUIRED: NvmlProblem(
        "reset-required",
        "the GPU needs a reset before it can be used again (NVML error 16).",
        "stop every program on it, then `sudo nvidia-smi --gpu-reset -i N`, or reboot.",
    ),
}


def open_nvml() -> Nvml | NvmlProblem:
    """NVML ready to be read, or what is in the way. Takes as long as the driver does: seconds, at worst."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return _library_problem(str(error))
    try:
        import pynvml
    except ImportError as error:
        return NvmlProblem(
            "no-pynvml",
            f"an NVIDIA driver is installed, but nvidia-ml-py cannot be imported: {error}.",
            "install kgops with its dependencies: `pip install nvidia-ml-py`.",
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _problem(pynvml, error)
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        return _problem(pynvml, error)
    return Nvml(pynvml, count)


def _library_problem(loader_says: str) -> NvmlProblem:
    if "No such file" in loader_says:
        return NvmlProblem(
            "no-library",
            f"there is no NVIDIA driver on this machine ({LIBRARY} was not found).",
            "runs use the CPU; to use a card, install the NVIDIA driver, "
            "or start the container with the cards (`--gpus all`).",
        )
    return NvmlProblem(
        "library-unusable",
        f"the NVIDIA driver's library cannot be loaded: {loader_says}.",
        "reinstall the driver for this machine's architecture.",
    )


def _problem(pynvml: Any, error: Any) -> NvmlProblem:
    code = int(error.value)
    if code == _VERSION_MISMATCH and (loaded := _kernel_module_version()):
        return replace(_PROBLEMS[code], message=f"{_PROBLEMS[code].message} The kernel has {loaded}.")
    if code in _PROBLEMS:
        return _PROBLEMS[code]
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return _library_problem(str(error))
    return NvmlProblem(
        "other",
        f"the NVIDIA driver answers: {error} (NVML error {code}).",
        "see whether `nvidia-smi` works; `sudo dmesg` may say more.",
    )


def _kernel_module_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            words = lines.readline().split()
    except OSError:
        return None
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …": the words before vary by flavour.
    return next((word for word in words if word[0].isdigit() and "." in word), None)


def sees_host_pids() -> bool:
    """Whether this process counts processes as the driver does: False inside a container of its own PIDs."""
    try:
        # The kernel's first PID namespace has this fixed inode (PROC_PID_INIT_INO).
        return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"  # noqa: PTH115
    except OSError:
        return False


def tree_memory_mib(
    cards: Iterable[CardReading], pids: Collection[int], *, host_pids: bool | None = None
) -> dict[str, int | None]:
    """Memory that the processes `pids` hold on each card, by the card's uuid; None where it is hidden.

    A tree that no card lists holds 0, except in a container: there the driver speaks of other PIDs or of
    none, an unlisted tree says nothing, and the answer is None. The slices of a card count for the card.
    """
    same_pids = sees_host_pids() if host_pids is None else host_pids
    found: dict[str, int | None] = {}
    for card in cards:
        if card.uuid is not None:
            found[card.uuid] = _tree_on_card(_all_processes(card), pids, same_pids)
    return found


def _all_processes(card: CardReading) -> tuple[ProcessReading, ...] | None:
    """A card's processes; with MIG, those of its slices, since the card itself answers only to root."""
    if not card.slices:
        return card.processes
    joined: list[ProcessReading] = []
    for part in card.slices:
        if part.processes is None:
            return card.processes
        joined.extend(part.processes)
    return tuple(joined)


def _tree_on_card(
    processes: tuple[ProcessReading, ...] | None, pids: Collection[int], same_pids: bool
) -> int | None:
    if processes is None:
        return None
    held = [process.used_mib for process in processes if process.pid in pids]
    if not held:
        return 0 if same_pids else None
    total = 0
    for used_mib in held:
        if used_mib is None:
            return None
        total += used_mib
    return total


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What a card keeps for life, asked once: its handle and names."""

    handle: Any
    uuid: str | None
    name: str | None
    compute_capability: tuple[int, int] | None
    may_have_slices: bool


@dataclass(frozen=True, slots=True)
class _Memory:
    total_mib: int | None = None
    used_mib: int | None = None
    free_mib: int | None = None
    reserved_mib: int | None = None
    accounting: Literal["v2", "v1"] | None = None


class _CardGone(Exception):
    def __init__(self, problem: NvmlProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Nvml:
    """The opened driver. Made by `open_nvml()`; close it, or use it in a `with`."""

    def __init__(self, pynvml: Any, count: int) -> None:
        self._pynvml = pynvml
        self._count = count
        self._fixed: dict[int, _Fixed] = {}
        self._uuids: dict[int, str] = {}
        self._open = True
        self._abandoned = False

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the driver back. Never while another thread is reading: see `CardSampler`."""
        if not self._open:
            return
        self._open = False
        try:
            self._pynvml.nvmlShutdown()
        except self._pynvml.NVMLError:
            pass  # the driver went first; there is nothing left to give back

    def abandon(self) -> None:
        """Makes a reading in another thread end before its next driver call, with `ReadingAbandoned`."""
        self._abandoned = True

    @property
    def count(self) -> int:
        """Cards the driver found when it was opened, lost ones included."""
        return self._count

    def driver_version(self) -> str | None:
        said = self._ask_system(self._pynvml.nvmlSystemGetDriverVersion)
        return None if said is None else str(said)

    def cuda_version(self) -> tuple[int, int] | None:
        """The newest CUDA this driver can run, not the one torch was built with."""
        said = self._ask_system(self._pynvml.nvmlSystemGetCudaDriverVersion)
        return None if said is None else (said // 1000, said % 1000 // 10)

    def cards(self) -> tuple[CardReading, ...]:
        """Every card, read now. A lost card is one reading with a `problem`; the others stay whole."""
        return tuple(self._card(index) for index in range(self._count))

    def tree_memory_mib(
        self, pids: Collection[int], *, host_pids: bool | None = None
    ) -> dict[str, int | None]:
        """`tree_memory_mib()` over the cards as they are now."""
        return tree_memory_mib(self.cards(), pids, host_pids=host_pids)

    def _card(self, index: int) -> CardReading:
        try:
            fixed = self._fixed.get(index) or self._meet(index)
            return self._read(index, fixed)
        except _CardGone as gone:
            # A card that comes back may have another handle: meet it anew.
            self._fixed.pop(index, None)
            return _silent(index, self._uuids.get(index), gone.problem)

    def _meet(self, index: int) -> _Fixed:
        pynvml = self._pynvml
        try:
            self._check()
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            raise _CardGone(_problem(pynvml, error)) from None
        uuid, name = self._uuid(handle), self._name(handle)
        if uuid is not None:
            self._uuids[index] = uuid
        capability = self._ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        # Only cards with MIG answer this at all, and the answer can change while we watch.
        may_have_slices = self._ask(pynvml.nvmlDeviceGetMigMode, handle) is not None
        fixed = _Fixed(handle, uuid, name, capability, may_have_slices)
        self._fixed[index] = fixed
        return fixed

    def _read(self, index: int, fixed: _Fixed) -> CardReading:
        pynvml, handle = self._pynvml, fixed.handle
        memory = self._memory(handle)
        rates = self._ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power_mw = self._ask(pynvml.nvmlDeviceGetPowerUsage, handle)
        limit_mw = self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        mode = self._ask(pynvml.nvmlDeviceGetMigMode, handle) if fixed.may_have_slices else None
        mig_enabled = None if mode is None else mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        return CardReading(
            index=index,
            uuid=fixed.uuid,
            name=fixed.name,
            compute_capability=fixed.compute_capability,
            memory_total_mib=memory.total_mib,
            memory_used_mib=memory.used_mib,
            memory_free_mib=memory.free_mib,
            memory_reserved_mib=memory.reserved_mib,
            memory_accounting=memory.accounting,
            utilization_percent=None if rates is None else int(rates.gpu),
            temperature_c=self._temperature(handle),
            power_w=None if power_mw is None else power_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            processes=self._processes(handle),
            mig_enabled=mig_enabled,
            slices=tuple(self._slices(handle)) if mig_enabled else (),
            problem=None,
        )

    def _slices(self, card: Any) -> Iterator[SliceReading]:
        pynvml = self._pynvml
        places = self._ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0
        for place in range(places):
            handle = self._ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, place)
            if handle is None:
                continue  # a place that no slice was made in
            memory = self._memory(handle)
            yield SliceReading(
                index=place,
                uuid=self._uuid(handle),
                name=self._name(handle),
                memory_total_mib=memory.total_mib,
                memory_used_mib=memory.used_mib,
                memory_free_mib=memory.free_mib,
                memory_reserved_mib=memory.reserved_mib,
                memory_accounting=memory.accounting,
                processes=self._processes(handle),
            )

    def _uuid(self, handle: Any) -> str | None:
        said = self._ask(self._pynvml.nvmlDeviceGetUUID, handle)
        return None if said is None else str(said)

    def _name(self, handle: Any) -> str | None:
        said = self._ask(self._pynvml.nvmlDeviceGetName, handle)
        return None if said is None else str(said)

    def _memory(self, handle: Any) -> _Memory:
        pynvml = self._pynvml
        # v1 counts what the driver keeps for itself as used, 450 MiB on a T4: ask it only for want of v2.
        v2 = self._ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        if v2 is not None:
            return _Memory(v2.total >> 20, v2.used >> 20, v2.free >> 20, v2.reserved >> 20, "v2")
        v1 = self._ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        if v1 is not None:
            return _Memory(v1.total >> 20, v1.used >> 20, v1.free >> 20, None, "v1")
        return _Memory()

    def _temperature(self, handle: Any) -> int | None:
        pynvml = self._pynvml
        # CUDA 14 removes the old call, drivers before 570 lack the new one, and so does nvidia-ml-py 12.560.
        for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
            call = getattr(pynvml, name, None)
            said = None if call is None else self._ask(call, handle, pynvml.NVML_TEMPERATURE_GPU)
            if said is not None:
                return int(said)
        return None

    def _processes(self, handle: Any) -> tuple[ProcessReading, ...] | None:
        listed = self._ask(self._pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if listed is None:
            return None
        return tuple(
            ProcessReading(entry.pid, None if entry.usedGpuMemory is None else entry.usedGpuMemory >> 20)
            for entry in listed
        )

    def _check(self) -> None:
        if not self._open:
            raise RuntimeError("NVML was closed; open it again to read cards.")
        if self._abandoned:
            raise ReadingAbandoned

    def _ask_system(self, call: Callable[[], Any]) -> Any:
        try:
            return self._ask(call)
        except _CardGone:
            return None  # of the whole driver there is no card to blame

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The driver's answer; None where it has none; `_CardGone` where no call will answer any more."""
        self._check()
        try:
            return call(*arguments)
        except self._pynvml.NVMLError as error:
            if error.value in _GONE:
                raise _CardGone(_problem(self._pynvml, error)) from None
            return None
        except self._pynvml.NVMLLibraryMismatchError:
            return None  # pynvml's word for a call that this driver is too old to have


def _silent(index: int, uuid: str | None, problem: NvmlProblem) -> CardReading:
    return CardReading(
        index=index,
        uuid=uuid,
        name=None,
        compute_capability=None,
        memory_total_mib=None,
        memory_used_mib=None,
        memory_free_mib=None,
        memory_reserved_mib=None,
        memory_accounting=None,
        utilization_percent=None,
        temperature_c=None,
        power_w=None,
        power_limit_w=None,
        processes=None,
        mig_enabled=None,
        slices=(),
        problem=problem,
    )


class CardSampler:
    """Reads the cards in a thread of its own, so that nobody ever waits for a driver.

    The thread opens NVML, reads, and shuts NVML down itself: no call can be under way at the shutdown,
    however slow the driver is.
    """

    # A driver that could not be opened may be loaded later; asking again costs a failed dlopen.
    retry_s = 10.0

    def __init__(
        self, interval_s: float = 1.0, *, opener: Callable[[], Nvml | NvmlProblem] = open_nvml
    ) -> None:
        self._interval_s = interval_s
        self._opener = opener
        self._newest: Snapshot | None = None
        self._nvml: Nvml | None = None
        self._stopping = threading.Event()
        # A daemon, since a driver that hangs for good must not keep the program from ending.
        self._thread = threading.Thread(target=self._sample, name="kgops-cards", daemon=True)

    def __enter__(self) -> CardSampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def newest(self) -> Snapshot | None:
        """The last complete round, at once; None until the first one is there."""
        return self._newest

    def stop(self, timeout_s: float = 2.0) -> bool:
        """Waits for the driver call under way, no longer than asked; True once the thread has ended."""
        self._stopping.set()
        if (nvml := self._nvml) is not None:
            nvml.abandon()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _sample(self) -> None:
        number = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            opened = self._opener()
            if isinstance(opened, Nvml):
                with opened:
                    self._rounds(opened, number)
                return
            number += 1
            took_s = time.monotonic() - started
            self._newest = Snapshot(number, time.time(), took_s, (), None, None, opened)
            self._stopping.wait(max(self.retry_s, self._interval_s))

    def _rounds(self, nvml: Nvml, number: int) -> None:
        self._nvml = nvml
        try:
            driver = cuda = None
            while not self._stopping.is_set():
                started = time.monotonic()
                cards = nvml.cards()
                if driver is None:
                    driver, cuda = nvml.driver_version(), nvml.cuda_version()
                took_s = time.monotonic() - started
                number += 1
                self._newest = Snapshot(number, time.time(), took_s, cards, driver, cuda, None)
                # A driver slower than the interval gets a rest between rounds all the same.
                self._stopping.wait(max(self._interval_s - took_s, min(took_s, self._interval_s)))
        except ReadingAbandoned:
            pass  # stop() asked for it; what was read so far is no complete round
