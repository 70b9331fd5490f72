"""`python -m kgops.workers.train job.toml`: trains ConvE, evaluates it, and says all along what it does."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from kgops.errors import Usage
from kgops.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.jobs import manifest
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.jobs.training import FILES
from kgops.models.conve import ConvE, ConvEConfig
from kgops.training.evaluate import Evaluation, Evaluator
from kgops.training.loop import FitResult, fit
from kgops.training.report import Progress
from kgops.training.settings import TrainSettings
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.report import Reporter

BATCH_SIZE = 256


def train(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(job.settings["device"])
    report.started(device=str(device), torch=torch.__version__)
    # `results/` is the output folder as the group's scripts write it, checkpoints included.
    results = folder / "results"
    results.mkdir(exist_ok=True)
    graph = load_graph(job.settings)
    for note in graph.notes:
        report.note(note)
    torch.manual_seed(job.settings["seed"])
    model = ConvE(model_config(job.settings, graph)).to(device)
    settings = train_settings(job)
    report_levers(job, device, report)
    resume = (results / "checkpoints").exists()
    begun = time.monotonic()
    done = fit(model, graph, settings, results, report, stop, resume=resume)
    if done.stopped == "requested":
        raise Stopped
    test = evaluate(model, graph, results, device, report, stop)
    figures = headline(done, test, time.monotonic() - begun)
    if "test_mrr" in figures:
        report.metric("test_mrr", figures["test_mrr"], done.epochs)
    write_results(job, results, settings, model, done, test, report)
    _hand_in(job, folder, results, figures, report)


def find_device(wanted: str) -> torch.device:
    """Who asks for a card and has none is told so; `auto` takes what there is."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted.startswith("cuda"):
        if not torch.cuda.is_available():
            raise Usage(
                f"device {wanted} was asked for, and torch {torch.__version__} sees no CUDA device.",
                hint="`kgops doctor` says why; `--device auto` takes what there is",
            )
        index = int(wanted.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            raise Usage(f"device {wanted} was asked for; there are {torch.cuda.device_count()}.")
    return torch.device(wanted)


def load_graph(settings: dict[str, Any]) -> Graph:
    if settings["dataset"]:
        return read_pykeen_dataset(settings["dataset"])
    paths = {name: Path(settings[name]) if settings[name] else None for name in FILES}
    train = paths.pop("train")
    if train is None:
        raise Usage("no training triples are named.")
    vocabularies = {name: paths.pop(name) for name in ("entity_to_id", "relation_to_id")}
    return read_graph(train, paths["valid"], paths["test"], **vocabularies)


def model_config(settings: dict[str, Any], graph: Graph) -> ConvEConfig:
    names = {field.name for field in dataclasses.fields(ConvEConfig)} & settings.keys()
    shape = {name: settings[name] for name in names}
    return ConvEConfig(num_entities=graph.num_entities, num_relations=graph.num_relations, **shape)


def train_settings(job: Job) -> TrainSettings:
    settings, levers = job.settings, job.levers
    chunk = levers.get("entity_chunk", "auto")
    same = ("loss", "label_smoothing", "optimizer", "learning_rate", "weight_decay", "schedule")
    return TrainSettings(
        epochs=settings["num_epochs"],
        batch_size=levers.get("batch_size", BATCH_SIZE),
        precision=levers.get("precision", "fp32"),
        entity_chunk=None if chunk == "auto" else chunk,
        gradient_checkpointing=levers.get("gradient_checkpointing", False),
        checkpoint_every=settings["checkpoint_frequency"],
        **{name: settings[name] for name in (*same, "warmup_epochs", "seed", "validate_every", "patience")},
    )


def report_levers(job: Job, device: torch.device, report: Reporter) -> None:
    """The levers that training itself does not speak of: none is dropped in silence."""
    no_card = None if device.type == "cuda" else "no CUDA device"
    unbuilt = "this version of kgops does not do that in training yet"
    for name, asked in job.levers.items():
        if name == "num_workers":
            report.lever(name, asked, 0, "the triples live on the device: there is nothing to load")
        elif name == "memory_cleanup":
            why = no_card or "never short of memory between attempts: the loop keeps nothing to give back"
            report.lever(name, asked, False, why)
        elif name in ("compile", "cuda_graphs"):
            report.lever(name, asked, "off", no_card or unbuilt)
        elif name not in ("precision", "batch_size", "entity_chunk", "gradient_checkpointing"):
            report.lever(name, asked, "off", "training has no such lever")


def evaluate(
    model: ConvE, graph: Graph, results: Path, device: torch.device, report: Reporter, stop: StopRequest
) -> Evaluation | None:
    """Ranks of the test triples under the best weights; None where there are no test triples."""
    if not len(graph.test):
        return None
    best = results / "best_model.pt"
    if best.exists():
        from kgops.training.checkpoints import read_checkpoint

        model.load_state_dict(dict(read_checkpoint(best, device).model))
    known = torch.cat([graph.train, graph.valid, graph.test])
    evaluator = Evaluator(known, graph.num_entities, device=device)
    progress = Progress(report, "test", "triples")
    found = evaluator(model, graph.test, stop_requested=stop, progress=progress)
    if found is None:
        raise Stopped
    return found


def headline(done: FitResult, test: Evaluation | None, seconds: float) -> dict[str, float]:
    """The figures of the run's record."""
    figures: dict[str, float | None] = {
        "epochs": done.epochs,
        "train_s": seconds,
        "best_valid_mrr": done.best_mrr,
        "best_epoch": done.best_epoch,
        "fp16_overflows": done.overflows,
    }
    if test is not None:
        figures |= {f"test_{name}": value for name, value in test.both.to_dict().items() if name != "count"}
    return {name: float(value) for name, value in figures.items() if value is not None}


def write_results(
    job: Job,
    results: Path,
    settings: TrainSettings,
    model: ConvE,
    done: FitResult,
    test: Evaluation | None,
    report: Reporter,
) -> None:
    write_json(
        results / "config.json",
        {
            "model": dataclasses.asdict(model.config),
            "training": settings.to_dict(),
            "data": {name: job.settings[name] for name in ("dataset", *FILES) if job.settings[name]},
            "optimizations": {"asked": job.levers, "precision": settings.precision},
        },
    )
    write_json(results / "training_history.json", done.history)
    report.artifact(results / "config.json", "config")
    report.artifact(results / "training_history.json", "history")
    if test is not None:
        write_json(results / "test_results.json", test.to_dict())
        report.artifact(results / "test_results.json", "figures")


def _hand_in(job: Job, folder: Path, results: Path, figures: dict[str, float], report: Reporter) -> None:
    """The manifest comes last: with it the run has succeeded, whatever happens to this process."""
    if job.settings["output_dir"]:
        _copy(results, Path(job.settings["output_dir"]))
    report.result(figures)
    report.sync()
    files = sorted(path for path in results.rglob("*") if path.is_file() and not path.name.startswith("."))
    kinds = {".pt": "checkpoint", ".json": "figures", ".sha256": "digest"}
    named = [(path, kinds.get(path.suffix, "file")) for path in files if path.name != "manifest.json"]
    manifest.write(results / "manifest.json", folder, named, figures)
    print(json.dumps(figures), flush=True)


def _copy(results: Path, wanted: Path) -> None:
    """Hard links where the file system allows, so that a large model is not on the disk twice."""

    def link_or_copy(source: str, target: str) -> None:
        Path(target).unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    shutil.copytree(results, wanted, copy_function=link_or_copy, dirs_exist_ok=True)


if __name__ == "__main__":
    run_worker(train)
