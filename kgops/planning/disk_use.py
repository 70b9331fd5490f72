"""Predicted disk use of a job by part, from counts and a sample of its text files, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.option_checks import triple_in
from kgops.planning.job_size import tests_of
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.graphs.text_sizes import TextSize, names_of, size_of, size_of_file
from kgops.workloads.predict.job import formats_of as formats_of_predict
from kgops.workloads.predict.sizes import PredictShape
from kgops.workloads.registry import devices_of
from kgops.workloads.regress.memory import MOMENTS
from kgops.workloads.regress.sizes import RegressShape
from kgops.workloads.tracin.chunk_sizes import TRACIN_INFLUENCES_IN_RECORD, TRACIN_TESTS_IN_RECORD
from kgops.workloads.tracin.job import Formats, formats_of, top_k_of
from kgops.workloads.tracin.sizes import TracinShape
from kgops.workloads.train.conve_weights import buffer_bytes, weight_bytes
from kgops.workloads.train.sizes import TrainShape

_RECORD = 25 << 10  # plan, environment, slots, log and the first events of a run
_TRAINING_IN_RECORD = 4 << 10  # beside that: configuration, history and more events
_GROUP_IN_QUALITY = 270  # of a relation, direction or degree in the quality by group
_GROUPS = 10  # of directions and degrees
_SCORE = 14.5  # bytes of a score as text: every second has a sign
_KEY = len(', "score": ')
_LINE = 1
_KEPT_SCORE = 12  # bytes of a score that is kept while a run goes on: the number of its triple, and itself
_KEPT_TEST = 24
_KEPT_FILE = 2 << 10  # of the file that keeps them, and of their list
_PARQUET = 15  # a score does not compress, nor do numbers of triples much
_TEST_IN_JSON = 190  # of a test triple in JSON, beside its labels
_INFLUENCE_IN_RECORD = 32  # of a triple in the record, beside its labels: rank, score, quotes and commas
_TEST_IN_RECORD = 160  # of a test triple there
_CHECKPOINT = 8 << 10  # of a file beside its tensors: names, places, settings
_MOMENTS = {"adam": 2, "adamw": 2, "adagrad": 1, "sgd": 0}
_RESUME_CHECKPOINT = 24 << 10  # of a checkpoint to resume from: moments and random states
_EPOCH_IN_RECORD = 1 << 10  # in the record
_ANSWER_IN_CSV = 50  # of an answer beside its labels and names: rank, score, probability, whether it is known
_ANSWER_IN_JSON = 60
_TEST_IN_SUMMARY = 260  # of a test triple in the summary of a batch


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes in the run's folder by `parts`, when it has most, and `outside` it by the path that a person named.

    `passing` bytes are temporary, such as a checkpoint that replaces another. `at_most`: the total is an upper bound.
    `files` is their number, since each wastes part of a disk block.
    """

    parts: Mapping[str, int]
    outside: Mapping[str, int] = field(default_factory=dict)
    passing: int = 0
    files: int = 0
    at_most: bool = False
    written: int = 0  # of results and their copies, after the work itself

    @property
    def total(self) -> int:
        return sum(self.parts.values()) + sum(self.outside.values())

    def and_then(self, other: DiskUse) -> DiskUse:
        """Of a job that does both; its record is one."""
        parts = dict(self.parts)
        for name, size in other.parts.items():
            parts[name] = parts.get(name, _RECORD if name == "record" else 0) + size
        parts["record"] -= _RECORD
        return DiskUse(
            parts,
            {**self.outside, **other.outside},
            max(self.passing, other.passing),
            self.files + other.files,
            self.at_most or other.at_most,
            self.written + other.written,
        )


