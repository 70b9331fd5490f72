"""What planning asks of a TracIn run: sizes, time, disk use, OOM fallbacks, applied options."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.jobs.option import Effect, triple_in
from kgops.workloads.graphs.counts import Counts, files_of
from kgops.workloads.graphs.text_sizes import TextSize, names_of, size_of, size_of_file
from kgops.workloads.memory.phases import PeakMemory
from kgops.workloads.plan import (
    RECORD,
    SCORE_PASSES,
    Count,
    DiskUse,
    Fallbacks,
    Options,
    Rates,
    Stage,
    Step,
    StepTime,
    chunk,
    nothing,
    sizes,
    smaller_chunks,
    spilled,
    timed,
    with_options,
)
from kgops.workloads.tracin import memory
from kgops.workloads.tracin.job import Formats, formats_of, single_device_reason, top_k_of, tracin_options
from kgops.workloads.tracin.options import (
    TRACIN_BLOCK,
    TRACIN_CHUNK,
    TRACIN_INFLUENCES_IN_RECORD,
    TRACIN_TESTS_IN_RECORD,
)
from kgops.workloads.tracin.sizes import TracinShape, tests_of, tracin_shape
from kgops.workloads.train.models import ModelConfig, kernel, model_of_config, step_gflop, threads_for
from kgops.workloads.train.plan import config_beside, trained_model

EXACT = {
    "entity_chunk": (512, 1024, 8192, 32768),
    "block": (32, 64, 128, 512, 1024),
    "tests_at_once": (512, 64, 8),
}
_TOP_K_OFFERED = (10_000, 1_000, 100, 10)


def stages(job: Job, count: Count) -> list[Stage] | str:
    found = trained_model(job, count)
    if isinstance(found, str):
        return found
    model, trained, counts = found
    return [stage_of(job, counts, model, trained, _checkpoints(job.settings), tests_of(job.settings, counts))]


def stage_of(
    job: Job, counts: Counts, model: ModelConfig, trained: Mapping[str, Any], checkpoints: int, tests: int
) -> Stage:
    def shape(options: Options, gpu: GpuFacts | None, counts: Counts) -> TracinShape:
        with_these = with_options(job, options)
        return tracin_shape(
            with_these, counts, gpu, model, trained=trained, checkpoints=checkpoints, tests=tests
        )

    return Stage(job, counts, shape)


def is_kgops_conve(job: Job) -> bool | None:
    """Whether the job attributes kgops' own ConvE, by the config.json next to the model; None: unknown."""
    if job.settings["skip_tracin"]:
        return True  # without a model: only neighbourhoods are filtered
    config = config_beside(job.settings)
    return None if config is None else model_of_config(config) is not None


