"""Job size: data and model sizes of a job before it starts, from which memory and time are predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.workloads.graphs.counts import Counts, counts_of
from kgops.workloads.plan import Shape, Stage, plan_of
from kgops.workloads.registry import workload_of


@dataclass(frozen=True, slots=True)
class JobSize:
    """Sizes of a job; a pipeline has several stages, another workload only itself."""

    job: Job
    counts: Counts
    stages: tuple[Stage, ...]

    @property
    def trains(self) -> bool:
        """Whether the job has optimizer steps."""
        return any(workload_of(stage.job).trains for stage in self.stages)

    @property
    def retrains(self) -> Job | None:
        """The stage that may retrain what it reads, to check what it found."""
        return next((stage.job for stage in self.stages if workload_of(stage.job).reads_model), None)

    def shapes(self, options: Mapping[str, Any], gpu: GpuFacts | None) -> list[Shape]:
        """Sizes of each stage with these options on this GPU (None: the CPU)."""
        shapes = (stage.shape(options, gpu, self.counts) for stage in self.stages)
        return [shape for shape in shapes if shape is not None]


def job_size_of(
    job: Job,
    remembered: Path | None = None,
    *,
    most_bytes: int | None = None,
) -> JobSize | str:
    """The size of a job that is not a command, or why it is unknown before the job starts.

    `remembered` and `most_bytes`: see `counts_of`.
    """

    def count(settings: Mapping[str, Any]) -> Counts | None:
        return counts_of(settings, remembered, most_bytes=most_bytes)

    stages = plan_of(job.workload).stages(job, count)
    return stages if isinstance(stages, str) else JobSize(job, stages[0].counts, tuple(stages))
