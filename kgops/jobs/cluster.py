"""Cluster request of a job: this machine, Slurm or Ray, and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kgops.options.option import defaults_of
from kgops.options.run import CLUSTER_OPTIONS

__all__ = ["THIS_MACHINE", "ClusterRequest", "problems_of"]


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """`where` None is this machine. `address` is for Ray; the rest is passed to Slurm unchanged."""

    where: str | None = None
    partition: str | None = None
    time: str | None = None
    gres: str | None = None
    cpus: int | None = None
    memory: str | None = None
    account: str | None = None
    tasks: int = 1  # of a TracIn run, as one job array
    options: tuple[str, ...] = ()  # further ones of sbatch
    address: str | None = None


THIS_MACHINE = ClusterRequest()


def problems_of(table: dict[str, Any], workload: str) -> list[str]:
    """Problems of the `on` table."""
    cluster, problems = table["where"], []
    defaults = defaults_of(CLUSTER_OPTIONS)
    others = [name for name, value in table.items() if name != "where" and value not in (defaults[name], [])]
    if cluster is None and others:
        problems.append(f"on.{others[0]}: needs on.where")
    if cluster == "slurm" and table["address"]:
        problems.append("on.address: is for Ray")
    if cluster == "ray":
        problems += [f"on.{name}: is for Slurm" for name in others if name not in ("address", "tasks")]
        if workload != "tracin":
            problems.append(f"on.where: Ray runs tracin only; {workload} runs here or on Slurm")
    if table["tasks"] != 1 and workload != "tracin":
        problems.append(f"on.tasks: only tracin is split into tasks; {workload} is one task")
    for name, value in table.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isprintable():  # a line feed would end the line of #SBATCH
                problems.append(f"on.{name}: has a control character; found {text!r:.40}")
    for option in table["options"] or ():
        if not option.startswith("--"):
            problems.append(f"on.options: each begins with --, as sbatch takes it; found {option!r:.40}")
    return problems
