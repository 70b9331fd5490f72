"""What torch.compile and CUDA graphs may do for a step on this device, why not more, and the step they make."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from kgops.jobs.on_device import CUDA_GRAPH_MODES, compile_mode
from kgops.models.conve import ConvE
from kgops.training.batches import Batch
from kgops.training.compiling import Compiler
from kgops.training.data_parallel import Alone
from kgops.training.losses import EntityLoss
from kgops.training.precision import place_of
from kgops.training.replay import ReplayedStep
from kgops.training.reporter import Report
from kgops.training.step import TrainStep

__all__ = ["AcceleratedStep", "Acceleration", "resolve_acceleration"]


@dataclass(frozen=True)
class Acceleration:
    """Effective values of the options `compile` and `cuda_graphs`, each with the reason where it is less."""

    compile: str = "off"
    compile_reason: str | None = None
    cuda_graphs: bool = False
    graphs_reason: str | None = None

    @property
    def replayed(self) -> bool:
        """Whether whole steps are captured. Inductor's own graphs would be one for every piece."""
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
    """A `TrainStep` with what the options `compile` and `cuda_graphs` ask for and the device can do.

    What fails on the way is reported, and the step goes on without it.
    """

    def __init__(
        self,
        model: ConvE,
        loss: EntityLoss,
        optimizer: torch.optim.Optimizer,
        *,
        asked: tuple[str, bool],
        usual_size: int,
        checkpointing: bool,
        report: Report,
        group: Alone | None = None,
    ) -> None:
        device = model.entities.device
        self._asked, self._report = asked, report
        self.plan = resolve_acceleration(*asked, device, checkpointing=checkpointing)
        self._compiler = Compiler(self.plan.compile) if self.plan.compile != "off" else None
        self.step = TrainStep(
            model,
            loss,
            optimizer,
            recompute=checkpointing,
            compiler=self._compiler,
            compiled_size=usual_size,
            group=group,
        )
        self._replayed = ReplayedStep(self.step, usual_size) if self.plan.replayed else None

    def prepare(self, batch: Batch) -> None:
        """Compiles with a batch of the usual size, and reports what came of both options."""
        compiler = self._compiler
        if compiler is not None:
            started = time.monotonic()
            self.step.rehearse(batch)
            if compiler.failure is None:
                self._report.note(f"torch.compile took {time.monotonic() - started:.0f} s.")
        self._tell()

    def __call__(self, batch: Batch, want_value: bool = True) -> torch.Tensor | None:
        if self._replayed is None:
            return self.step(batch, want_value)
        failed_before = self._replayed.failure is not None
        value = self._replayed(batch, want_value)
        if self._replayed.failure is not None and not failed_before:
            self._tell()
        return value

    def _tell(self) -> None:
        (mode, graphs), plan = self._asked, self.plan
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
