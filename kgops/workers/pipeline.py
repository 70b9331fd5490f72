"""`python -m kgops.workers.pipeline job.toml`: trains a model, answers questions with it, runs TracIn, as one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kgops.jobs.job import Job
from kgops.jobs.pipeline import (
    predict_settings,
    tracin_options,
    tracin_settings,
    train_options,
    train_settings,
)
from kgops.jobs.train import MODELS
from kgops.workers.entry import StopRequest, run_worker
from kgops.workers.outputs import publish_results
from kgops.workers.predict import predict_stage
from kgops.workers.report import Reporter
from kgops.workers.tracin import run_tracin_job
from kgops.workers.train import train_job


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
