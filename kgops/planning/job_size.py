"""Job size: data and model sizes of a job before it starts, from which memory and time are predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.files import read_json
from kgops.jobs.job import Job
from kgops.workloads.explain.memory import ExplainShape, explain_shape
from kgops.workloads.graphs.counts import Counts, counts_of
from kgops.workloads.number_formats import applied_precision
from kgops.workloads.pipeline.job import (
    predict_settings,
    traces_predictions,
    tracin_options,
    tracin_settings,
    train_settings,
)
from kgops.workloads.predict.sizes import PredictShape, lines_of, predict_shape
from kgops.workloads.regress.sizes import Flights, RegressShape, flights_of, regress_shape
from kgops.workloads.tracin.sizes import TracinShape, tracin_shape
from kgops.workloads.train.conve_weights import model_of_config, model_of_settings
from kgops.workloads.train.job import ConvEConfig
from kgops.workloads.train.sizes import TrainShape, train_shape

Shape = TrainShape | PredictShape | TracinShape | ExplainShape | RegressShape  # of one stage of a job
Count = Callable[[Mapping[str, Any]], Counts | None]


@dataclass(frozen=True, slots=True)
class TracinInputs:
    """Model, checkpoints and test triples of a TracIn run, known without torch; of an explain run its predictions."""

    model: ConvEConfig
    trained: Mapping[str, Any]  # settings of its training: `loss`, and the others where known
    checkpoints: int
    tests: int


@dataclass(frozen=True, slots=True)
class JobSize:
    """Sizes of a job. `train`, `predict`, `tracin` and `explain` are its stages as jobs; a pipeline has several. A
    regression has `flights` and no counts."""

    job: Job
    counts: Counts
    train: Job | None
    tracin: Job | None
    tracin_inputs: TracinInputs | None
    flights: Flights | None = None
    predict: Job | None = None
    predict_model: ConvEConfig | None = None
    explain: Job | None = None

    @property
    def trains(self) -> bool:
        """Whether the job has optimizer steps."""
        return self.train is not None or self.flights is not None

    def shapes(self, options: Mapping[str, Any], gpu: GpuFacts | None) -> list[Shape]:
        """Sizes of each stage with these options on this GPU (None: the CPU)."""
        shapes: list[Shape] = []
        if self.flights is not None:
            precision = applied_precision(options.get("precision", "fp32"), gpu)
            shapes.append(regress_shape(_with(self.job, options), self.flights, gpu, precision))
        if self.train is not None:
            training = train_shape(_with(self.train, options), self.counts, gpu)
            shapes += [training] if training else []
        if self.predict is not None and self.predict_model is not None:
            job = _with(self.predict, options if self.train is None else {})
            shapes.append(predict_shape(job, self.counts, self.predict_model, on_gpu=gpu is not None))
        if self.tracin is not None and self.tracin_inputs is not None:
            inputs = self.tracin_inputs
            shapes.append(
                tracin_shape(
                    _with(
                        self.tracin,
                        options if self.train is None else tracin_options(self.job.settings, options),
                    ),
                    self.counts,
                    gpu,
                    inputs.model,
                    trained=inputs.trained,
                    checkpoints=inputs.checkpoints,
                    tests=inputs.tests,
                )
            )
        if self.explain is not None and self.tracin_inputs is not None:
            inputs = self.tracin_inputs
            shapes.append(
                explain_shape(
                    self.explain,
                    self.counts,
                    gpu,
                    inputs.model,
                    trained=inputs.trained,
                    predictions=inputs.tests,
                )
            )
        return shapes


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

    if job.workload == "train":
        return _training(job, count)
    if job.workload == "tracin":
        return _tracin(job, count)
    if job.workload == "explain":
        return _explaining(job, count)
    if job.workload == "predict":
        return _predicting(job, count)
    if job.workload == "regress":
        return _regression(job)
    return _pipeline(job, count)


def is_kgops_conve(job: Job) -> bool | None:
    """Whether a `tracin` job attributes kgops' own ConvE, by the config.json beside the model; None: unknown."""
    if job.settings["skip_tracin"]:
        return True  # without a model: only neighbourhoods are filtered
    config = _config_beside(job.settings)
    return None if config is None else model_of_config(config) is not None


def _with(job: Job, options: Mapping[str, Any]) -> Job:
    return replace(job, options=dict(options))


