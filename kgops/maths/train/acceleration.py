"""Applies the options compile (torch.compile) and cuda_graphs to the training step, with the reason where it cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from kgops.jobs.on_device import CUDA_GRAPH_MODES, compile_mode
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.train.batches import Batch
from kgops.maths.train.losses import EntityLoss, Positives
from kgops.maths.train.penalties import Penalties
from kgops.maths.train.settings import place_of
from kgops.maths.train.step import Compiler, TrainStep
from kgops.maths.worker.report import Report
from kgops.workloads.train.options import GRAPH_WARM_UP


class StaticBatch:
    """A batch at fixed addresses. Unused positives have an entity past the last one, which losses ignore."""

    def __init__(self, size: int, room: int, num_entities: int, device: torch.device) -> None:
        def empty(length: int) -> torch.Tensor:
            return torch.zeros(length, dtype=torch.long, device=device)

        self.room, self._nowhere = room, num_entities
        self.batch = Batch(empty(size), empty(size), Positives(empty(room), empty(room)))

    def fill(self, batch: Batch) -> None:
        count, static = len(batch.positives), self.batch
        static.heads.copy_(batch.heads)
        static.relations.copy_(batch.relations)
        static.positives.rows[:count].copy_(batch.positives.rows)
        static.positives.rows[count:].zero_()
        static.positives.entities[:count].copy_(batch.positives.entities)
        static.positives.entities[count:].fill_(self._nowhere)


class ReplayedStep:
    """Replaces a `TrainStep`: batches of `size` are replayed, others run eagerly.

    If a step cannot be captured, all run eagerly, and `failure` has the reason. Steps are captured on the current
    stream, which must not be the default one. Make all calls, and read their results, on one stream.
    """

    def __init__(self, step: TrainStep, size: int) -> None:
        self.step, self.size = step, size
        self.failure: str | None = None
        # Eager steps before the capture: they allocate the optimizer's moments and initialise libraries.
        self._to_warm = GRAPH_WARM_UP
        self._static: StaticBatch | None = None
        self._graphs: dict[bool, tuple[torch.cuda.CUDAGraph, torch.Tensor | None]] = {}
        self._pool: Any = None  # torch has changed the type of memory pools
        self._held: list[torch.Tensor] = []

    def __call__(self, batch: Batch, want_value: bool = True) -> torch.Tensor | None:
        if self.failure or len(batch) != self.size:
            return self.step(batch, want_value)
        if self._to_warm:
            self._to_warm -= 1
            return self.step(batch, want_value)
        static = self._room_for(batch)
        static.fill(batch)
        if want_value not in self._graphs:
            try:
                self._graphs[want_value] = self._capture(static.batch, want_value)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.failure = f"capture failed: {next(iter(str(error).splitlines()), ''):.200}"
                self.release()
        if self.failure:
            return self.step(batch, want_value)
        graph, value = self._graphs[want_value]
        graph.replay()
        return None if value is None else value.clone()  # the next replay overwrites it

    def release(self) -> None:
        """Gives up all graphs with their memory."""
        self._graphs.clear()
        self._held.clear()
        # Never used again: the optimizer may still hold a tensor of it, and torch takes back no such pool.
        self._static = self._pool = None

    def _room_for(self, batch: Batch) -> StaticBatch:
        needed = len(batch.positives)
        if self._static is None or self._static.room < needed:
            # 50 % reserve: the number of positives varies, and a new capture takes time.
            room = needed if needed == self.size else 3 * needed // 2
            self.release()
            model = self.step.model
            self._static = StaticBatch(self.size, room, model.config.num_entities, model.entities.device)
        return self._static

    def _capture(self, batch: Batch, want_value: bool) -> tuple[torch.cuda.CUDAGraph, torch.Tensor | None]:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with _capturable(self.step.optimizer), _captured(self._pool) as graph:
            value = self.step(batch, want_value)
        # A larger batch makes the step allocate new scratch memory; the graph still uses this one.
        self._held += self.step.buffers.tensors()
        return graph, value


@contextmanager
def _captured(pool: Any) -> Iterator[torch.cuda.CUDAGraph]:
    """The graph of what is done meanwhile on the current stream, with its memory from `pool`."""
    # Not `torch.cuda.graph`: after a capture that fails it leaves the process on its own stream.
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # what eager steps left free is of no use to the pool
    graph.capture_begin(pool=pool)
    try:
        yield graph
    finally:
        try:
            graph.capture_end()
        except RuntimeError:
            _close(pool)
            raise


def _close(pool: Any) -> None:
    """Ends allocations from the pool of a capture that could not be ended. torch 2.12 leaves it open. An allocator that
    is then out of memory gives nothing back to the driver and tries again."""
    device = torch.cuda.current_device()
    with suppress(RuntimeError):  # torch 2.13 has ended them
        torch._C._cuda_endAllocateToPool(device, pool)
    with suppress(RuntimeError):
        torch._C._cuda_releasePool(device, pool)


@contextmanager
def _capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Adam needs capturable=True during capture; outside, it would warn at every step."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


@dataclass(frozen=True)
class Acceleration:
    """Applied values of the options `compile` and `cuda_graphs`, each with the reason where it differs."""

    compile: str = "off"
    compile_reason: str | None = None
    cuda_graphs: bool = False
    graphs_reason: str | None = None

    @property
    def replayed(self) -> bool:
        """Whether whole steps are captured. Inductor's own CUDA graphs would be one per compiled function."""
        return self.cuda_graphs or self.compile in CUDA_GRAPH_MODES


