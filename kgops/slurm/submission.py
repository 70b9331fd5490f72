"""What Slurm is given for a job: one script, or for a TracIn run in tasks an array and what merges after it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kgops.jobs.cluster import ClusterRequest
from kgops.jobs.job import Job
from kgops.jobs.workloads import WORKLOADS
from kgops.slurm.script import sbatch_options

__all__ = ["Submission", "sbatch_lines", "submissions"]

_PIECES_MODULE = "kgops.workers.tracin_shards"
_BY_ONE = (
    "self_influence",
    "build_index",
    "use_index",
    "skip_tracin",
)  # TracIn runs that are not cut into pieces


@dataclass(frozen=True, slots=True)
class Submission:
    """One script: its file, the worker it starts, and what it says to sbatch and to that worker."""

    file: str
    module: str
    place: ClusterRequest
    environment: Mapping[str, str] = field(default_factory=dict)
    array: int | None = None

    def options(self, before: Sequence[int | str]) -> list[str]:
        """Those that are not in the script, where `before` are the jobs that were submitted before it."""
        many = [] if self.array is None else [f"--array=0-{self.array - 1}"]
        # After all of them, however they ended: what is missing it does itself.
        return many + [f"--dependency=afterany:{number}" for number in before]


def submissions(job: Job) -> list[Submission]:
    """In the order in which they are submitted."""
    module = WORKLOADS[job.workload].module
    assert module is not None  # a command is refused when it is launched
    tasks = 1 if any(job.settings.get(name) for name in _BY_ONE) else job.on.tasks
    alone = replace(job.on, tasks=1)
    if tasks == 1:
        return [Submission("worker.sh", module, alone)]
    return [
        Submission("pieces.sh", _PIECES_MODULE, job.on, {"KGOPS_TASKS": str(tasks)}, array=tasks),
        Submission("worker.sh", module, alone, {"KGOPS_MERGE": "1"}),
    ]


def sbatch_lines(job: Job) -> list[str]:
    """What would be asked of Slurm, as one could type it, before there is a run and its number; nothing for what
    does not run there."""
    if job.on.where != "slurm" or WORKLOADS[job.workload].module is None:
        return []
    lines: list[str] = []
    for one in submissions(job):
        own = sbatch_options("kgops-RUN", one.place, Path("RUN/attempts/1/slurm"))
        before = ["JOB"] * len(lines)
        asked = shlex.join(["sbatch", *own, *one.options(before), one.file])
        lines.append(f"{asked}: python -P -m {one.module} job.toml")
    return lines
