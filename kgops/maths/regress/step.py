"""Training step of the regression network, with autocast, fp16 gradient scaling and microbatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kgops.maths.regress.metrics import HeightLoss
from kgops.maths.regress.network import RegressionModel
from kgops.maths.regress.stages import RegressionSettings
from kgops.maths.train.settings import Precision
from kgops.maths.train.step import prepare_inductor
from kgops.maths.worker.out_of_memory import is_out_of_memory
from kgops.maths.worker.report import Report
from kgops.workloads.regress.job import RegressionConfig


class RegressionStep:
    """Forward, loss, backward and update for a batch, `at_once` windows computed at a time.

    With fp16, a step whose gradients overflowed changes no weight and is counted in `overflows`.
    Microbatches of the usual size run compiled if requested; `compile_failure` has the reason where that failed.
    """

    def __init__(
        self,
        model: RegressionModel,
        loss: HeightLoss,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        at_once: int,
        *,
        compile: str = "off",
    ) -> None:
        self.model, self.loss = model, loss
        self.precision, self.at_once = precision, at_once
        self.device = model.head.height.weight.device
        self._overflows = torch.zeros((), dtype=torch.long, device=self.device)
        self.begin(optimizer)
        self.compile = compile
        self.compile_failure: str | None = None
        self._compiled = _compiled(model, compile)

    def begin(self, optimizer: torch.optim.Optimizer) -> None:
        """Sets a new optimizer and resets the gradient scale."""
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision.scaled)
        if self.precision.scaled:
            optimizer.register_step_pre_hook(self._count_overflow)

    def _count_overflow(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        # The scale falls afterwards as well, but reading it would make the host wait for the device.
        self._overflows += optimizer.found_inf.long()  # type: ignore[attr-defined]  # GradScaler sets it

    @property
    def overflows(self) -> int:
        """Waits for the device."""
        return int(self._overflows)

    @overflows.setter
    def overflows(self, count: int) -> None:
        self._overflows.fill_(count)

    def __call__(
        self, images: torch.Tensor, angles: torch.Tensor, heights: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Updates the weights; the weighted mean loss, a tensor on the device. `heights` are standardised."""
        value = self.gradients(images, angles, heights, weights)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return value

    def gradients(
        self, images: torch.Tensor, angles: torch.Tensor, heights: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Writes this batch's scaled gradients to every parameter's `.grad`."""
        try:
            return self._gradients(images, angles, heights, weights)
        except Exception as error:
            if self._compiled is None:
                raise
            self._gave_up(error)
        return self._gradients(images, angles, heights, weights)

    def _gradients(
        self, images: torch.Tensor, angles: torch.Tensor, heights: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        share = weights / weights.sum()
        value = torch.zeros((), device=self.device)
        for start in range(0, len(images), self.at_once):
            rows = slice(start, start + self.at_once)
            predicted = self._forward(images[rows], angles[rows])
            loss = (self.loss(predicted, heights[rows]) * share[rows]).sum()
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            value += loss.detach()
        return value

    def rehearse(self) -> None:
        """Compiles for microbatches of the usual size. Weights and random states do not change."""
        if self._compiled is None:
            return
        c, device = self.model.config, self.device
        size, frames = self.at_once, c.temporal_frames
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            images = torch.zeros(size, frames, c.height, c.width, device=device)
            angles = torch.zeros(size, frames, 2, device=device)
            try:
                self._forward(images, angles).sum().backward()  # type: ignore[no-untyped-call]
            except Exception as error:
                self._gave_up(error)
        self.optimizer.zero_grad(set_to_none=True)

    def _forward(self, images: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        # A kernel is compiled for one batch size; the last batch of an epoch is too rare to compile for.
        usual = len(images) == self.at_once
        self.model.run_encoder = self._compiled if usual else None
        if usual and self.compile in ("reduce-overhead", "max-autotune"):
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        low = self.precision.dtype.itemsize < 4
        try:
            with torch.autocast(self.device.type, self.precision.dtype, enabled=low):
                return self.model(images, angles)  # type: ignore[no-any-return]
        finally:
            self.model.run_encoder = None

    def _gave_up(self, error: Exception) -> None:
        """Records the failure; re-raises errors that do not come from compiling."""
        if is_out_of_memory(error):
            raise error
        first = next(iter(str(error).strip().splitlines()), "")
        self.compile_failure = f"torch.compile failed: {type(error).__name__}: {first:.200}"
        self._compiled = None


def _compiled(model: RegressionModel, mode: str) -> Callable[..., torch.Tensor] | None:
    """Compiles only the encoder, which takes nearly all of a step's time. With checkpointing, the whole network would
    be compiled again for each frame: four times as long for three frames."""
    if mode == "off":
        return None
    prepare_inductor()
    made: Any = torch.compile(model.encoder, mode=None if mode == "default" else mode, dynamic=False)
    return lambda frames, sun: made(frames, sun)  # not a module, so that the network does not register it


def report_options(
    report: Report, settings: RegressionSettings, config: RegressionConfig, precision: Precision
) -> None:
    """Reports all options except `compile`, which is reported after compiling."""
    report.option("precision", precision.requested, precision.applied, precision.reason)
    report.option("batch_size", settings.batch_size, settings.batch_size, None)
    requested = settings.microbatch or "auto"
    reason = "no more than a batch" if (settings.microbatch or 0) > settings.batch_size else None
    report.option(
        "microbatch", requested, settings.at_once, "the whole batch" if requested == "auto" else reason
    )
    report.option("temporal_frames", config.temporal_frames, config.temporal_frames, None)
    wanted = "on" if settings.gradient_checkpointing else "off"
    report.option("gradient_checkpointing", wanted, wanted, "frame by frame" if wanted == "on" else None)