def resolve_acceleration(
    compile_option: str, cuda_graphs: bool, device: torch.device, *, checkpointing: bool
) -> Acceleration:
    on_gpu = device.type == "cuda"
    mode, why = compile_mode(compile_option, place_of(device), checkpointing=checkpointing)
    return Acceleration(
        mode,
        why,
        cuda_graphs and on_gpu,
        "no CUDA device" if cuda_graphs and not on_gpu else None,
    )


class AcceleratedStep:
    """A `TrainStep` with the options `compile` and `cuda_graphs`, as far as the device supports them.

    A failure of either is reported, and the step continues without it.
    """

    def __init__(
        self,
        model: EntityModel,
        loss: EntityLoss,
        optimizer: torch.optim.Optimizer,
        *,
        requested: tuple[str, bool],
        usual_size: int,
        checkpointing: bool,
        report: Report,
        penalties: Penalties | None = None,
    ) -> None:
        device = model.entities.device
        self._requested, self._report = requested, report
        self.plan = resolve_acceleration(*requested, device, checkpointing=checkpointing)
        self._compiler = Compiler(self.plan.compile) if self.plan.compile != "off" else None
        self.step = TrainStep(
            model,
            loss,
            optimizer,
            penalties=penalties,
            recompute=checkpointing,
            compiler=self._compiler,
            compiled_size=usual_size,
        )
        self._replayed = ReplayedStep(self.step, usual_size) if self.plan.replayed else None
        self._stream = torch.cuda.Stream(device) if self.plan.replayed else None  # type: ignore[no-untyped-call]

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Where steps are replayed, makes a stream current on which they can be captured.

        The whole of a training belongs in it. Memory freed on one stream is not reused on another. Autograd expects a
        parameter on the stream of its first use.
        """
        if self._stream is None:
            yield
            return
        before = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            yield
        before.wait_stream(self._stream)

    def release(self) -> None:
        """Gives up captured graphs, and the free memory that only their stream could use."""
        if self._replayed is not None:
            self._replayed.release()
            torch.cuda.empty_cache()

    def prepare(self, batch: Batch) -> None:
        """Compiles for the usual batch size, and reports the applied values of both options."""
        compiler = self._compiler
        if compiler is not None:
            started = time.monotonic()
            self.step.rehearse(batch)
            if compiler.failure is None:
                self._report.note(f"torch.compile took {time.monotonic() - started:.0f} s.")
        self._report_options()

    def __call__(self, batch: Batch, want_value: bool = True) -> torch.Tensor | None:
        if self._replayed is None:
            return self.step(batch, want_value)
        failed_before = self._replayed.failure is not None
        value = self._replayed(batch, want_value)
        if self._replayed.failure is not None and not failed_before:
            self._report_options()
        return value

    def _report_options(self) -> None:
        (mode, graphs), plan = self._requested, self.plan
        uncaptured = None if self._replayed is None else self._replayed.failure
        if mode != "off":
            applied, why = plan.compile, plan.compile_reason
            if uncaptured is not None and applied in CUDA_GRAPH_MODES:
                applied, why = "default", uncaptured
            if self._compiler is not None and self._compiler.failure is not None:
                applied, why = "off", self._compiler.failure
            self._report.option("compile", mode, applied, why)
        if graphs:
            on = plan.cuda_graphs and uncaptured is None
            self._report.option(
                "cuda_graphs", graphs, "on" if on else "off", uncaptured or plan.graphs_reason
            )
