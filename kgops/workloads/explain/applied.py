"""Applied options of an explain run, with reasons."""

from __future__ import annotations

from collections.abc import Iterator

from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice, applied_cleanup
from kgops.workloads.explain.job import EXPLAIN


def explain_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of an explain run."""
    yield applied_cleanup(job, device)
    for name, value in job.options.items():
        if name not in EXPLAIN.optimizations:
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "explaining has no such option")
