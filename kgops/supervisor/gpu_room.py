"""How much memory of a GPU a run can be given beside other runs and other programs. Nothing else decides this."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgops.gpus.readings import GpuReading
    from kgops.settings import Home
    from storage.database import Connection
    from storage.runs import Run

READS_WITHIN_S = 3.0  # for a command that only looks: a driver may hang for good
STARTS_WITHIN_S = 60.0  # for one that starts a run: a driver of many GPUs may take long to wake up
Share = tuple[float | None, float | None]  # MiB that a run reserves, and that it uses; None: none, unknown


@dataclass(frozen=True, slots=True)
class GpuNow:
    """A GPU or MIG slice, and what kgops' runs use of it at the same moment."""

    reading: GpuReading
    used_by: Mapping[int, float | None] = field(default_factory=dict)  # MiB by run; None: unknown
    strangers: tuple[int, ...] = ()  # PIDs that belong to no run


def usable_mib(gpu: GpuReading) -> int | None:
    """The most that runs can have of the GPU: the driver keeps some for itself."""
    return None if gpu.memory_total_mib is None else gpu.memory_total_mib - (gpu.memory_reserved_mib or 0)


def held_mib(share: Share) -> float:
    """What is kept for a run: it may still grow to its reservation, or be above it."""
    reserved, used = share
    return max(reserved or 0, used or 0)


def others_mib(used_mib: float, shares: Iterable[Share]) -> float:
    """Used memory that no run is known to use.

    A run whose memory is unknown counts twice, here and by its reservation: less is promised than there is.
    """
    return max(used_mib - sum(used or 0 for _, used in shares), 0)


def room_mib(usable_mib: float | None, used_mib: float | None, shares: Sequence[Share]) -> float | None:
    """What one more run can be given; negative where more is used than was reserved; None if it cannot be read.

    A run that was started after the reading uses 0 in it, and counts by its reservation.
    """
    if usable_mib is None or used_mib is None:
        return None
    return usable_mib - others_mib(used_mib, shares) - sum(map(held_mib, shares))


def room_on(gpu: GpuNow, runs_there: Sequence[Run]) -> float | None:
    """`room_mib` beside these runs."""
    return room_mib(usable_mib(gpu.reading), gpu.reading.memory_used_mib, shares_of(gpu, runs_there))


def shares_of(gpu: GpuNow, runs_there: Sequence[Run]) -> list[Share]:
    return [(run.reserved_mib, gpu.used_by.get(run.id)) for run in runs_there]


def holders(gpu: GpuNow, runs_there: Sequence[Run]) -> str:
    """Who holds the GPU's memory, in the words of a reason to wait; empty if nobody does."""
    parts, shares = [], shares_of(gpu, runs_there)
    if runs_there:
        reserved = sum(run.reserved_mib or 0 for run in runs_there)
        above = sum(map(held_mib, shares)) - reserved
        more = f" and {have(runs_there, 'use')} {above:,.0f} MiB more" if above > 0 else ""
        parts.append(f"{names_of(runs_there)}, which {have(runs_there, 'reserve')} {reserved:,} MiB{more}")
    if others := others_mib(gpu.reading.memory_used_mib or 0, shares):
        parts.append(f"{others:,.0f} MiB {_holder_of(gpu, runs_there)}")
    return ", and ".join(parts)


def names_of(runs: Sequence[Run]) -> str:
    numbers = [str(run.id) for run in runs]
    return f"run {numbers[0]}" if len(numbers) == 1 else f"runs {', '.join(numbers[:-1])} and {numbers[-1]}"


def have(runs: Sequence[Run], verb: str = "have") -> str:
    return verb if len(runs) > 1 else "has" if verb == "have" else f"{verb}s"


def read_gpus(
    home: Home, conn: Connection | None, *, limit_s: float = READS_WITHIN_S
) -> tuple[GpuNow, ...] | str:
    """GPUs and what this home's active runs use of them, or a text if the GPUs cannot be read in this time."""
    from kgops.gpus.readings import usable
    from kgops.gpus.sampler import read_within
    from kgops.supervisor.on_gpus import Owners

    snapshot = read_within(limit_s)
    if snapshot.problem is not None:
        return f"a GPU ({snapshot.problem.message.rstrip('.')})"
    readings = usable(snapshot.gpus)
    if conn is None:
        return tuple(GpuNow(one, {}, tuple(p.pid for p in one.processes or ())) for one in readings)
    owners = Owners(home, conn)
    return tuple(GpuNow(one, *owners.used_on(one)) for one in readings)


def _holder_of(gpu: GpuNow, runs_there: Sequence[Run]) -> str:
    """Who holds memory that is no run's: the user's own processes only if all are verified."""
    if any(gpu.used_by.get(run.id, 0) is None for run in runs_there):
        return "in use, of which the driver does not say whose it is"
    pids = gpu.strangers
    if pids and all(_is_own(pid) for pid in pids):
        return f"that your process {pids[0]} holds" if len(pids) == 1 else "that your own processes hold"
    if not pids and gpu.reading.processes:
        return "that no listed process holds"
    return "that another user holds"


def _is_own(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.getuid()
    except OSError:
        return False
