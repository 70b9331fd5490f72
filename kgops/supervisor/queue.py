"""Queue without a daemon: any kgops command starts the runs that fit. GPUs are reserved by predicted memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from kgops.errors import Unavailable
from kgops.jobs.run_options import WantedGpus
from kgops.settings import Home
from kgops.supervisor.gpu_room import READS_WITHIN_S, GpuNow, have, holders, names_of, read_gpus, room_on
from kgops.supervisor.ownership import take_over
from kgops.supervisor.plan_file import needs_of, plans_by_gpu, take_plan
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.spawn import start_supervisor
from storage import runs
from storage.database import Connection, transaction
from storage.runs import Run

Needs = Mapping[str, int | None]  # MiB to reserve, by GPU UUID; None: the GPU exclusively
CPU = "cpu"  # what a run without a GPU request takes


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a waiting run gets: GPUs by UUID (`cpu` for none), or what it waits for."""

    gpu: str | None  # several as in "UUID,UUID"
    waits_for: str | None = None
    wants: frozenset[str] = frozenset()
    left_mib: float | None = None  # free on the fullest of its GPUs


def dispatch(home: Home, conn: Connection, *, gpus_within_s: float = READS_WITHIN_S) -> list[int]:
    """Starts every waiting run that fits, oldest first; returns the numbers of the started runs.

    Safe for concurrent processes: none starts a run twice. `gpus_within_s`: how long it waits for the driver.
    """
    waiting = runs.in_states(conn, runs.WAITING)
    wants_gpu = any(run.gpu_request is not None for run in waiting)
    gpus = read_gpus(home, conn, limit_s=gpus_within_s) if wants_gpu else ()
    started: list[int] = []
    wanted_earlier: dict[str, int] = {}
    for run in waiting:
        folder = RunFolder(home.runs / run.folder)
        # Before the claim, so that a claimed run whose lock is free is one whose supervisor died.
        lock = _lock(home, conn, run, folder)
        if lock is None:
            continue
        is_ours = True
        try:
            allocation = _claim(conn, run, gpus, wanted_earlier)
            if allocation is not None and allocation.gpu is not None:
                start_supervisor(home, run.id, folder, lock)
                is_ours = False
                started.append(run.id)
        except Unavailable as error:  # it stays queued: the next command tries again
            runs.set_state(conn, run.id, "queued", error.message)
            break
        finally:
            if is_ours:  # also after a database error: a lock never released would block the run for ever
                os.close(lock)
        if allocation is not None and allocation.gpu is None:
            wanted_earlier = dict.fromkeys(allocation.wants, run.id) | wanted_earlier
            if allocation.waits_for != run.reason:
                runs.set_reason(conn, run.id, "queued", allocation.waits_for)
    return started


def _lock(home: Home, conn: Connection, run: Run, folder: RunFolder) -> int | None:
    """Supervisor lock, or None if it is held or cannot be taken; the run's reason says why it waits."""
    try:
        return take_over(home, run.id, folder)
    except FileNotFoundError:  # its folder was removed; the next recovery reports it
        return None
    except (OSError, Unavailable) as error:
        reason = error.message if isinstance(error, Unavailable) else f"{error.filename}: {error.strerror}"
        if reason != run.reason:
            runs.set_reason(conn, run.id, "queued", reason)
        return None


def _claim(
    conn: Connection, run: Run, gpus: tuple[GpuNow, ...] | str, wanted_earlier: Mapping[str, int]
) -> Allocation | None:
    """Allocates in one transaction, so that no two runs get the same memory. None: the run no longer waits."""
    with transaction(conn):
        active = runs.in_states(conn, runs.ACTIVE)
        plans = plans_by_gpu(conn, run)
        allocation = find_allocation(run, active, gpus, wanted_earlier, needs_of(plans))
        if allocation.gpu is None:
            return allocation
        if not runs.claim(conn, run.id, gpu=None if allocation.gpu == CPU else allocation.gpu):
            return None
        if allocation.gpu in plans:
            take_plan(conn, run.id, plans[allocation.gpu])
    return allocation


