"""Applies the options compile (torch.compile) and cuda_graphs to the training step, with the reason where it cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from kgops.jobs.on_device import CUDA_GRAPH_MODES, compile_mode
from kgops.maths.models.conve import ConvE
from kgops.maths.train.batches import Batch
from kgops.maths.train.compiling import Compiler
from kgops.maths.train.losses import EntityLoss
from kgops.maths.train.replay import ReplayedStep
from kgops.maths.train.settings import place_of
from kgops.maths.train.step import TrainStep
from kgops.maths.worker.reporter import Report


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
        model: ConvE,
        loss: EntityLoss,
        optimizer: torch.optim.Optimizer,
        *,
        requested: tuple[str, bool],
        usual_size: int,
        checkpointing: bool,
        report: Report,
    ) -> None:
        device = model.entities.device
        self._requested, self._report = requested, report
        self.plan = resolve_acceleration(*requested, device, checkpointing=checkpointing)
        self._compiler = Compiler(self.plan.compile) if self.plan.compile != "off" else None
        self.step = TrainStep(
            model,
            loss,
            optimizer,
            recompute=checkpointing,
            compiler=self._compiler,
            compiled_size=usual_size,
        )
        self._replayed = ReplayedStep(self.step, usual_size) if self.plan.replayed else None
        self._stream = torch.cuda.Stream(device) if self.plan.replayed else None  # type: ignore[no-untyped-call]

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Where steps are replayed, makes a stream current on which they can be captured.

        The whole of a training belongs in it: memory freed on one stream is not reused on another, and autograd expects
        a parameter on the stream on which it was first used.
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
