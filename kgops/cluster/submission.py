"""Builds a job's Slurm submissions: one script, or for a sharded TracIn run an array and a merge job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kgops.cluster.script import sbatch_options
from kgops.jobs.cluster import ClusterRequest
from kgops.jobs.job import Job
from kgops.workloads.registry import WORKLOADS

_SHARDS_MODULE = "kgops.maths.tracin.shard_start"
_NOT_SHARDED = ("self_influence", "skip_tracin")  # TracIn runs that are not sharded


@dataclass(frozen=True, slots=True)
class Submission:
    """One script: its file, worker module, sbatch options and environment."""

    file: str
    module: str
    place: ClusterRequest
    environment: Mapping[str, str] = field(default_factory=dict)
    array: int | None = None

    def options(self, before: Sequence[int | str]) -> list[str]:
        """sbatch options outside the script; `before`: jobs submitted earlier."""
        array = [] if self.array is None else [f"--array=0-{self.array - 1}"]
        # After all of them, also failed ones: the merge job computes missing shards itself.
        return array + [f"--dependency=afterany:{number}" for number in before]


def submissions(job: Job) -> list[Submission]:
    """The job's submissions, in order."""
    module = WORKLOADS[job.workload].module
    assert module is not None  # a command is refused when it is launched
    tasks = 1 if any(job.settings.get(name) for name in _NOT_SHARDED) else job.on.tasks
    single = replace(job.on, tasks=1)
    if tasks == 1:
        return [Submission("worker.sh", module, single)]
    return [
        Submission("shards.sh", _SHARDS_MODULE, job.on, {"KGOPS_TASKS": str(tasks)}, array=tasks),
        Submission("worker.sh", module, single, {"KGOPS_MERGE": "1"}),
    ]


def sbatch_lines(job: Job) -> list[str]:
    """The sbatch commands that would be run, before the run has a number; empty for jobs that do not run on Slurm."""
    if job.on.where != "slurm" or WORKLOADS[job.workload].module is None:
        return []
    lines: list[str] = []
    for submission in submissions(job):
        options = sbatch_options("kgops-RUN", submission.place, Path("RUN/attempts/1/slurm"))
        before = ["JOB"] * len(lines)
        command = shlex.join(["sbatch", *options, *submission.options(before), submission.file])
        lines.append(f"{command}: python -P -m {submission.module} job.toml")
    return lines