@dataclass(frozen=True, slots=True)
class TracinDiskUse:
    """Inputs of a TracIn run's disk use. Use `replace` for another `top_k`."""

    settings: dict[str, Any]
    trains: int
    tests: int
    top_k: int | None
    train_text: TextSize
    test_text: TextSize
    filtered: bool
    devices: bool = False

    def use(self) -> DiskUse:
        results = self._self_influence() if self.settings["self_influence"] else self._influence_files()
        outside = self._copies(results)
        parts = {**results, **self._working_files()}
        passing = 2 * self._pairs * _KEPT_SCORE if self.devices else 0
        of_batch = 2 * self.tests if self._formats.own_files else len(results)
        # A small neighbourhood may have fewer triples than are kept.
        unknown = self.filtered and (self.top_k is None or not self.settings["self_influence"])
        written = sum(results.values()) + sum(outside.values())
        copies = 1 + bool(self.settings["output_dir"])
        return DiskUse(parts, outside, passing, of_batch * copies, unknown, written)

    @property
    def _formats(self) -> Formats:
        return formats_of(self.settings)

    @property
    def _best(self) -> int:
        """Influences of a test triple."""
        only_filters = self.settings["skip_tracin"]
        return self.trains if self.top_k is None or only_filters else min(self.top_k, self.trains)

    @property
    def _pairs(self) -> int:
        return 0 if self.settings["self_influence"] else self._best * self.tests

    @property
    def _row(self) -> tuple[float, float]:
        """Bytes of a training triple and its score, in CSV and in JSON."""
        csv = self.train_text.csv + 1 + _SCORE + _LINE
        return csv, self.train_text.json + _KEY + _SCORE + 1 + _LINE

    def _self_influence(self) -> dict[str, int]:
        csv, as_json = self._row
        row_bytes = {"CSV": self._formats.csv * csv, "JSON": self._formats.json * as_json}
        # No influence on itself is negative.
        return {name: round((row - 0.5) * self._best) for name, row in row_bytes.items() if row}

    def _influence_files(self) -> dict[str, int]:
        formats, pairs = self._formats, self._pairs
        csv, as_json = self._row
        test_bytes = round(self.tests * (self.test_text.json + _TEST_IN_JSON))
        sizes = {}
        if formats.csv:
            sizes["CSV"] = round((self.test_text.csv + 1 + csv) * pairs)
        if formats.json:
            sizes["JSON"] = round(as_json * pairs) + test_bytes
        if formats.parquet:
            sizes["Parquet"] = _PARQUET * pairs
        if formats.own_files and self.settings["skip_tracin"]:
            lines = round((self.train_text.labels + 3) * pairs)
            sizes["files of the batch"] = lines + test_bytes + _TEST_IN_SUMMARY * self.tests
        elif formats.own_files:
            rows = as_json + (0 if formats.parquet else self.test_text.csv + 1 + csv)
            sizes["files of the batch"] = round(rows * pairs) + test_bytes + _TEST_IN_SUMMARY * self.tests
        return sizes

    def _working_files(self) -> dict[str, int]:
        """While it goes on, and in its record."""
        if self.settings["self_influence"]:
            return {"record": _RECORD}
        tests_in_record = min(self.tests, TRACIN_TESTS_IN_RECORD)
        per_side = TRACIN_INFLUENCES_IN_RECORD
        # Of each side so many: where few are kept, all of them may be of one side.
        influences = (
            (min(self._best, per_side) + min(self._best, 2 * per_side)) / 2 if self.top_k else 2 * per_side
        )
        if self.settings["skip_tracin"]:
            influences = 0  # there are no scores to tell
        bytes_per_test = (
            _TEST_IN_RECORD
            + self.test_text.labels
            + influences * (self.train_text.labels + _INFLUENCE_IN_RECORD)
        )
        return {
            "scores until it has ended": _KEPT_SCORE * self._pairs + _KEPT_TEST * self.tests + _KEPT_FILE,
            "record": _RECORD + round(tests_in_record * bytes_per_test),
        }

    def _copies(self, results: Mapping[str, int]) -> dict[str, int]:
        copies: dict[str, int] = {}
        for name, part in (("output", "JSON"), ("csv_output", "CSV")):
            if self.settings[name]:
                copies[self.settings[name]] = results.get(part, 0)
        if self.settings["output_dir"]:
            copies[self.settings["output_dir"]] = sum(results.values())
        return copies


