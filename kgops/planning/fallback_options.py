"""What each workload can give up for memory, in which order, and why that needs less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs import chunk_sizes
from kgops.jobs.job import Job
from kgops.jobs.on_device import Place, works_without
from kgops.jobs.options import Effect

__all__ = ["SMALLEST_CHUNK", "Stage", "Step", "stages_of"]

SMALLEST_CHUNK = 512  # below it a plane of scores is smaller than what lies around it
SMALLEST_BLOCK = 16
SMALLEST_BATCH = 16
FEWEST_FRAMES = 3  # of a window; with two, there is none between
_FEWER_TESTS = (64, 8, 1)
_GRAPH_MODES = ("reduce-overhead", "max-autotune")

Step = tuple[dict[str, Any], str]
"""Options to set, and why that needs less."""


def stages_of(job: Job, gpu: GpuFacts | None) -> Iterator[Stage]:
    """Of the job; none of a command, and none that is skipped. No `gpu`: it runs on the CPU."""
    tables = {job.workload: job.settings}
    if job.workload == "pipeline":
        from kgops.jobs.pipeline import tracin_settings, train_settings

        whole = tracin_settings(job.settings, "", "")
        tables = {"train": train_settings(job.settings), "tracin": whole}
    for name, settings in tables.items():
        used = None if settings.get("device") == "cpu" else gpu
        if name == "train":
            kind = _PyKEEN if settings["engine"] == "pykeen" else _Train
            yield kind(job, settings, used)
        elif name == "regress":
            yield _Regress(job, settings, used)
        elif name == "tracin" and not settings["skip_tracin"]:
            yield _Tracin(job, settings, used)


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the job: its options at the `start`, and the `steps` of one effect from where they are `now`."""

    job: Job
    settings: Mapping[str, Any]  # of this stage alone
    gpu: GpuFacts | None

    def start(self, entities: int | None) -> dict[str, Any]:
        raise NotImplementedError

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        raise NotImplementedError

    @property
    def _leaves_compiling(self) -> bool:
        return self.gpu is None and works_without(self.job, Place())

    def _precision(self) -> str:
        asked: str = self.job.options.get("precision", "fp32")
        return _half(self.gpu) or asked if asked == "auto" else asked

    def _lower_precision(self, now: Mapping[str, Any]) -> Iterator[Step]:
        half = _half(self.gpu)
        if half is not None and now["precision"] in ("fp32", "tf32"):
            yield {"precision": half}, "half the bytes in the heavy products"


class _Train(Stage):
    """ConvE by kgops' own engine."""

    def start(self, entities: int | None) -> dict[str, Any]:
        asked = self.job.options
        batch, device = asked.get("batch_size", chunk_sizes.TRAIN_BATCH), "cuda" if self.gpu else "cpu"
        return {
            "batch_size": batch,
            "entity_chunk": _chunk(asked, chunk_sizes.loss_chunk(None, batch, device), entities),
            "gradient_checkpointing": asked.get("gradient_checkpointing", False),
            "cuda_graphs": asked.get("cuda_graphs", False) if self.gpu else False,
            "compile": "off" if self._leaves_compiling else asked.get("compile", "off"),
            "precision": self._precision(),
        }

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "exact":
            yield from _smaller_chunks(now)
            yield {"cuda_graphs": False}, "a captured step keeps its memory for itself"
            if now["compile"] not in _GRAPH_MODES:
                yield {"gradient_checkpointing": True}, "activations are computed again instead of kept"
        elif effect == "rounding":
            if now["compile"] in _GRAPH_MODES and self.gpu:
                yield {"compile": "default"}, "without the memory that captured graphs keep"
                yield {"gradient_checkpointing": True}, "activations are computed again instead of kept"
            elif not self.gpu:
                yield {"compile": "off"}, "compiling takes memory of its own"
            yield from self._lower_precision(now)
        else:
            yield from _halved("batch_size", now["batch_size"], SMALLEST_BATCH, "fewer examples in a step")


class _PyKEEN(Stage):
    """PyKEEN's pipeline honours no option of memory but the batch."""

    def start(self, entities: int | None) -> dict[str, Any]:
        return {"batch_size": self.job.options.get("batch_size", chunk_sizes.TRAIN_BATCH)}

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "changes results":
            yield from _halved("batch_size", now["batch_size"], SMALLEST_BATCH, "fewer examples in a step")


