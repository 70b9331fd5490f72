"""What planning asks of a predict run: sizes, memory, time, disk use, OOM fallbacks, applied options."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.jobs.option import Effect
from kgops.workloads.graphs.counts import Counts, files_of, lines_of
from kgops.workloads.graphs.text_sizes import names_of, size_of_file
from kgops.workloads.memory.budget import Moments, Parts, bounded, larger
from kgops.workloads.memory.phases import PeakMemory
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
    nothing,
    smaller_chunks,
    timed,
    with_options,
)
from kgops.workloads.predict.job import (
    PREDICT_CHUNK,
    PREDICT_ENCODED,
    PREDICT_PAIRS_AGAIN,
    PREDICT_SCORES,
    PREDICT_SPARE,
    PREDICT_WAITING,
    formats_of,
    lists_new_alone,
    predict_options,
)
from kgops.workloads.tracin.memory import known_triples, loaded, model_bytes
from kgops.workloads.train.models import ModelConfig, kernel
from kgops.workloads.train.plan import trained_model


@dataclass(frozen=True, slots=True)
class PredictShape:
    """Questions to one ConvE, or with `pairs` all pairs of a relation. `kept` answers of each question are scored
    again, at most; `listed` are written."""

    workload: ClassVar[str] = "predict"

    model: ModelConfig
    on_gpu: bool
    counts: Counts
    questions: int
    kept: int
    listed: int
    pairs: bool
    chunk: int
    parquet: bool = False
    new_alone: bool = False  # known answers are left out

    @property
    def at_once(self) -> int:
        """Questions of a block."""
        fitting = PREDICT_SCORES // max(self.model.num_entities, 1)
        return max(1, min(PREDICT_ENCODED, fitting, self.questions))


def predict_shape(job: Job, counts: Counts, model: ModelConfig, *, on_gpu: bool) -> PredictShape:
    settings = job.settings
    chunk = job.options.get("entity_chunk", "auto")
    entities = model.num_entities
    pairs = settings["best"] is not None
    listed: int = settings["best"] if pairs else min(settings["top_k"], entities)
    kept = listed + PREDICT_SPARE
    return PredictShape(
        model,
        on_gpu,
        counts,
        1
        if pairs
        else lines_of(settings["node_types" if settings["each"] else "queries"], settings["each"] or ""),
        kept if pairs else min(kept, entities),
        listed,
        pairs,
        min(PREDICT_CHUNK if chunk == "auto" else chunk, entities),
        ".parquet" in formats_of(settings),
        lists_new_alone(settings) and not pairs,
    )


_ID = 8
_ROW = 3 * _ID
# Of an answer in columns, and of the order in which triples are written; rows come one by one.
_ANSWER = 110
_ARROW = 72 << 20  # pyarrow, imported before anything is asked
# A CPU's convolution writes whole groups of so many channels, then copies them out. With AVX-512 they are as wide as
# this, on other CPUs half as wide, or there are none.
_ONEDNN_CHANNELS = 16


def moments(s: PredictShape) -> Moments:
    """Phases of `kgops.maths.predict.worker`, from the model to the rows that are written."""
    n = s.counts.train + s.counts.valid + s.counts.test
    run = Moments(Counter(data=0 if s.on_gpu else _ROW * n))
    run.held["workspace"] += _ARROW if s.parquet and not s.on_gpu else 0
    run.add("loading", loaded(s.model), Counter(checkpoint=model_bytes(s.model)))
    run.held += loaded(s.model)
    if not s.on_gpu:  # `KnownTriples` stays on the host
        known_triples(run, "predict", n, answers=s.new_alone)
        run.add("writing", Counter(scores=_ANSWER * s.questions * s.listed))
    for parts in ranking(s):
        run.add("predict", parts)
    return run


def ranking(s: PredictShape) -> Iterator[Parts]:
    """Scores and the best of them, apart from the model."""
    entities, vector = s.model.num_entities, 4 * s.model.embedding_dim
    rows = min(PREDICT_ENCODED, entities)
    if s.pairs:  # `best_pairs`: the first chunk, whose scores are all among the best so far
        yield encoded(s, rows)
        plane, best = rows * s.chunk, (4 + _ID) * (s.kept + PREDICT_WAITING)
        # Scores and a copy, what is above the worst so far, where it is, its scores, its keys with two addends.
        yield Counter(evaluation=vector * rows, scores=best + (3 * 4 + 1 + 5 * _ID) * plane)
        return
    # `_Ranking.of_block`, the largest; without inverse relations as if heads were asked.
    held: Parts = Counter(evaluation=0 if s.model.inverse else vector * entities)
    if not s.model.inverse:
        yield encoded(s, rows)
        yield Counter(evaluation=2 * vector * entities)
    yield held + encoded(s, s.at_once)
    plane, kept = 4 * s.at_once * entities, s.at_once * s.kept
    held += Counter(evaluation=vector * s.at_once, scores=plane)
    before = (4 + _ID) * kept + (4 + 3 * _ID) * s.questions * s.kept  # with answers of the blocks before
    again = min(PREDICT_PAIRS_AGAIN, kept)
    exactly = 3 * vector * again + 3 * _ID * kept
    yield held + Counter(
        scores=max(plane, before + max(exactly, (2 * 4 + 4 * _ID) * s.kept))
    )  # exp of all for softmax


def encoded(s: PredictShape, rows: int) -> Parts:
    """`ConvE.encode`, at its convolution: there most is alive."""
    c: ModelConfig = s.model
    vectors, maps = 4 * rows * c.embedding_dim, 4 * rows * c.features
    padded = -(-c.output_channels // _ONEDNN_CHANNELS) * _ONEDNN_CHANNELS
    inside = maps if s.on_gpu else 4 * rows * padded * c.map_height * c.map_width
    outside: Parts = Counter(evaluation=max(6 * vectors, 2 * vectors + 2 * maps))
    if s.on_gpu:
        return larger(outside, Counter(evaluation=4 * vectors + 2 * maps))
    return larger(outside, Counter(evaluation=4 * vectors + maps, workspace=inside if rows > 1 else 0))


EXACT = {"entity_chunk": (512, 1024, 8192, 32768)}


rounding_choices = smaller_results = nothing


def stages(job: Job, count: Count) -> list[Stage] | str:
    found = trained_model(job, count)
    return found if isinstance(found, str) else [stage_of(job, found[2], found[0])]


def stage_of(job: Job, counts: Counts, model: ModelConfig) -> Stage:
    def shape(options: Options, gpu: GpuFacts | None, counts: Counts) -> PredictShape:
        return predict_shape(with_options(job, options), counts, model, on_gpu=gpu is not None)

    return Stage(job, counts, shape)


def peak_memory(shape: PredictShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    return bounded(moments(shape), gpu, on_gpu=shape.on_gpu, expandable=expandable)


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    del processes  # it has one
    return predict_options(job, device)


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    return [PredictFallbacks.of(job, job.settings, gpu)]


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
    # Among few candidates, or where few are new, a question has fewer answers.
    return DiskUse({**results, "record": RECORD}, outside, 0, len(results) + 2, True)
