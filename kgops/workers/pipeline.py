"""`python -m kgops.workers.pipeline job.toml`: trains, then traces, as one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kgops.jobs.job import Job
from kgops.jobs.pipeline import TRACIN_OPTIONS, tracin_settings, train_options, train_settings
from kgops.workers.entry import StopRequest, run_worker
from kgops.workers.outputs import hand_in
from kgops.workers.report import Reporter
from kgops.workers.tracin import trace_job
from kgops.workers.train import train_job


def pipeline(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    """A training that is finished is found finished when the run goes on later, and so is each test triple."""
    results = folder / "results"
    own = train_options(job.options)
    training = replace(job, workload="train", settings=train_settings(job.settings), options=own)
    metrics = train_job(training, folder, report, stop)
    settings = tracin_settings(job.settings, str(results / "checkpoints"), str(results / "best_model.pt"))
    report.next_stage()
    options = {name: value for name, value in job.options.items() if name in TRACIN_OPTIONS}
    tracing = replace(job, workload="tracin", settings=settings, options=options)
    metrics |= trace_job(tracing, folder, report, stop)
    hand_in(job, folder, results, metrics, report)


if __name__ == "__main__":
    run_worker(pipeline)
