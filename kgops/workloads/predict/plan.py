"""What planning asks of a predict run: sizes, time, disk use, OOM fallbacks, applied options."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.jobs.option import Effect
from kgops.workloads.graphs.counts import Counts, files_of
from kgops.workloads.graphs.text_sizes import names_of, size_of_file
from kgops.workloads.memory.peak import PeakMemory
from kgops.workloads.plan import (
    RECORD,
    Count,
    DiskUse,
    Fallbacks,
    Options,
    Rates,
    Stage,
    Step,
    StepTime,
    chunk,
    smaller_chunks,
    timed,
    with_options,
)
from kgops.workloads.predict import memory
from kgops.workloads.predict.job import formats_of, predict_options
from kgops.workloads.predict.options import PREDICT_CHUNK
from kgops.workloads.predict.sizes import PredictShape, predict_shape
from kgops.workloads.train.conve_weights import kernel
from kgops.workloads.train.job import ConvEConfig
from kgops.workloads.train.trained import trained_model

EXACT = {"entity_chunk": (512, 1024, 8192, 32768)}


def stages(job: Job, count: Count) -> list[Stage] | str:
    found = trained_model(job, count)
    return found if isinstance(found, str) else [stage_of(job, found[2], found[0])]


def stage_of(job: Job, counts: Counts, model: ConvEConfig) -> Stage:
    def shape(options: Options, gpu: GpuFacts | None, counts: Counts) -> PredictShape:
        return predict_shape(with_options(job, options), counts, model, on_gpu=gpu is not None)

    return Stage(job, counts, shape)


def peak_memory(shape: PredictShape, gpu: GpuFacts | None, *, resumed: bool, expandable: bool) -> PeakMemory:
    del resumed  # it starts again
    return memory.peak_memory(shape, gpu, expandable=expandable)


def rounding_choices(options: Options, *, on_gpu: bool) -> Iterator[dict[str, Any]]:
    yield from ()


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    del processes  # it has one
    return predict_options(job, device)


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    return [PredictFallbacks.of(job, job.settings, gpu)]


def smaller_results(job: Job, counts: Counts) -> Iterator[tuple[str, Any]]:
    yield from ()


_QUESTIONS_KERNELS, _QUESTION_KERNELS = 37, 3  # of a block of questions, and of each
_PAIRS_KERNELS, _PAIRS_CHUNK_KERNELS = 35, 11


def step_time(shape: PredictShape, rates: Rates) -> StepTime:
    """Encoder forward for each question, or for each head of all pairs, and its scores of all entities."""
    model, asked = shape.model, min(_asked(shape), shape.at_once)
    encoder = 2 * asked * model.features * (kernel(model) + model.embedding_dim)
    scores = 2 * asked * model.num_entities * model.embedding_dim
    traffic = 2 * 4 * asked * model.num_entities / rates.bandwidth
    kernels = _QUESTIONS_KERNELS + _QUESTION_KERNELS * asked
    if shape.pairs:
        kernels = _PAIRS_KERNELS + _PAIRS_CHUNK_KERNELS * math.ceil(model.num_entities / shape.chunk)
    return timed((encoder + scores) / rates.of("fp32"), traffic, kernels, rates)


def _asked(shape: PredictShape) -> int:
    """Questions, or heads of all pairs."""
    return max(1, shape.model.num_entities if shape.pairs else shape.questions)


def steps(shape: PredictShape) -> int:
    """Blocks of questions."""
    return math.ceil(_asked(shape) / shape.at_once)


class PredictFallbacks(Fallbacks):
    """Questions are scored a block at a time; chunks bound the memory of all pairs, and of PyKEEN's models."""

    def start(self, entities: int | None) -> dict[str, Any]:
        return {"entity_chunk": chunk(self.job.options, PREDICT_CHUNK, entities)}

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "exact":
            yield from smaller_chunks(now)


_ANSWER_IN_CSV = 50  # of an answer beside its labels and names: rank, score, probability, whether it is known
_ANSWER_IN_JSON = 60


def disk_use(job: Job, counts: Counts, shape: PredictShape | None, seconds: float) -> DiskUse | None:
    """None where the text of its triples cannot be read."""
    settings = job.settings
    files = files_of(settings)
    if shape is None or files is None:
        return None
    text = size_of_file(files["train"], names_of(settings["node_name_dict"], settings["edge_map"]))
    if text is None:
        return None
    answers = shape.questions * shape.listed
    csv = round((text.csv + _ANSWER_IN_CSV) * answers)
    other = {".json": round((text.json + _ANSWER_IN_JSON) * answers), ".parquet": round(text.csv * answers)}
    formats = formats_of(settings)
    results = {"CSV": csv, "triples": round(2 * (text.labels + 3) * answers)}
    results |= {form[1:].upper(): other[form] for form in formats if form in other}
    outside = {settings["output"]: other.get(formats[-1], csv)} if settings["output"] else {}
    if settings["output_dir"]:
        outside[settings["output_dir"]] = sum(results.values())
    written = sum(results.values()) + sum(outside.values())
    # Among few candidates, or where few are new, a question has fewer answers.
    return DiskUse({**results, "record": RECORD}, outside, 0, len(results) + 2, True, written)
