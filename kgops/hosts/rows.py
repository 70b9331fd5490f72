"""Rows of hosts as people read them: cells that commands and screens both show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kgops.hosts.mirror import HostState
from kgops.hosts.protocol import Cell, Row
from kgops.present.gpu_cells import GpuRow, GpuUser

if TYPE_CHECKING:
    from kgops.present.gpus import GpuProcess
    from storage.runs import Run

OUTDATED = "states of runs may be outdated: a supervisor is gone"


def number(value: Cell) -> float | None:
    return None if value is None or isinstance(value, (str, bool)) else float(value)


def text(value: Cell) -> str:
    return value if isinstance(value, str) else ""


def is_outdated(state: HostState) -> bool:
    """Whether a run there may have ended without anybody to notice it."""
    return state.rows("host").get("host", {}).get("states_may_be_outdated") is True


def sorted_gpus(state: HostState) -> list[tuple[str, Row]]:
    """By number, slices below their GPU."""
    return sorted(state.rows("gpu").items(), key=lambda one: [int(part) for part in one[0].split(":")])


def gpu_of(label: str, row: Row, processes: Mapping[str, Row]) -> GpuRow:
    """The GPU as its host describes it."""
    held: dict[tuple[int | None, str], float] = {}
    for process in processes.values():
        gpu, run = text(process.get("gpu")), number(process.get("run"))
        if gpu == label or gpu.startswith(f"{label}:"):
            user = (None, text(process.get("user"))) if run is None else (int(run), "")
            held[user] = held.get(user, 0.0) + (number(process.get("used_mib")) or 0.0)
    ordered = sorted(held.items(), key=lambda one: (-one[1], one[0][1]))
    return GpuRow(
        label,
        text(row.get("name")) or None,
        number(row.get("memory_used_mib")),
        number(row.get("memory_total_mib")),
        number(row.get("used_by_runs_mib")),
        utilization_percent=number(row.get("utilization_percent")),
        temperature_c=number(row.get("temperature_c")),
        users=tuple(GpuUser(run, name or None, mib) for (run, name), mib in ordered),
        problem=text(row.get("problem")) or None,
    )


def process_of(row: Row) -> GpuProcess:
    """The process as its host describes it; what it did not say is unknown."""
    from kgops.present.gpus import GpuProcess  # seldom needed

    known = {name: value for name, value in row.items() if value is not None}
    unknown = {**dict.fromkeys(GpuProcess._fields), "pid": 0, "is_own": False}
    return GpuProcess(**{**unknown, **known})  # type: ignore[arg-type]


def run_of(number: int, fields: Row) -> Run:
    """The run as its host describes it; what it did not say is unknown."""
    from storage.runs import Run  # with SQLite, which the first frame does not wait for

    known = {name: value for name, value in fields.items() if value is not None and name in Run._fields}
    return Run(**{**known, "id": number})  # type: ignore[arg-type]
