"""Jobs: a person's request as a validated value, written as TOML."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kgops.jobs import toml
from kgops.jobs.run_options import THIS_MACHINE, ClusterRequest


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPU and GPU memory that a job requests; none without `wanted` and memory."""

    wanted: str | None = None  # "auto", an index, or a UUID
    memory_mib: int | None = None
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    attempts: int = 1  # lost worker processes after which the run is interrupted
    grace_s: float = 30.0  # between asking a worker to stop and killing it
    log_mib: float = 256.0  # of worker.log kept on disk, the newest part
    memory_mib: int | None = None  # of host memory, for each process of the worker
    allow_approximate: bool = False  # OOM fallbacks may change results


@dataclass(frozen=True, slots=True)
class Job:
    workload: str
    label: str
    settings: dict[str, Any]
    profile: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    gpu: GpuRequest = GpuRequest()
    limits: Limits = Limits()
    on: ClusterRequest = THIS_MACHINE

    def as_table(self) -> dict[str, Any]:
        """Plain data for job.toml and the database, without unset values."""
        whole = {
            "workload": self.workload,
            "label": self.label,
            "profile": self.profile,
            self.workload: {name: value for name, value in self.settings.items() if value is not None},
            "options": dict(self.options),
            "gpu": {name: value for name, value in asdict(self.gpu).items() if value is not None},
            "limits": {name: value for name, value in asdict(self.limits).items() if value is not None},
            "on": self._cluster_table(),
        }
        return {name: value for name, value in whole.items() if value is not None}

    def _cluster_table(self) -> dict[str, Any] | None:
        table = {name: value for name, value in asdict(self.on).items() if value not in (None, ())}
        if self.on.options:
            table["options"] = list(self.on.options)
        return table if self.on.where else None

    def as_toml(self) -> str:
        return toml.dumps(self.as_table())
