"""Reads GPUs of this machine through NVML; None where the driver has no answer.

Standard library only until a driver library was found: on a machine without one, pynvml (6 MB, 25 ms)
is never imported. Indexes are NVML's, in PCI order: CUDA may count the same GPUs in another order and
CUDA_VISIBLE_DEVICES hides GPUs from CUDA only, so name a GPU to a child by its uuid.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kgops.gpus.devices import is_wsl2
from kgops.gpus.readings import (
    GONE,
    LIBRARY,
    GpuReading,
    NvmlProblem,
    ProcessReading,
    SliceReading,
    library_problem,
    problem_of,
)

_POWER_LIMIT_EVERY_S = 10.0


class ReadingAbandoned(Exception):
    """A reading was left half-way because another thread called `Nvml.abandon()`."""


def open_nvml(root: str = "/") -> Nvml | NvmlProblem:
    """NVML ready to be read, or what is in the way. Takes as long as the driver does: seconds, at worst. `root`: of
    the file system that says whether this is WSL2."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return library_problem(str(error))
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
        return problem_of(pynvml, error)
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        return problem_of(pynvml, error)
    return Nvml(pynvml, count, lists_all=not is_wsl2(root))


@dataclass(frozen=True, slots=True)
class _Identity:
    """Handle and names of a GPU, which never change."""

    handle: Any
    uuid: str | None
    name: str | None
    compute_capability: tuple[int, int] | None
    may_have_slices: bool