def allocation_now(
    conn: Connection | None, run: Run, gpus: tuple[GpuNow, ...] | str, needs: Needs | None = None
) -> Allocation:
    """What a run would get if it were accepted now, behind all waiting runs; `run` need not be recorded."""
    if conn is None:
        return find_allocation(run, [], gpus, {}, needs)
    active, wanted = runs.in_states(conn, runs.ACTIVE), dict[str, int]()
    for earlier in runs.in_states(conn, runs.WAITING):
        if earlier.id == run.id:
            break
        plans = needs_of(plans_by_gpu(conn, earlier))
        allocation = find_allocation(earlier, active, gpus, wanted, plans)
        if allocation.gpu is None:
            wanted = dict.fromkeys(allocation.wants, earlier.id) | wanted
        else:
            need = plans[allocation.gpu] if plans and allocation.gpu in plans else earlier.reserved_mib
            active = [*active, earlier._replace(gpu=allocation.gpu, reserved_mib=need)]
    return find_allocation(run, active, gpus, wanted, needs)


def find_allocation(
    run: Run,
    active: list[Run],
    gpus: tuple[GpuNow, ...] | str,
    wanted_earlier: Mapping[str, int],
    needs: Needs | None = None,
) -> Allocation:
    """Chooses GPUs; a pure function. `wanted_earlier`: GPUs that earlier runs wait for; this run must not take them.

    `gpus`: a text if the GPUs cannot be read. `needs`: memory by UUID of the GPUs the run was planned for, if they
    differ.
    """
    if run.gpu_request is None:
        return _allocate_cpu(run, active, wanted_earlier)
    if isinstance(gpus, str):
        return Allocation(None, gpus)
    request = WantedGpus.read(run.gpu_request)
    candidates = {
        gpu.reading.uuid: gpu for gpu in gpus if gpu.reading.uuid and gpu.reading.is_wanted(request)
    }
    if not candidates or (request.named is not None and len(candidates) < len(request.named)):
        missing = (
            "does not answer" if any(gpu.reading.problem for gpu in gpus) else "this machine does not have"
        )
        return Allocation(None, f"GPU {run.gpu_request}, which {missing}")
    if needs:
        candidates = {uuid: gpu for uuid, gpu in candidates.items() if uuid in needs} or candidates
    count = min(request.count or len(candidates), len(candidates))
    reasons: list[str] = []
    free: list[tuple[float, str]] = []
    for uuid, gpu in candidates.items():
        runs_there = [other for other in active if uuid in other.gpus]
        room, reason = _room_on(
            run, needs[uuid] if needs and uuid in needs else run.reserved_mib, gpu, runs_there
        )
        if uuid in wanted_earlier:
            reason = f"run {wanted_earlier[uuid]}, which is earlier in the queue"
        if reason is None:
            free.append((room, uuid))
        else:
            reasons.append(reason if len(gpus) == 1 else f"{reason}, on GPU {gpu.reading.index}")
    if len(free) >= count:
        chosen = sorted(free, key=lambda one: -one[0])[:count]
        uuids = {uuid for _, uuid in chosen}
        return Allocation(",".join(uuid for uuid in candidates if uuid in uuids), left_mib=chosen[-1][0])
    reason = "; or ".join(reasons) if count == 1 else f"{count} GPUs: " + "; ".join(reasons)
    return Allocation(None, reasons[0] if len(candidates) == 1 else reason, frozenset(candidates))


def _allocate_cpu(run: Run, active: list[Run], wanted_earlier: Mapping[str, int]) -> Allocation:
    cpu_runs = [other for other in active if other.gpu_request is None]
    exclusive = next((other for other in cpu_runs if other.exclusive), None)
    if exclusive is not None:
        return Allocation(
            None, f"run {exclusive.id}, which has this machine's CPUs to itself", frozenset({CPU})
        )
    if CPU in wanted_earlier:
        return Allocation(None, "an earlier run that wants this machine's CPUs to itself")
    if run.exclusive and cpu_runs:
        others = ", ".join(str(other.id) for other in cpu_runs)
        return Allocation(None, f"this machine's CPUs to itself (in use by {others})", frozenset({CPU}))
    return Allocation(CPU)


def _room_on(run: Run, need_mib: int | None, gpu: GpuNow, runs_there: list[Run]) -> tuple[float, str | None]:
    """MiB left for others if the run gets this GPU, or what the run waits for."""
    exclusive = [other for other in runs_there if other.exclusive or other.reserved_mib is None]
    if exclusive:
        itself = "itself" if len(exclusive) == 1 else "themselves"
        return 0, f"{names_of(exclusive)}, which {have(exclusive)} it to {itself}"
    if runs_there and (run.exclusive or need_mib is None):
        return 0, f"{names_of(runs_there)}, to have it to itself"
    room, need = room_on(gpu, runs_there), need_mib or 0
    if room is None:
        return 0, "its memory, which cannot be read"
    if need <= room:
        return room - need, None
    return 0, holders(gpu, runs_there) or f"{need:,} MiB, which it does not have"
