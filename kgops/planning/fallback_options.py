"""OOM fallback steps of each workload: option values that need less memory, in order, with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kgops.jobs.job import Job
from kgops.jobs.on_device import WorkerDevice, skips_compile
from kgops.jobs.option import Effect
from kgops.workloads.predict.chunk_sizes import PREDICT_CHUNK
from kgops.workloads.regress.chunk_sizes import REGRESS_BATCH, REGRESS_FRAMES
from kgops.workloads.tracin.chunk_sizes import TRACIN_BLOCK, TRACIN_CHUNK
from kgops.workloads.train.chunk_sizes import TRAIN_BATCH, loss_chunk

if TYPE_CHECKING:
    from kgops.gpus.facts import GpuFacts

SMALLEST_CHUNK = 512  # smaller chunks of scores save no memory
SMALLEST_BLOCK = 16
SMALLEST_BATCH = 16
FEWEST_FRAMES = 3  # of a window: with two, no frame lies between
_FEWER_TESTS = (64, 8, 1)
_GRAPH_MODES = ("reduce-overhead", "max-autotune")

Step = tuple[dict[str, Any], str]
"""Options to set, and why that needs less."""


def stages_of(job: Job, gpu: GpuFacts | None) -> Iterator[Stage]:
    """Stages of the job that have fallbacks; none for a command. No `gpu`: the job runs on the CPU."""
    tables = {job.workload: job.settings}
    if job.workload == "pipeline":
        from kgops.workloads.pipeline.job import tracin_settings, train_settings

        whole = tracin_settings(job.settings, "", "")
        tables = {"train": train_settings(job.settings), "tracin": whole}
    for name, settings in tables.items():
        used = None if settings.get("device") == "cpu" else gpu
        if name == "train":
            kind = _PyKEEN if settings["engine"] == "pykeen" else _Train
            yield kind(job, settings, used)
        elif name == "regress":
            yield _Regress(job, settings, used)
        elif name == "predict":
            yield _Predict(job, settings, used)
        elif name == "tracin" and not settings["skip_tracin"]:
            yield _Tracin(job, settings, used)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a job: its options at the `start`, and the fallback `steps` of one effect from the options `now`."""

    job: Job
    settings: Mapping[str, Any]  # of this stage
    gpu: GpuFacts | None

    def start(self, entities: int | None) -> dict[str, Any]:
        raise NotImplementedError

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        raise NotImplementedError

    @property
    def _skips_compile(self) -> bool:
        return self.gpu is None and skips_compile(self.job, WorkerDevice())

    def _precision(self) -> str:
        requested: str = self.job.options.get("precision", "fp32")
        return _half(self.gpu) or requested if requested == "auto" else requested

    def _lower_precision(self, now: Mapping[str, Any]) -> Iterator[Step]:
        half = _half(self.gpu)
        if half is not None and now["precision"] in ("fp32", "tf32"):
            yield {"precision": half}, "half the bytes in matrix products"


class _Train(Stage):
    """ConvE by kgops' own engine."""

    def start(self, entities: int | None) -> dict[str, Any]:
        requested = self.job.options
        batch, device = requested.get("batch_size", TRAIN_BATCH), "cuda" if self.gpu else "cpu"
        return {
            "batch_size": batch,
            "entity_chunk": _chunk(requested, loss_chunk(None, batch, device), entities),
            "gradient_checkpointing": requested.get("gradient_checkpointing", False),
            "cuda_graphs": requested.get("cuda_graphs", False) if self.gpu else False,
            "compile": "off" if self._skips_compile else requested.get("compile", "off"),
            "precision": self._precision(),
        }

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "exact":
            yield from _smaller_chunks(now)
            yield {"cuda_graphs": False}, "a captured CUDA graph keeps its memory"
            if now["compile"] not in _GRAPH_MODES:
                yield {"gradient_checkpointing": True}, "activations are recomputed instead of kept"
        elif effect == "rounding":
            if now["compile"] in _GRAPH_MODES and self.gpu:
                yield {"compile": "default"}, "no memory kept by captured CUDA graphs"
                yield {"gradient_checkpointing": True}, "activations are recomputed instead of kept"
            elif not self.gpu:
                yield {"compile": "off"}, "torch.compile takes memory"
            yield from self._lower_precision(now)
        else:
            yield from _halved("batch_size", now["batch_size"], SMALLEST_BATCH, "fewer examples per step")


