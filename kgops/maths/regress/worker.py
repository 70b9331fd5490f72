"""`python -m kgops.maths.regress.worker job.toml`: trains the regression of heights from flight images."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from kgops.errors import Usage
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.jobs.on_device import skips_compile
from kgops.maths.regress.flights import Flight, read_flights
from kgops.maths.regress.loop import Regression, regress
from kgops.maths.regress.stages import RegressionSettings
from kgops.maths.train.settings import place_of
from kgops.maths.train.worker import find_device
from kgops.maths.worker.devices import choose_threads, memory_cleanup
from kgops.maths.worker.entry import Stopped, StopRequest, run_worker
from kgops.maths.worker.outputs import applied_options, open_results, publish_results
from kgops.maths.worker.report import Reporter, report_applied
from kgops.workloads.registry import values_of
from kgops.workloads.regress.job import RegressionConfig, config_of, image_size, regression_options


def run(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(job.settings["device"])
    results = open_results(job, folder, device, report)
    flights = load_flights(job, report)
    config = config_of(job.settings, job.options, flights[0].image_size)
    settings = regression_settings(job)
    if skips_compile(job, place_of(device)):
        settings = dataclasses.replace(settings, compile="off")
    choose_threads(step_gflop(config, settings.at_once), "a step", device, report)
    # Convolutions with nondeterministic sums would make results irreproducible.
    torch.backends.cudnn.deterministic = True
    report_options(job, device, settings, report)
    resume = (results / "checkpoints").exists()
    with memory_cleanup(job, device, report) as cleanup:
        done = regress(
            flights, config, settings, results, report, stop, device=device, resume=resume, cleanup=cleanup
        )
    if done.stopped == "requested":
        raise Stopped
    metrics = headline(done)
    for name in ("test_mae", "test_r2"):
        if name in metrics:
            report.metric(name, metrics[name], done.epochs)
    write_results(job, results, flights, config, settings, done, report)
    if "KGOPS_EVENTS" in os.environ:  # otherwise stdout has the events, with the verdicts
        for result in done.reports.values():
            print(result.verdict[0].upper() + result.verdict[1:])
    publish_results(job, folder, results, metrics, report)


def load_flights(job: Job, report: Reporter) -> list[Flight]:
    """All flights of the job's folder; notes what is unusual."""
    where = job.settings["data_directory"]
    if not where:
        raise Usage("no folder of flights is given.", hint="--data-directory DIR")
    for left_out in job.settings["left_out"]:
        report.note(f"left out of the configuration: {left_out}.")
    flights = read_flights(Path(where), values_of(job)["temporal_frames"])
    size, requested = flights[0].image_size, image_size(job.settings)
    if requested is not None and requested != size:
        shown = " and ".join("x".join(map(str, one)) for one in (requested, size))
        report.note(f"image_size and the flights' images differ ({shown}): using the flights' size.")
    report.note(
        f"{len(flights)} flights, {sum(map(len, flights)):,} frames of {size[0]}x{size[1]}: "
        f"{', '.join(flight.name for flight in flights[:8])}{', …' if len(flights) > 8 else ''}."
    )
    for flight in flights:
        for name in flight.unpacked:
            report.note(
                f"{flight.path}: {name} is compressed, so all of it is in memory; numpy.savez maps it."
            )
    return flights


def regression_settings(job: Job) -> RegressionSettings:
    values = values_of(job)
    known = {field.name: values[field.name] for field in fields(RegressionSettings)}
    return RegressionSettings(
        **known | {"microbatch": None if known["microbatch"] == "auto" else known["microbatch"]}
    )


def step_gflop(config: RegressionConfig, windows: int) -> float:
    """GFLOP of the convolutions of that many windows, forward and backward."""
    return 6 * windows * config.temporal_frames * config.products / 1e9


def report_options(job: Job, device: torch.device, settings: RegressionSettings, report: Reporter) -> None:
    """Reports the options that training does not report itself."""
    spoken_of = {"precision", "batch_size", "microbatch", "temporal_frames", "gradient_checkpointing"}
    spoken_of |= {"memory_cleanup", *({"compile"} if settings.compile != "off" else ())}
    report_applied(job, regression_options(job, place_of(device)), report, spoken_of)


def headline(done: Regression) -> dict[str, float]:
    """The run's metrics: of the held-out flight, and of the mean predictor on it."""
    metrics: dict[str, float | None] = {
        "epochs": done.epochs,
        "train_s": done.seconds,
        "windows_per_s": done.windows / done.seconds if done.seconds else None,
        "loader_wait_s": done.loader_wait_s,
        "fp16_overflows": done.overflows,
    }
    first = done.reports.get("final") or done.reports.get("pretrain")
    if first is not None:
        for prefix, heights in (("test", first.model), ("mean_predictor", first.mean_predictor)):
            named = heights.to_dict()
            metrics |= {f"{prefix}_{name}": named[name] for name in named if name != "count"}
    folds = [report for name, report in done.reports.items() if name.startswith("loo ")]
    for name in ("mae", "rmse", "mape", "r2"):
        for prefix, chosen in (("loo", "model"), ("loo_mean_predictor", "mean_predictor")):
            values = [getattr(getattr(fold, chosen), name) for fold in folds]
            if values and None not in values:
                metrics[f"{prefix}_{name}"] = statistics.fmean(values)
    return {name: float(value) for name, value in metrics.items() if value is not None}


def write_results(
    job: Job,
    results: Path,
    flights: Sequence[Flight],
    config: RegressionConfig,
    settings: RegressionSettings,
    done: Regression,
    report: Reporter,
) -> None:
    body: dict[str, Any] = {
        "save_name": job.settings["save_name"],
        "model": config.to_dict(),
        "training": settings.to_dict(),
        "data": {"data_directory": job.settings["data_directory"], "flights": [f.name for f in flights]},
        "optimizations": applied_options(job, report),
    }
    judged = {name: result.to_dict() for name, result in done.reports.items()}
    files = (
        ("config.json", "config", body),
        ("training_history.json", "history", done.history),
        ("test_results.json", "metrics", judged),
    )
    for name, kind, content in files:
        write_json(results / name, content)
        report.artifact(results / name, kind)
    rows = ["stage\tflight\ttrue_km\tpredicted_km\n"]
    for stage, (predicted, true) in done.predictions.items():
        flight = done.reports[stage].flight
        rows += [f"{stage}\t{flight}\t{t:.6g}\t{p:.6g}\n" for p, t in zip(predicted, true, strict=True)]
    (results / "predictions.tsv").write_text("".join(rows))
    report.artifact(results / "predictions.tsv", "predictions")


if __name__ == "__main__":
    run_worker(run)