def _training(job: Job, count: Count) -> JobSize | str:
    if job.settings["engine"] != "kgops":
        return "there is no formula for PyKEEN's models"
    counts = count(job.settings)
    return _unknown_data(job.settings) if counts is None else JobSize(job, counts, job, None, None)


def _regression(job: Job) -> JobSize | str:
    flights = flights_of(job.settings)
    return flights if isinstance(flights, str) else JobSize(job, Counts(0, 0, 0), None, None, None, flights)


def _predicting(job: Job, count: Count) -> JobSize | str:
    config = _config_beside(job.settings)
    model = model_of_config(config) if config is not None else None
    if model is None:
        return _UNKNOWN_MODEL
    counts = count(job.settings)
    if counts is None:
        return _unknown_data(job.settings)
    return JobSize(job, counts, None, None, None, predict=job, predict_model=model)


def _tracin(job: Job, count: Count) -> JobSize | str:
    found = _trained_model(job, count)
    if isinstance(found, str):
        return found
    model, trained, counts = found
    tests = tests_of(job.settings, counts)
    return JobSize(job, counts, None, job, TracinInputs(model, trained, _checkpoints(job.settings), tests))


def _explaining(job: Job, count: Count) -> JobSize | str:
    found = _trained_model(job, count)
    if isinstance(found, str):
        return found
    model, trained, counts = found
    settings = job.settings
    predictions = lines_of(settings["triples"])
    inputs = TracinInputs(model, trained, 1, min(predictions, settings["max_triples"] or predictions))
    return JobSize(job, counts, None, None, inputs, explain=job)


def _trained_model(job: Job, count: Count) -> tuple[ConvEConfig, Mapping[str, Any], Counts] | str:
    """The model that a job attributes, the settings of its training, and the counts of its graph."""
    config = _config_beside(job.settings)
    model = model_of_config(config) if config is not None else None
    if config is None or model is None:
        return _UNKNOWN_MODEL
    counts = count(job.settings)
    if counts is None:
        return _unknown_data(job.settings)
    training = config.get("training")
    return model, {"loss": None, **(training if isinstance(training, dict) else {})}, counts


def _pipeline(job: Job, count: Count) -> JobSize | str:
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
    asked = predict_settings(job.settings, "results/checkpoints", "results/best_model.pt")
    tests = tests_of(trace, counts)
    if asked is not None and traces_predictions(job.settings):
        answers = asked["best"] or lines_of(asked["queries"]) * asked["top_k"]
        tests = min(answers, trace["max_triples"] or answers)
    return JobSize(
        job,
        counts,
        replace(job, workload="train", settings=settings),
        replace(job, workload="tracin", settings=trace),
        TracinInputs(model, trained, checkpoints, tests),
        predict=None if asked is None else replace(job, workload="predict", settings=asked),
        predict_model=model,
    )


_UNKNOWN_MODEL = (
    "there is no config.json beside the model, and only torch could read the model's size from its weights"
)


def _unknown_data(settings: Mapping[str, Any]) -> str:
    if settings.get("dataset"):
        return f"the size of {settings['dataset']} is unknown until it is downloaded"
    return "its triples were not counted: too many (`kgops suggest` counts them once), or not readable"


def _config_beside(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config.json that training wrote beside its models or beside the folder of its checkpoints."""
    candidates = []
    if settings["checkpoint_dir"]:
        folder = Path(settings["checkpoint_dir"])
        candidates += [folder.parent / "config.json", folder / "config.json"]
    if settings["model_path"]:
        candidates.append(Path(settings["model_path"]).parent / "config.json")
    for path in candidates:
        table = read_json(path, follow=True)
        if isinstance(table, dict):
            return table
    return None


def _checkpoints(settings: Mapping[str, Any]) -> int:
    folder = settings["checkpoint_dir"]
    count = sum(1 for _ in Path(folder).glob("checkpoint_epoch_*.pt")) if folder else 1
    return max(1, min(count, settings["last_checkpoints"] or count))


def tests_of(settings: Mapping[str, Any], counts: Counts) -> int:
    """Number of test triples to attribute; for a file its number of lines."""
    if settings["test_triple"]:
        return 1
    limit: int | None = settings["max_triples"]
    count = lines_of(settings["test_triples"]) if settings["test_triples"] else counts.test
    start: int = settings["start_index"]
    count = max(count - start, 0)
    return max(1, count if limit is None else min(count, limit))