class _GpuGone(Exception):
    def __init__(self, problem: NvmlProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Nvml:
    """The opened driver. Made by `open_nvml()`; close it, or use it in a `with`."""

    def __init__(self, pynvml: Any, count: int, *, lists_all: bool = True) -> None:
        """`lists_all`: whether processes that the driver does not list are not there."""
        self._pynvml = pynvml
        self._lists_all = lists_all
        self._count = count  # lost ones included
        self._identities: dict[int, _Identity] = {}
        self._uuids: dict[int, str] = {}
        self._power_limits: dict[int, tuple[float, int | None]] = {}
        self._open = True
        self._abandoned = False

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the driver back. Never while another thread is reading: see `GpuSampler`."""
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

    def driver_version(self) -> str | None:
        version = self._ask_system(self._pynvml.nvmlSystemGetDriverVersion)
        return None if version is None else str(version)

    def cuda_version(self) -> tuple[int, int] | None:
        """The newest CUDA this driver can run, not the one torch was built with."""
        version = self._ask_system(self._pynvml.nvmlSystemGetCudaDriverVersion)
        return None if version is None else (version // 1000, version % 1000 // 10)

    def gpus(self, *, for_people: bool = False) -> tuple[GpuReading, ...]:
        """Every GPU, read now. A lost GPU is one reading with a `problem`; the others stay whole.

        `for_people`: also the processes that draw, and how busy each process keeps the GPU. A supervisor reads
        every second and needs neither.
        """
        return tuple(self._gpu(index, for_people) for index in range(self._count))

    def _gpu(self, index: int, for_people: bool) -> GpuReading:
        try:
            identity = self._identities.get(index) or self._identify(index)
            return self._read(index, identity, for_people)
        except _GpuGone as gone:
            # A GPU that comes back may have another handle: meet it anew.
            self._identities.pop(index, None)
            return GpuReading(index, self._uuids.get(index), problem=gone.problem)

    def _identify(self, index: int) -> _Identity:
        pynvml = self._pynvml
        try:
            self._check()
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            raise _GpuGone(problem_of(pynvml, error)) from None
        uuid, name = self._names(handle)
        if uuid is not None:
            self._uuids[index] = uuid
        capability = self._ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        # Only GPUs with MIG answer this at all, and the answer can change while we watch.
        may_have_slices = self._ask(pynvml.nvmlDeviceGetMigMode, handle) is not None
        identity = _Identity(handle, uuid, name, capability, may_have_slices)
        self._identities[index] = identity
        return identity

    def _read(self, index: int, identity: _Identity, for_people: bool) -> GpuReading:
        pynvml, handle = self._pynvml, identity.handle
        # Before the GPU's memory: what a run takes in between then counts as another's, never as room.
        processes = self._processes(handle, for_people)
        memory = self._memory(handle)
        rates = self._ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power_mw = self._ask(pynvml.nvmlDeviceGetPowerUsage, handle)
        limit_mw = self._power_limit_mw(index, handle)
        mode = self._ask(pynvml.nvmlDeviceGetMigMode, handle) if identity.may_have_slices else None
        mig_enabled = None if mode is None else mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        return GpuReading(
            index=index,
            uuid=identity.uuid,
            name=identity.name,
            compute_capability=identity.compute_capability,
            **memory,
            utilization_percent=None if rates is None else int(rates.gpu),
            temperature_c=self._temperature(handle),
            power_w=None if power_mw is None else power_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            processes=processes,
            mig_enabled=mig_enabled,
            slices=tuple(self._slices(handle, for_people)) if mig_enabled else (),
        )

    def _slices(self, gpu: Any, for_people: bool) -> Iterator[SliceReading]:
        pynvml = self._pynvml
        slots = self._ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
        for slot in range(slots):
            handle = self._ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, slot)
            if handle is None:
                continue  # a place that no slice was made in
            processes, memory = self._processes(handle, for_people), self._memory(handle)
            yield SliceReading(slot, *self._names(handle), **memory, processes=processes)

    def _names(self, handle: Any) -> tuple[str | None, str | None]:
        """UUID and name of a GPU or slice."""
        pynvml = self._pynvml
        return self._ask(pynvml.nvmlDeviceGetUUID, handle), self._ask(pynvml.nvmlDeviceGetName, handle)

    def _memory(self, handle: Any) -> dict[str, Any]:
        """Of a GPU or slice, by the names of a reading."""
        pynvml = self._pynvml
        # v1 counts what the driver keeps for itself as used, 450 MiB on a T4: ask it only for want of v2.
        v2 = self._ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        info = v2 or self._ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        if info is None:
            return {}
        names = ("total", "used", "free", "reserved") if v2 is not None else ("total", "used", "free")
        sizes = {f"memory_{name}_mib": getattr(info, name) >> 20 for name in names}
        return {**sizes, "memory_accounting": "v1" if v2 is None else "v2"}

    def _power_limit_mw(self, index: int, handle: Any) -> int | None:
        """Somebody sets it now and then: no reason to ask every second."""
        now = time.monotonic()
        asked_at, limit_mw = self._power_limits.get(index, (None, None))
        if asked_at is None or now - asked_at >= _POWER_LIMIT_EVERY_S:
            limit_mw = self._ask(self._pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
            self._power_limits[index] = now, limit_mw
        return limit_mw

    def _temperature(self, handle: Any) -> int | None:
        pynvml = self._pynvml
        # CUDA 14 removes the old call, drivers before 570 lack the new one, and so does nvidia-ml-py 12.560.
        for function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
            call = getattr(pynvml, function, None)
            degrees = None if call is None else self._ask(call, handle, pynvml.NVML_TEMPERATURE_GPU)
            if degrees is not None:
                return int(degrees)
        return None

    def _processes(self, handle: Any, for_people: bool) -> tuple[ProcessReading, ...] | None:
        listed = self._list("nvmlDeviceGetComputeRunningProcesses_v3", handle)
        if listed is None or (not listed and not self._lists_all):
            return None
        # nvidia-smi's type M+C: clients of an MPS server, which is itself among the processes above.
        clients = self._list("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle) or []
        known = {one.pid for one in clients}
        found = [one for one in listed if one.pid not in known]
        found += [one._replace(is_mps_client=True) for one in clients]
        if not for_people:
            return tuple(found)
        known |= {one.pid for one in listed}
        drawing = self._list("nvmlDeviceGetGraphicsRunningProcesses_v3", handle) or []
        found += [one for one in drawing if one.pid not in known]
        busy = self._sm_percents(handle) if found else None
        if busy is None:
            return tuple(found)
        return tuple(one._replace(sm_percent=busy.get(one.pid, 0)) for one in found)

    def _list(self, call: str, handle: Any) -> list[ProcessReading] | None:
        listed = self._ask(getattr(self._pynvml, call), handle)
        if listed is None:
            return None
        return [
            ProcessReading(one.pid, None if one.usedGpuMemory is None else one.usedGpuMemory >> 20)
            for one in listed
        ]

    def _sm_percents(self, handle: Any) -> dict[int, int] | None:
        """By PID, the newest sample of the last second; a process without one was idle. None: not counted."""
        pynvml = self._pynvml
        since_us = time.time_ns() // 1000 - 1_000_000
        self._check()
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except pynvml.NVMLError as error:
            # nvidia-ml-py raises "success", too, where the driver has no sample at all.
            if error.value in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND):
                return {}
            if error.value in GONE:
                raise _GpuGone(problem_of(pynvml, error)) from None
            return None
        return {sample.pid: int(sample.smUtil) for sample in sorted(samples, key=lambda one: one.timeStamp)}

    def _check(self) -> None:
        if not self._open:
            raise RuntimeError("NVML was closed; open it again to read GPUs.")
        if self._abandoned:
            raise ReadingAbandoned

    def _ask_system(self, call: Callable[[], Any]) -> Any:
        try:
            return self._ask(call)
        except _GpuGone:
            return None  # of the whole driver there is no GPU to blame

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The driver's answer; None where it has none; `_GpuGone` where no call will answer any more."""
        self._check()
        try:
            return call(*arguments)
        except self._pynvml.NVMLError as error:
            if error.value in GONE:
                raise _GpuGone(problem_of(self._pynvml, error)) from None
            return None
        except self._pynvml.NVMLLibraryMismatchError:
            return None  # pynvml's word for a call that this driver is too old to have