class _Regress(Stage):
    """In the order of the project it comes from; a batch in pieces finds the same as the batch in one."""

    def start(self, entities: int | None) -> dict[str, Any]:
        asked = self.job.options
        batch = asked.get("batch_size", chunk_sizes.REGRESS_BATCH)
        pieces = asked.get("microbatch", "auto")
        return {
            "microbatch": batch if pieces == "auto" else min(pieces, batch),
            "temporal_frames": asked.get("temporal_frames", chunk_sizes.REGRESS_FRAMES),
            "memory_optimized": asked.get("memory_optimized", False),
            "gradient_checkpointing": asked.get("gradient_checkpointing", False),
            "compile": "off" if self._leaves_compiling else asked.get("compile", "off"),
            "precision": self._precision(),
        }

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        again = {"gradient_checkpointing": True}, "activations of one frame at a time are kept"
        graphs = now["compile"] in _GRAPH_MODES
        if effect == "exact" and not graphs:
            yield again
        elif effect == "rounding":
            if graphs:
                yield {"compile": "default"}, "without the memory that captured graphs keep"
                yield again
            for windows in _sizes(now["microbatch"], 1):
                yield {"microbatch": windows}, "fewer windows at a time, for the same step"
            yield {"compile": "off"}, "compiling takes memory of its own"
            yield from self._lower_precision(now)
        elif effect == "changes results":
            for frames in range(now["temporal_frames"] - 1, FEWEST_FRAMES - 1, -1):
                yield {"temporal_frames": frames}, "fewer frames in a window"
            yield {"memory_optimized": True}, "half the channels"


class _Tracin(Stage):
    def start(self, entities: int | None) -> dict[str, Any]:
        asked = self.job.options
        return {
            "block": asked.get("block", chunk_sizes.TRACIN_BLOCK),
            "entity_chunk": _chunk(asked, chunk_sizes.TRACIN_CHUNK, entities),
            "tests_at_once": 1 if self._one_test else asked.get("tests_at_once", "auto"),
            "precision": self._precision(),
            "gram_precision": asked.get("gram_precision", "fp32"),
            "last_layers": True if self.settings["layers"] else asked.get("last_layers", False),
            "filtering": asked.get("filtering", bool(self.settings["test_triples"])),
        }

    @property
    def _one_test(self) -> bool:
        asked = self.settings
        return bool(asked["test_triple"] or asked["self_influence"] or asked["build_index"])

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "exact":
            for tests in _FEWER_TESTS:
                yield {"tests_at_once": tests}, "what is kept of fewer test triples at a time"
            for block in _sizes(now["block"], SMALLEST_BLOCK):
                yield {"block": block}, "fewer training triples at a time"
            yield from _smaller_chunks(now)
        elif effect == "rounding":
            yield from self._lower_precision(now)
            half = _half(self.gpu)
            if half is not None and now["gram_precision"] == "fp32":
                yield {"gram_precision": half}, "half the bytes in TracIn's two largest products"
        else:
            if not now["last_layers"]:
                yield {"last_layers": 1}, "gradients of the last layer alone"
            if not (self.settings["self_influence"] or self.settings["build_index"]):
                yield {"filtering": True}, "only the neighbourhood of each test triple is scored"


def _smaller_chunks(now: Mapping[str, Any]) -> Iterator[Step]:
    for chunk in _sizes(now["entity_chunk"], SMALLEST_CHUNK):
        yield {"entity_chunk": chunk}, "fewer entities scored at a time"


def _sizes(start: int, smallest: int) -> Iterator[int]:
    """Powers of two from a quarter of `start` on: each attempt loads its libraries and its graph anew, so
    that few large steps find what fits sooner than many small ones."""
    while start > smallest:
        start = max(smallest, 1 << ((start // 4).bit_length() - 1) if start >= 4 else 1)
        yield start


def _halved(option: str, start: int, smallest: int, why: str) -> Iterator[Step]:
    """As little less as can be: what changes results should change them little."""
    while start // 2 >= smallest:
        start //= 2
        yield {option: start}, why


def _chunk(asked: Mapping[str, Any], usual: int, entities: int | None) -> int:
    wanted = asked.get("entity_chunk", "auto")
    size: int = usual if wanted == "auto" else wanted
    return size if entities is None else min(size, entities)


def _half(gpu: GpuFacts | None) -> str | None:
    """The half precision that this GPU has tensor cores for."""
    capability = None if gpu is None else gpu.compute_capability
    if capability is None or capability < (7, 0):
        return None
    return "bf16" if capability >= (8, 0) else "fp16"