def peak_memory(shape: TracinShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    return memory.peak_memory(shape, gpu, expandable=expandable)


rounding_choices = nothing


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    why = single_device_reason(job.settings)
    if why is not None and job.options.get("devices", 1) != 1:
        processes = 1, why
    return tracin_options(job, device, *processes, factored=is_kgops_conve(job))


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    return fallbacks_of(job, job.settings, gpu)


def fallbacks_of(job: Job, settings: Mapping[str, Any], gpu: GpuFacts | None) -> list[Fallbacks]:
    """Of a job with this TracIn stage."""
    return [] if settings["skip_tracin"] else [TracinFallbacks.of(job, settings, gpu)]


def smaller_results(job: Job, counts: Counts) -> Iterator[tuple[str, Any]]:
    most = top_k_of(job.settings) or counts.train
    yield from (("top_k", k) for k in _TOP_K_OFFERED if k < most)


def _checkpoints(settings: Mapping[str, Any]) -> int:
    folder = settings["checkpoint_dir"]
    count = sum(1 for _ in Path(folder).glob("checkpoint_epoch_*.pt")) if folder else 1
    return max(1, min(count, settings["last_checkpoints"] or count))


_BLOCK_KERNELS = {"target": 118, "entities": 129}
_BLOCK_CHUNK_KERNELS = 11


def step_time(shape: TracinShape, rates: Rates) -> StepTime:
    model = shape.model
    # Encoder forward and backward for each distinct query, scores over entities where the loss has them.
    groups = _queries_of_a_block(shape)
    encoder = 6 * groups * (model.features * (kernel(model) + model.embedding_dim))
    over_entities = shape.loss != "target"
    scored = model.num_entities if over_entities else 0
    scores = 6 * groups * scored * model.embedding_dim
    chunks = math.ceil(scored / shape.chunk)
    pairs = shape.rows_each**2 * max(shape.block, 1) * _tests_of_a_block(shape)
    gram = 4 * pairs * (model.features + model.embedding_dim)
    traffic = SCORE_PASSES * 4 * spilled(groups * min(shape.chunk, max(scored, 1)), rates) * chunks
    threads = threads_for(step_gflop(model, shape.block) / 2, rates.cores)
    operations = (encoder + scores + gram) / rates.of("fp32") / threads
    kernels = _BLOCK_KERNELS["entities" if over_entities else "target"] + _BLOCK_CHUNK_KERNELS * chunks
    return timed(operations, traffic / rates.bandwidth, kernels, rates)


def _queries_of_a_block(shape: TracinShape) -> int:
    """On average. Triples are sorted by their queries for tails; of those for heads nearly each triple has its own."""
    tails = shape.counts.tails
    if not tails.answers:
        return shape.groups
    forward = math.ceil(shape.block * tails.queries / tails.answers)
    return min(shape.groups, forward + shape.block if shape.both_directions else forward)


def _tests_of_a_block(shape: TracinShape) -> int:
    return shape.tests_of_a_block if shape.does == "trace" else 1


def steps(shape: TracinShape) -> int:
    """Blocks of training triples, over all tests and checkpoints."""
    tests = shape.tests if shape.does == "trace" else 1  # self-influence
    tiles = math.ceil(tests / max(_tests_of_a_block(shape), 1))
    blocks = math.ceil(shape.counts.train / max(shape.block, 1))
    return shape.checkpoints * tiles * blocks


SMALLEST_BLOCK = 16
_FEWER_TESTS = (64, 8, 1)


class TracinFallbacks(Fallbacks):
    def start(self, entities: int | None) -> dict[str, Any]:
        requested = self.job.options
        return {
            "block": requested.get("block", TRACIN_BLOCK),
            "entity_chunk": chunk(requested, TRACIN_CHUNK, entities),
            "tests_at_once": 1 if self._one_test else requested.get("tests_at_once", "auto"),
            "precision": self._precision(),
            "last_layers": True if self.settings["layers"] else requested.get("last_layers", False),
            "filtering": requested.get("filtering", bool(self.settings["test_triples"])),
        }

    @property
    def _one_test(self) -> bool:
        requested = self.settings
        return bool(requested["test_triple"] or requested["self_influence"])

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "exact":
            for tests in _FEWER_TESTS:
                yield {"tests_at_once": tests}, "fewer test triples scored at once"
            for block in sizes(now["block"], SMALLEST_BLOCK):
                yield {"block": block}, "fewer training triples scored at once"
            yield from smaller_chunks(now)
        elif effect == "rounding":
            yield from self._lower_precision(now)
        else:
            if not now["last_layers"]:
                yield {"last_layers": 1}, "gradients of the last layer only"
            if not self.settings["self_influence"]:
                yield {"filtering": True}, "only the neighbourhood of each test triple is scored"


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
_TEST_IN_SUMMARY = 260  # of a test triple in the summary of a batch


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
        copies = 1 + bool(self.settings["output_dir"])
        return DiskUse(parts, outside, passing, of_batch * copies, unknown)

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
            return {"record": RECORD}
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
            "record": RECORD + round(tests_in_record * bytes_per_test),
        }

    def _copies(self, results: Mapping[str, int]) -> dict[str, int]:
        copies: dict[str, int] = {}
        for name, part in (("output", "JSON"), ("csv_output", "CSV")):
            if self.settings[name]:
                copies[self.settings[name]] = results.get(part, 0)
        if self.settings["output_dir"]:
            copies[self.settings["output_dir"]] = sum(results.values())
        return copies


def disk_use(job: Job, counts: Counts, shape: TracinShape | None, seconds: float) -> DiskUse | None:
    """None where the text of its triples cannot be read. The triples decide, whatever the model."""
    settings = job.settings
    files = files_of(settings)
    if files is None:
        return None
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
    many = job.options.get("devices", 1) != 1
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
    ).use()
