"""A job as a planner sees it: how large its data and its model are, whatever options are pulled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.conve_config import ConvEConfig
from kgops.jobs.files import open_regular, read_json
from kgops.jobs.job import Job
from kgops.jobs.pipeline import TRACED, tracin_settings, train_settings
from kgops.planning.conve_models import model_of_config, model_of_settings
from kgops.planning.flight_files import Flights, flights_of
from kgops.planning.graph_counts import Counts, counts_of
from kgops.planning.number_formats import applied_precision
from kgops.planning.regress_sizes import regress_shape
from kgops.planning.stage_sizes import Shape
from kgops.planning.tracin_sizes import tracin_shape
from kgops.planning.train_sizes import train_shape

__all__ = ["Subject", "Traced", "subject_of", "tests_of", "traces_conve"]

Count = Callable[[Mapping[str, Any]], Counts | None]


@dataclass(frozen=True, slots=True)
class Traced:
    """What a TracIn run works on, as far as it can be told without torch."""

    model: ConvEConfig
    trained: Mapping[str, Any]  # how: its `loss`, and where they are known the other settings
    checkpoints: int
    tests: int


@dataclass(frozen=True, slots=True)
class Subject:
    """`train` and `tracin` are the stages of the job as jobs of their own; a pipeline has both. A regression has
    `flights`, and nothing to count."""

    job: Job
    counts: Counts
    train: Job | None
    tracin: Job | None
    traced: Traced | None
    flights: Flights | None = None

    @property
    def learns(self) -> bool:
        """Whether part of the job follows gradients, batch by batch."""
        return self.train is not None or self.flights is not None

    def shapes(self, options: Mapping[str, Any], gpu: GpuFacts | None) -> list[Shape]:
        """Of each stage, with these options, on this GPU (None: the CPU)."""
        found: list[Shape] = []
        if self.flights is not None:
            precision = applied_precision(options.get("precision", "fp32"), gpu)
            found.append(regress_shape(_with(self.job, options), self.flights, gpu, precision))
        if self.train is not None:
            trained = train_shape(_with(self.train, options), self.counts, gpu)
            found += [trained] if trained else []
        if self.tracin is not None and self.traced is not None:
            told = self.traced
            found.append(
                tracin_shape(
                    _with(self.tracin, options if self.train is None else _traced(options)),
                    self.counts,
                    gpu,
                    told.model,
                    trained=told.trained,
                    checkpoints=told.checkpoints,
                    tests=told.tests,
                )
            )
        return found


def subject_of(job: Job, remembered: Path | None = None, *, most_bytes: int | None = None) -> Subject | str:
    """Of a job that is not a command: its sizes, or why nobody can know them before it starts.

    `remembered` and `most_bytes`: see `counts_of`.
    """

    def count(settings: Mapping[str, Any]) -> Counts | None:
        return counts_of(settings, remembered, most_bytes=most_bytes)

    if job.workload == "train":
        return _training(job, count)
    if job.workload == "tracin":
        return _tracing(job, count)
    if job.workload == "regress":
        return _regression(job)
    return _pipeline(job, count)


def traces_conve(job: Job) -> bool | None:
    """Whether a job `tracin` has kgops' own ConvE before it, by what training wrote beside it; None: nobody knows."""
    if job.settings["skip_tracin"]:
        return True  # no model at all: only the neighbourhoods are looked at
    config = _config_beside(job.settings)
    return None if config is None else model_of_config(config) is not None


def _traced(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in TRACED}


def _with(job: Job, options: Mapping[str, Any]) -> Job:
    return replace(job, options=dict(options))


def _training(job: Job, count: Count) -> Subject | str:
    if job.settings["engine"] != "kgops":
        return "there is no formula for PyKEEN's own models"
    counts = count(job.settings)
    return _unknown_data(job.settings) if counts is None else Subject(job, counts, job, None, None)


def _regression(job: Job) -> Subject | str:
    flights = flights_of(job.settings)
    return flights if isinstance(flights, str) else Subject(job, Counts(0, 0, 0), None, None, None, flights)


def _tracing(job: Job, count: Count) -> Subject | str:
    settings = job.settings
    config = _config_beside(settings)
    model = model_of_config(config) if config is not None else None
    if config is None or model is None:
        return "no config.json beside the model says its shape, and its weights say it only to torch"
    counts = count(settings)
    if counts is None:
        return _unknown_data(settings)
    told = config.get("training")
    trained = {"loss": None, **(told if isinstance(told, dict) else {})}
    traced = Traced(model, trained, _checkpoints(settings), tests_of(settings, counts))
    return Subject(job, counts, None, job, traced)


def _pipeline(job: Job, count: Count) -> Subject | str:
    settings = train_settings(job.settings)
    trace = tracin_settings(job.settings, "results/checkpoints", "results/best_model.pt")
    counts = count(settings)
    if counts is None:
        return _unknown_data(settings)
    every = settings["checkpoint_frequency"]
    kept = settings["num_epochs"] // every if every else 0
    checkpoints = max(1, min(kept, trace["last_checkpoints"] or kept))
    trained = {**settings, **job.options}
    model = model_of_settings(settings, counts)
    return Subject(
        job,
        counts,
        replace(job, workload="train", settings=settings),
        replace(job, workload="tracin", settings=trace),
        Traced(model, trained, checkpoints, tests_of(trace, counts)),
    )


def _unknown_data(settings: Mapping[str, Any]) -> str:
    if settings.get("dataset"):
        return f"the size of {settings['dataset']} is known once it was downloaded and read"
    return "its triples were not counted: too many for a start (`kgops suggest` counts them once), or not readable"


def _config_beside(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """What training wrote beside its models, and beside the folder of its checkpoints."""
    places = []
    if settings["checkpoint_dir"]:
        folder = Path(settings["checkpoint_dir"])
        places += [folder.parent / "config.json", folder / "config.json"]
    if settings["model_path"]:
        places.append(Path(settings["model_path"]).parent / "config.json")
    for place in places:
        table = read_json(place, follow=True)
        if isinstance(table, dict):
            return table
    return None


def _checkpoints(settings: Mapping[str, Any]) -> int:
    folder = settings["checkpoint_dir"]
    found = sum(1 for _ in Path(folder).glob("checkpoint_epoch_*.pt")) if folder else 1
    return max(1, min(found, settings["last_checkpoints"] or found))


def tests_of(settings: Mapping[str, Any], counts: Counts) -> int:
    """Test triples that are traced; of a file as many as it has lines."""
    if settings["test_triple"]:
        return 1
    most: int | None = settings["max_triples"]
    found = counts.test
    if settings["test_triples"]:
        try:
            with os.fdopen(open_regular(Path(settings["test_triples"]), follow=True), "rb") as file:
                found = sum(1 for line in file if line.strip())
        except OSError:
            found = 1  # the worker says what is wrong with the file
    start: int = settings["start_index"]
    found = max(found - start, 0)
    return max(1, found if most is None else min(found, most))
