"""Applied options of a predict run, with reasons."""

from __future__ import annotations

from collections.abc import Iterator

from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice, applied_cleanup
from kgops.workloads.predict.chunk_sizes import PREDICT_CHUNK
from kgops.workloads.predict.job import PREDICT


def predict_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of a predict run."""
    chunk = job.options.get("entity_chunk", "auto")
    yield Applied("entity_chunk", PREDICT_CHUNK if chunk == "auto" else chunk)
    yield applied_cleanup(job, device)
    for name, value in job.options.items():
        if name not in PREDICT.optimizations:
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "predicting has no such option")
