"""CUDA graphs of whole training steps: captured once and replayed for every full batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kgops.training.batches import Batch
from kgops.training.losses import Positives
from kgops.training.step import TrainStep

__all__ = ["ReplayedStep", "StaticBatch"]

# Eager steps before the capture: they allocate the optimizer's moments and initialise libraries.
_WARM_UP = 3


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

    If a step cannot be captured, all run eagerly, and `failure` has the reason.
    """

    def __init__(self, step: TrainStep, size: int) -> None:
        self.step, self.size = step, size
        self.failure: str | None = None
        self._to_warm = _WARM_UP
        self._static: StaticBatch | None = None
        self._graphs: dict[bool, tuple[torch.cuda.CUDAGraph, torch.Tensor | None]] = {}
        self._pool: Any = None  # torch has changed the type of memory pools
        self._held: list[torch.Tensor] = []

    @property
    def captured(self) -> bool:
        return bool(self._graphs)

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
        if self.failure:
            return self.step(batch, want_value)
        graph, value = self._graphs[want_value]
        graph.replay()
        return None if value is None else value.clone()  # the next replay overwrites it

    def _room_for(self, batch: Batch) -> StaticBatch:
        needed = len(batch.positives)
        if self._static is None or self._static.room < needed:
            # 50 % reserve: the number of positives varies, and a new capture takes time.
            room = needed if needed == self.size else 3 * needed // 2
            self._graphs.clear()
            model = self.step.model
            self._static = StaticBatch(self.size, room, model.config.num_entities, model.entities.device)
        return self._static

    def _capture(self, batch: Batch, want_value: bool) -> tuple[torch.cuda.CUDAGraph, torch.Tensor | None]:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with _capturable(self.step.optimizer), torch.cuda.graph(graph, pool=self._pool):
            value = self.step(batch, want_value)
        # A larger batch makes the step allocate new scratch memory; the graph still uses this one.
        self._held += self.step.buffers.tensors()
        return graph, value


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