def tracin_disk_use(
    job: Job, counts: Counts, files: Mapping[str, Path], shape: TracinShape | None
) -> TracinDiskUse | None:
    """Of a job `tracin`; `files` are its triples. None where their text cannot be read."""
    settings = job.settings
    names = names_of(settings["node_name_dict"], settings["edge_map"])
    train = size_of_file(files["train"], names)
    if train is None:
        return None
    tests = None
    if settings["test_triple"]:
        triple = triple_in(settings["test_triple"])
        tests = size_of([] if triple is None else [triple], names)
    elif settings["test_triples"] or "test" in files:
        named = settings["test_triples"]
        tests = size_of_file(Path(named) if named else files["test"], names)
    filtered = bool(job.options.get("filtering", bool(settings["test_triples"])))
    many = devices_of(job) != 1
    # The predictions that a pipeline traces are in no file yet.
    traced = tests_of(settings, counts) if shape is None else shape.tests
    return TracinDiskUse(
        settings,
        counts.train,
        traced,
        top_k_of(settings),
        train,
        tests or train,
        filtered,
        many,
    )


def training_disk_use(job: Job, shape: TrainShape, seconds: float) -> DiskUse:
    """`seconds` is about how long it takes: one that goes on for longer has a point to resume from before its last."""
    settings = job.settings
    every = settings["checkpoint_frequency"]
    tracin_checkpoints = settings["num_epochs"] // every if every else 0
    model = weight_bytes(shape.model) + buffer_bytes(shape.model) + _CHECKPOINT
    moments = _MOMENTS.get(shape.optimizer, 2)
    resume_checkpoint = model + moments * weight_bytes(shape.model) + _RESUME_CHECKPOINT - _CHECKPOINT
    resume_checkpoints = 2 if seconds >= settings["resume_every"] else 1
    parts = {
        "checkpoints for TracIn": tracin_checkpoints * model,
        "models": (1 + shape.validates) * model,
        "points to resume from": resume_checkpoints * resume_checkpoint,
        "record": _RECORD + _TRAINING_IN_RECORD + _EPOCH_IN_RECORD * settings["num_epochs"],
    }
    if shape.test:
        parts["quality"] = _GROUP_IN_QUALITY * (min(shape.model.num_relations, shape.test) + _GROUPS)
    copied = (tracin_checkpoints + 1 + shape.validates) * model
    outside = {settings["output_dir"]: copied} if settings["output_dir"] else {}
    # The next is whole before the one that it replaces goes.
    return DiskUse(parts, outside, (3 - resume_checkpoints) * resume_checkpoint, 2 * (tracin_checkpoints + 4))


def predict_disk_use(job: Job, shape: PredictShape, files: Mapping[str, Path]) -> DiskUse | None:
    """Of a job `predict`; `files` are its triples. None where their text cannot be read."""
    settings = job.settings
    text = size_of_file(files["train"], names_of(settings["node_name_dict"], settings["edge_map"]))
    if text is None:
        return None
    answers = shape.questions * shape.listed
    csv = round((text.csv + _ANSWER_IN_CSV) * answers)
    other = {".json": round((text.json + _ANSWER_IN_JSON) * answers), ".parquet": round(text.csv * answers)}
    formats = formats_of_predict(settings)
    results = {"CSV": csv, "triples": round(2 * (text.labels + 3) * answers)}
    results |= {form[1:].upper(): other[form] for form in formats if form in other}
    outside = {settings["output"]: other.get(formats[-1], csv)} if settings["output"] else {}
    if settings["output_dir"]:
        outside[settings["output_dir"]] = sum(results.values())
    written = sum(results.values()) + sum(outside.values())
    # Among few candidates, or where few are new, a question has fewer answers.
    return DiskUse({**results, "record": _RECORD}, outside, 0, len(results) + 2, True, written)


def regression_disk_use(job: Job, shape: RegressShape, flights: int) -> DiskUse:
    settings = job.settings
    weights = 4 * shape.model.parameters
    stages = settings["pretrain"] + settings["final"] + (flights if settings["loo"] else 0)
    model = weights + _CHECKPOINT
    resume_checkpoint = model + MOMENTS.get(shape.optimizer, 2) * weights + _RESUME_CHECKPOINT - _CHECKPOINT
    parts = {"models": stages * model, "points to resume from": 2 * resume_checkpoint, "record": 2 * _RECORD}
    folder = settings["output_directory"]
    outside = {folder: stages * model} if folder else {}
    return DiskUse(parts, outside, resume_checkpoint, stages + 8)
