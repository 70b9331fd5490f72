"""`python -m kgops.maths.train.worker job.toml`: trains a model and evaluates it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kgops.errors import Usage
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.jobs.on_device import skips_compile
from kgops.jobs.run_options import GPU
from kgops.maths.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.maths.models.build import build_model
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.train.checkpoints import read_checkpoint
from kgops.maths.train.evaluate import Evaluation, Evaluator, quality_table
from kgops.maths.train.loop import FitResult, fit
from kgops.maths.train.settings import TrainSettings, place_of
from kgops.maths.worker.devices import choose_threads, keep_to_budget, memory_cleanup
from kgops.maths.worker.entry import Stopped, StopRequest, run_worker
from kgops.maths.worker.out_of_memory import host_memory_mib
from kgops.maths.worker.outputs import NOTHING_BEST, open_results, publish_results, write_config
from kgops.maths.worker.report import Progress, Reporter, report_applied
from kgops.workloads.registry import values_of
from kgops.workloads.shared_options import TRIPLES
from kgops.workloads.train.job import training_options
from kgops.workloads.train.models import model_of_settings, step_gflop
from kgops.workloads.train.options import DEFAULT_LOSS


def train(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    metrics = train_job(job, folder, report, stop)
    publish_results(job, folder, folder / "results", metrics, report)


def train_job(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> dict[str, float]:
    """Runs everything except the manifest; returns the metrics."""
    device = find_device(job.settings["device"])
    train_pykeen = _pykeen(report) if job.settings["engine"] == "pykeen" else None
    # It is the output folder as the original scripts write it, with checkpoints.
    results = open_results(job, folder, device, report)
    graph = open_graph(job, report)
    if train_pykeen is not None:
        return train_pykeen(job, graph, device, results, report, stop)
    return train_own(job, graph, device, results, report, stop)


def _pykeen(report: Reporter) -> Callable[..., dict[str, float]]:
    """Imports the PyKEEN engine; its libraries count to this worker's initial memory."""
    from kgops.maths.train.pykeen_engine import (
        train as train_pykeen,
    )  # slow to import, needed by no other engine

    report.libraries_mib = host_memory_mib()
    return train_pykeen


def train_own(
    job: Job,
    graph: Graph,
    device: torch.device,
    results: Path,
    report: Reporter,
    stop: Callable[[], bool],
) -> dict[str, float]:
    """Trains and evaluates; returns the metrics."""
    torch.manual_seed(job.settings["seed"])
    config = model_of_settings(job.settings, graph.num_entities, graph.num_relations)
    settings = train_settings(job)
    if skips_compile(job, place_of(device)):
        settings = dataclasses.replace(settings, compile="off")
    choose_threads(step_gflop(config, settings.batch_size), "a step", device, report)
    model = build_model(config).to(device)
    report_options(job, device, settings, report)
    report.note(f"objective: {settings.objective(config.inverse)}.")
    resume = (results / "checkpoints").exists()
    with memory_cleanup(job, device, report) as cleanup:
        done = fit(model, graph, settings, results, report, stop, resume=resume, cleanup=cleanup)
        if done.stopped == "requested":
            raise Stopped
        if done.best_epoch is None:
            report.note(NOTHING_BEST)
        cleanup.between_phases()
        test = evaluate(model, graph, results, device, report, stop)
    metrics = headline(done, test)
    if "test_mrr" in metrics:
        report.metric("test_mrr", metrics["test_mrr"], done.epochs)
    write_config(job, results, config.to_dict(), settings.to_dict(), graph.digests, report)
    write_json(results / "training_history.json", done.history)
    report.artifact(results / "training_history.json", "history")
    if test is not None:
        write_json(results / "test_results.json", {**test.to_dict(), **quality_table(test, graph)})
        report.artifact(results / "test_results.json", "metrics")
    return metrics


