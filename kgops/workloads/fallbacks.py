"""What a stage of a job can change after an out-of-memory: what workloads share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import WorkerDevice, skips_compile
from kgops.jobs.option import Effect

SMALLEST_CHUNK = 512  # smaller chunks of scores save no memory
SMALLEST_BATCH = 16
GRAPH_MODES = ("reduce-overhead", "max-autotune")
Step = tuple[dict[str, Any], str]


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """One stage of a job: its options at the `start`, and the fallback `steps` of one effect from the options `now`."""

    job: Job
    settings: Mapping[str, Any]  # of this stage
    gpu: GpuFacts | None

    @classmethod
    def of(cls, job: Job, settings: Mapping[str, Any], gpu: GpuFacts | None) -> Self:
        return cls(job, settings, None if settings.get("device") == "cpu" else gpu)

    def start(self, entities: int | None) -> dict[str, Any]:
        raise NotImplementedError

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        raise NotImplementedError

    @property
    def _skips_compile(self) -> bool:
        return self.gpu is None and skips_compile(self.job, WorkerDevice())

    def _precision(self) -> str:
        requested: str = self.job.options.get("precision", "fp32")
        return half(self.gpu) or requested if requested == "auto" else requested

    def _lower_precision(self, now: Mapping[str, Any]) -> Iterator[Step]:
        lower = half(self.gpu)
        if lower is not None and now["precision"] in ("fp32", "tf32"):
            yield {"precision": lower}, "half the bytes in matrix products"


def smaller_chunks(now: Mapping[str, Any]) -> Iterator[Step]:
    for chunk in sizes(now["entity_chunk"], SMALLEST_CHUNK):
        yield {"entity_chunk": chunk}, "fewer entities scored at once"


def sizes(start: int, smallest: int) -> Iterator[int]:
    """Powers of two from a quarter of `start` down. Each attempt loads libraries and graph again, so few large steps
    are faster than many small ones."""
    while start > smallest:
        start = max(smallest, 1 << ((start // 4).bit_length() - 1) if start >= 4 else 1)
        yield start


def halved(option: str, start: int, smallest: int, why: str) -> Iterator[Step]:
    """Halves, one at a time: a step that changes results should change them little."""
    while start // 2 >= smallest:
        start //= 2
        yield {option: start}, why


def chunk(requested: Mapping[str, Any], usual: int, entities: int | None) -> int:
    wanted = requested.get("entity_chunk", "auto")
    size: int = usual if wanted == "auto" else wanted
    return size if entities is None else min(size, entities)


def half(gpu: GpuFacts | None) -> str | None:
    """The half precision that this GPU has tensor cores for."""
    capability = None if gpu is None else gpu.compute_capability
    if capability is None or capability < (7, 0):
        return None
    return "bf16" if capability >= (8, 0) else "fp16"


def other_precisions(options: Mapping[str, Any], *, on_gpu: bool) -> Iterator[dict[str, Any]]:
    for precision in ("fp32", "tf32", "fp16", "bf16") if on_gpu else ("fp32", "bf16"):
        if precision != options.get("precision", "fp32"):
            yield {"precision": precision}