class _PyKEEN(Stage):
    """PyKEEN's pipeline: only the batch size changes its memory."""

    def start(self, entities: int | None) -> dict[str, Any]:
        return {"batch_size": self.job.options.get("batch_size", TRAIN_BATCH)}

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "changes results":
            yield from _halved("batch_size", now["batch_size"], SMALLEST_BATCH, "fewer examples per step")


class _Regress(Stage):
    """Image regression, in the order of the original project. A microbatch gives the same step as a whole batch."""

    def start(self, entities: int | None) -> dict[str, Any]:
        requested = self.job.options
        batch = requested.get("batch_size", REGRESS_BATCH)
        microbatch = requested.get("microbatch", "auto")
        return {
            "microbatch": batch if microbatch == "auto" else min(microbatch, batch),
            "temporal_frames": requested.get("temporal_frames", REGRESS_FRAMES),
            "memory_optimized": requested.get("memory_optimized", False),
            "gradient_checkpointing": requested.get("gradient_checkpointing", False),
            "compile": "off" if self._skips_compile else requested.get("compile", "off"),
            "precision": self._precision(),
        }

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        checkpointing = {"gradient_checkpointing": True}, "only one frame's activations are kept"
        graphs = now["compile"] in _GRAPH_MODES
        if effect == "exact" and not graphs:
            yield checkpointing
        elif effect == "rounding":
            if graphs:
                yield {"compile": "default"}, "no memory kept by captured CUDA graphs"
                yield checkpointing
            for windows in _sizes(now["microbatch"], 1):
                yield {"microbatch": windows}, "fewer windows per pass, for the same step"
            yield {"compile": "off"}, "torch.compile takes memory"
            yield from self._lower_precision(now)
        elif effect == "changes results":
            for frames in range(now["temporal_frames"] - 1, FEWEST_FRAMES - 1, -1):
                yield {"temporal_frames": frames}, "fewer frames per window"
            yield {"memory_optimized": True}, "half the channels"


class _Predict(Stage):
    """Questions are scored a block at a time; chunks bound the memory of all pairs, and of PyKEEN's models."""

    def start(self, entities: int | None) -> dict[str, Any]:
        return {"entity_chunk": _chunk(self.job.options, PREDICT_CHUNK, entities)}

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "exact":
            yield from _smaller_chunks(now)


class _Tracin(Stage):
    def start(self, entities: int | None) -> dict[str, Any]:
        requested = self.job.options
        return {
            "block": requested.get("block", TRACIN_BLOCK),
            "entity_chunk": _chunk(requested, TRACIN_CHUNK, entities),
            "tests_at_once": 1 if self._one_test else requested.get("tests_at_once", "auto"),
            "precision": self._precision(),
            "gram_precision": requested.get("gram_precision", "fp32"),
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
            for block in _sizes(now["block"], SMALLEST_BLOCK):
                yield {"block": block}, "fewer training triples scored at once"
            yield from _smaller_chunks(now)
        elif effect == "rounding":
            yield from self._lower_precision(now)
            half = _half(self.gpu)
            if half is not None and now["gram_precision"] == "fp32":
                yield {"gram_precision": half}, "half the bytes in TracIn's two largest products"
        else:
            if not now["last_layers"]:
                yield {"last_layers": 1}, "gradients of the last layer only"
            if not self.settings["self_influence"]:
                yield {"filtering": True}, "only the neighbourhood of each test triple is scored"


def _smaller_chunks(now: Mapping[str, Any]) -> Iterator[Step]:
    for chunk in _sizes(now["entity_chunk"], SMALLEST_CHUNK):
        yield {"entity_chunk": chunk}, "fewer entities scored at once"


def _sizes(start: int, smallest: int) -> Iterator[int]:
    """Powers of two from a quarter of `start` down. Each attempt loads libraries and graph again, so few large steps
    are faster than many small ones."""
    while start > smallest:
        start = max(smallest, 1 << ((start // 4).bit_length() - 1) if start >= 4 else 1)
        yield start


def _halved(option: str, start: int, smallest: int, why: str) -> Iterator[Step]:
    """Halves, one at a time: a step that changes results should change them little."""
    while start // 2 >= smallest:
        start //= 2
        yield {option: start}, why


def _chunk(requested: Mapping[str, Any], usual: int, entities: int | None) -> int:
    wanted = requested.get("entity_chunk", "auto")
    size: int = usual if wanted == "auto" else wanted
    return size if entities is None else min(size, entities)


def _half(gpu: GpuFacts | None) -> str | None:
    """The half precision that this GPU has tensor cores for."""
    capability = None if gpu is None else gpu.compute_capability
    if capability is None or capability < (7, 0):
        return None
    return "bf16" if capability >= (8, 0) else "fp16"
