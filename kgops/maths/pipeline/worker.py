"""`python -m kgops.maths.pipeline.worker job.toml`: one run that trains, predicts, then runs TracIn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kgops.jobs.job import Job
from kgops.maths.predict.worker import predict_stage
from kgops.maths.tracin.worker import run_tracin_job
from kgops.maths.train.worker import train_job
from kgops.maths.worker.entry import StopRequest, run_worker
from kgops.maths.worker.outputs import publish_results
from kgops.maths.worker.report import Reporter
from kgops.workloads.pipeline.job import (
    predict_settings,
    tracin_options,
    tracin_settings,
    train_options,
    train_settings,
)
from kgops.workloads.train.job import MODELS


def pipeline(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    """Trains, predicts if asked, attributes. A resumed run skips a finished training and finished test triples."""
    results = folder / "results"
    options = train_options(job.options)
    training = replace(job, workload="train", settings=train_settings(job.settings), options=options)
    metrics = train_job(training, folder, report, stop)
    model = next(path for name in MODELS if (path := results / name).exists())
    trained = str(results / "checkpoints"), str(model)
    asked = predict_settings(job.settings, *trained)
    if asked is not None:
        metrics |= predict_stage(
            replace(job, workload="predict", settings=asked, options={}), folder, report, stop
        )
    settings = tracin_settings(job.settings, *trained)
    report.next_stage()
    options = tracin_options(job.settings, job.options)
    tracin_job = replace(job, workload="tracin", settings=settings, options=options)
    metrics |= run_tracin_job(tracin_job, folder, report, stop)
    publish_results(job, folder, results, metrics, report)


if __name__ == "__main__":
    run_worker(pipeline)
