"""Rows of hosts as people read them: cells that commands and screens both show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kgops.hosts.mirror import HostState
from kgops.hosts.protocol import Cell, Row
from kgops.present.formats import UNKNOWN, whole

if TYPE_CHECKING:
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


def users_of(label: str, processes: Mapping[str, Row]) -> str:
    """`run 7, ada 2,048 MiB`: who holds the GPU, most memory first."""
    held: dict[str, float] = {}
    for row in processes.values():
        gpu = text(row.get("gpu"))
        if gpu == label or gpu.startswith(f"{label}:"):
            run = row.get("run")
            who = f"run {run}" if run is not None else text(row.get("user")) or UNKNOWN
            held[who] = held.get(who, 0.0) + (number(row.get("used_mib")) or 0.0)
    ordered = sorted(held.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{who} {mib:,.0f} MiB" if mib else who for who, mib in ordered)


def gpu_cells(label: str, row: Row, processes: Mapping[str, Row]) -> tuple[str, ...]:
    """Number, name, memory used and usable, utilization, temperature, users."""
    name = text(row.get("name")).removeprefix("NVIDIA ") or UNKNOWN
    if row.get("problem"):
        return (label, name, "", "", "", "", f"does not answer: {text(row['problem'])}")
    return (
        label,
        name,
        whole(number(row.get("memory_used_mib"))),
        whole(number(row.get("memory_total_mib"))),
        whole(number(row.get("utilization_percent")), "%"),
        whole(number(row.get("temperature_c")), "°C"),
        users_of(label, processes),
    )


def run_of(number: int, fields: Row) -> Run:
    """The run as its host describes it; what it did not say is unknown."""
    from storage.runs import Run  # with SQLite, which the first frame does not wait for

    known = {name: value for name, value in fields.items() if value is not None and name in Run._fields}
    return Run(**{**known, "id": number})  # type: ignore[arg-type]