def find_device(wanted: str) -> torch.device:
    """The device, whose memory budget holds from now on; refuses a GPU that was requested, or given to this run, and
    is missing. `auto` takes a GPU if there is one."""
    given = os.environ.get(GPU)
    if given and "," not in given and wanted.startswith("cuda:"):
        wanted = "cuda"  # the number is the machine's; a run with one GPU sees only that one
    if wanted == "auto" and not given:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted == "auto" or wanted.startswith("cuda"):
        if not torch.cuda.is_available():
            # Planned for a GPU, a run on the CPU would take days instead of hours, and hold the GPU for nothing.
            reason = f"this run was given {given}" if wanted == "auto" else f"device {wanted} was requested"
            raise Usage(
                f"{reason}, and torch {torch.__version__} sees no CUDA device: {_why_no_cuda().rstrip('.')}.",
                hint="`kgops doctor` checks driver and torch; `--device cpu` takes the CPU",
            )
        index = int(wanted.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            raise Usage(f"device {wanted} was requested; there are {torch.cuda.device_count()}.")
    device = torch.device("cuda" if wanted == "auto" else wanted)
    keep_to_budget(device)
    return device


def _why_no_cuda() -> str:
    """What torch itself says, such as that the driver is too old."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:  # the latter from a CPU build
        return next(iter(str(error).splitlines()), type(error).__name__)
    return "CUDA shows none to this process"


def open_graph(job: Job, report: Reporter) -> Graph:
    graph = load_graph(job.settings)
    report.graph(graph.notes, graph.digests)
    return graph


def load_graph(settings: dict[str, Any]) -> Graph:
    if settings["dataset"]:
        return read_pykeen_dataset(settings["dataset"])
    paths = {name: Path(settings[name]) if settings[name] else None for name in TRIPLES}
    train = paths.pop("train")
    if train is None:
        raise Usage("no training triples are given.")
    vocabularies = {name: paths.pop(name) for name in ("entity_to_id", "relation_to_id")}
    return read_graph(train, paths["valid"], paths["test"], **vocabularies)


def train_settings(job: Job) -> TrainSettings:
    values = values_of(job)
    known = {
        field.name: values[field.name] for field in dataclasses.fields(TrainSettings) if field.name in values
    }
    chunk = values["entity_chunk"]
    known |= {"loss": values["loss"] or DEFAULT_LOSS, "entity_chunk": None if chunk == "auto" else chunk}
    return TrainSettings(**known)


def report_options(job: Job, device: torch.device, settings: TrainSettings, report: Reporter) -> None:
    """Reports the options that training does not report itself; training knows more about the others."""
    spoken_of = {"precision", "batch_size", "entity_chunk", "gradient_checkpointing", "memory_cleanup"}
    spoken_of |= {"compile"} if settings.compile != "off" else set()
    spoken_of |= {"cuda_graphs"} if settings.cuda_graphs else set()
    report_applied(job, training_options(job, place_of(device)), report, spoken_of)


def evaluate(
    model: EntityModel,
    graph: Graph,
    results: Path,
    device: torch.device,
    report: Reporter,
    stop: Callable[[], bool],
) -> Evaluation | None:
    """Ranks the test triples with the best weights; None without test triples."""
    if not len(graph.test):
        return None
    best = results / "best_model.pt"
    if best.exists():
        model.load_state_dict(dict(read_checkpoint(best, device).model))
    known = torch.cat([graph.train, graph.valid, graph.test])
    evaluator = Evaluator(known, graph.num_entities, device=device)
    progress = Progress(report, "test", "query")
    evaluation = evaluator(model, graph.test, stop_requested=stop, progress=progress)
    if evaluation is None:
        raise Stopped
    return evaluation


def headline(done: FitResult, test: Evaluation | None) -> dict[str, float]:
    """The run's metrics."""
    metrics: dict[str, float | None] = {
        "epochs": done.epochs,
        "train_s": done.seconds,
        "best_valid_mrr": done.best_mrr,
        "best_epoch": done.best_epoch,
        "fp16_overflows": done.overflows,
    }
    if test is not None:
        metrics |= {f"test_{name}": value for name, value in test.both.to_dict().items() if name != "count"}
    return {name: float(value) for name, value in metrics.items() if value is not None}


if __name__ == "__main__":
    run_worker(train)
