"""Training loop of the regression: stages, epochs, validation, stop requests and exact resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.maths.regress.batches import Batch, Stream, Training
from kgops.maths.regress.flights import Flight
from kgops.maths.regress.metrics import HeightReport, Heights, judge_stage, predict
from kgops.maths.regress.session import Session
from kgops.maths.regress.stages import RegressionSettings, Stage
from kgops.maths.train import checkpoints
from kgops.maths.train.loop import Diverged
from kgops.maths.train.optimizers import memory_mib, rate_of, set_rate
from kgops.maths.worker.memory_cleanup import OFF, MemoryCleanup
from kgops.maths.worker.report import Progress, Report
from kgops.workloads.regress.job import RegressionConfig

_LOSSES_AT_ONCE = 32  # losses fetched from a GPU at once, since each fetch waits for it


@dataclass
class Regression:
    """Result: "finished" or "requested" to stop; for each stage a report on the held-out flight, and the predicted
    and true heights of its windows."""

    stopped: str
    reports: dict[str, HeightReport]
    predictions: dict[str, list[list[float]]]
    history: list[dict[str, Any]]
    epochs: int
    seconds: float
    windows: int
    loader_wait_s: float
    overflows: int


def regress(
    flights: Sequence[Flight],
    config: RegressionConfig,
    settings: RegressionSettings,
    folder: Path,
    report: Report,
    stop_requested: Callable[[], bool] = lambda: False,
    *,
    device: torch.device | str = "cpu",
    resume: bool = False,
    cleanup: MemoryCleanup = OFF,
) -> Regression:
    """Runs all stages in `settings`; writes the weights of each stage's best epoch to `folder`.

    With `resume` it continues from the newest valid checkpoint there. With an unchanged device and number of threads,
    the weights equal an uninterrupted run's.
    """
    run = _Run(flights, config, settings, folder, report, stop_requested, torch.device(device), cleanup)
    run.begin(resume)
    return run.run()


class _Run(Session):
    def run(self) -> Regression:
        s = self.state
        if not self.all_done:
            self._compile()
        finished = True
        while finished and not self.all_done:
            finished = self._train_stage() and self._finish_stage()
        self.save()
        frames = self.config.temporal_frames
        return Regression(
            "finished" if finished else "requested",
            {
                stage.name: judge_stage(stage, frames, *s.judged[stage.name])
                for stage in self.stages
                if stage.name in s.judged
            },
            s.judged,
            s.history,
            s.all_epochs,
            s.seconds,
            s.windows,
            s.loader_wait_s,
            s.overflows,
        )

    def _train_stage(self) -> bool:
        """Trains the rest of the stage's epochs; False if a stop was requested before their end."""
        self.model.train()
        batches = len(self.data.stream)
        done = self.state.epoch * batches + self.state.batch
        progress = Progress(self.report, self.stage.name, "batch", done=done)
        while True:
            # After a resume too: an epoch may be complete without its validation.
            if self.state.owed:
                if not self._epoch_done():
                    return False
            elif self.state.early or self.state.epoch >= self.stage.epochs:
                return True
            elif not self._epoch(progress):
                return False

    def _epoch(self, progress: Progress) -> bool:
        """Trains the rest of the epoch; False if a stop was requested before its end."""
        s, batches = self.state, len(self.data.stream)
        started, first = time.monotonic(), s.batch
        losses: list[torch.Tensor] = []
        for batch, waited in _waiting(self.data.stream.epoch(self.key(), skip=s.batch)):
            before = time.monotonic()
            losses.append(self._take(batch))
            s.batch, s.step, s.windows = s.batch + 1, s.step + 1, s.windows + len(batch)
            if self.device.type == "cpu" or len(losses) >= _LOSSES_AT_ONCE:
                self._take_losses(losses)
            self.cleanup.after_step()
            s.loader_wait_s += waited
            s.seconds += waited + time.monotonic() - before
            progress(s.epoch * batches + s.batch, self.stage.epochs * batches)
            if s.batch == batches:
                break
            if self.stop_requested():
                self._take_losses(losses)
                return False
            self._save_if_due(losses)
        self._take_losses(losses)
        self._report_epoch(time.monotonic() - started if first == 0 else None)
        return True

    def _take(self, batch: Batch) -> torch.Tensor:
        """One step on this batch; returns its loss on the device."""
        s, warmup = self.state, self.settings.warmup_steps
        if s.batch == 0 or s.step <= warmup:
            rising = min(1.0, (s.step + 1) / warmup) if warmup else 1.0
            set_rate(self.step.optimizer, rising * self.schedule.rate(s.epoch + 1))
        failure = self.step.compile_failure
        value = self.step(*self.data.inputs(batch, f"{self.key()} {s.batch}"))
        if self.step.compile_failure != failure:
            self._report_compile()
        return value

    def _epoch_done(self) -> bool:
        """Validates after an epoch; False if a stop was requested before the next."""
        s = self.state
        last = s.epoch == self.stage.epochs
        if s.epoch == 1 or last:
            self.report.memory(**memory_mib(self.model, self.step.optimizer))
        loss = None
        if len(self.data.training.valid):
            loss = self._validate()
            if loss is None:
                return False
        wait = {
            "min_delta": self.settings.early_stopping_min_delta,
            "patience": self.settings.early_stopping_patience,
        }
        if s.validated(loss, last=last, **wait):  # type: ignore[arg-type]
            checkpoints.write_checkpoint(self.folder / self.stage.weights_file, self.checkpoint())
        self._save_if_due([])
        return last or s.early or not self.stop_requested()

    def _finish_stage(self) -> bool:
        """Evaluates the best epoch on the held-out flight and begins the next stage; False if a stop was requested."""
        s, stage = self.state, self.stage
        path = self.folder / stage.weights_file
        self.model.load_state_dict(dict(checkpoints.read_checkpoint(path, self.device).model))
        self.cleanup.between_phases()
        if stage.judged and not self._judge(stage):
            return False
        self.report.artifact(path, "best_model" if stage.name == "final" else "model")
        s.end_stage()
        if not self.all_done:
            self.begin_stage()
            self.save()
        return self.all_done or not self.stop_requested()

    def _validate(self) -> float | None:
        """The mean loss of the validation windows; None if a stop was requested before their end."""
        s, data = self.state, self.data
        left = len(data.training.valid)

        def keep_going(windows: int) -> bool:
            nonlocal left
            left -= windows
            return not left or not self.stop_requested()

        self.cleanup.between_phases()
        predicted = predict(
            self.model, data.scaling, data.stream.validation(), self.settings.at_once, keep_going
        )
        self.cleanup.between_phases()
        if predicted is None:
            return None
        true = torch.from_numpy(data.training.windows.heights)[data.training.valid].double()
        scaled = (data.scaling.standardised(one) for one in (predicted, true))
        loss = float(self.step.loss(*scaled).mean())
        if not math.isfinite(loss):
            raise self._diverged(f"the validation loss of epoch {s.epoch} is NaN or infinite")
        errors = Heights.of(predicted, true)
        s.history[-1]["valid"] = {"loss": loss, **errors.to_dict()}
        self.report.metric("valid_mae", errors.mae, s.all_epochs)
        if errors.r2 is not None:
            self.report.metric("valid_r2", errors.r2, s.all_epochs)
        self.report.metric("valid_loss", loss, s.all_epochs)
        self.schedule.observe(-loss)
        return loss

    def _judge(self, stage: Stage) -> bool:
        """Predicts the held-out flight; False if a stop was requested before its end."""
        frames, done = self.config.temporal_frames, 0
        held = Training.of((stage.held_out,), frames)
        progress = Progress(self.report, "test", "window")

        def count(windows: int) -> bool:
            nonlocal done
            done += windows
            progress(done, len(held.windows))
            return done == len(held.windows) or not self.stop_requested()

        stream = Stream(held, self.settings.batch_size, self.device)
        predicted = predict(self.model, self.data.scaling, stream.everything(), self.settings.at_once, count)
        if predicted is None:
            return False
        true = held.windows.heights.tolist()
        self.state.judged[stage.name] = [predicted.tolist(), true]
        verdict = judge_stage(stage, frames, predicted.tolist(), true).verdict
        self.report.note(verdict[0].upper() + verdict[1:])
        return True

    def _take_losses(self, losses: list[torch.Tensor]) -> None:
        """Adds up losses and counts overflows from the device; raises if training has diverged."""
        values = torch.stack(losses).double().tolist() if losses else []
        losses.clear()
        self.state.overflows = self.step.overflows
        trouble = self.state.add_losses(values)
        if trouble is not None:
            raise self._diverged(trouble)

    def _diverged(self, what: str) -> Diverged:
        rate, numbers = rate_of(self.step.optimizer), self.precision.applied
        tries = [f"a learning rate below {rate / 3:.2g}", "more warmup_steps"]
        if numbers in ("fp16", "bf16"):
            tries.append(f"precision fp32 instead of {numbers}")
        return Diverged(
            f"{what} (learning rate {rate:.2g}, {self.settings.optimizer}, {numbers}).",
            hint=f"try {' or '.join(tries)}.",
        )

    def _report_epoch(self, seconds: float | None) -> None:
        """Reports the epoch that has just ended; lists of runs show the metric that is reported last."""
        s = self.state
        loss, rate = s.loss_sum / max(s.losses, 1), rate_of(self.step.optimizer)
        entry = {"stage": self.stage.name, "epoch": s.epoch + 1, "loss": loss, "learning_rate": rate}
        s.end_epoch(entry | ({} if seconds is None else {"seconds": seconds}))
        self.report.metric("learning_rate", rate, s.all_epochs)
        if seconds is not None:
            self.report.metric("epoch_seconds", seconds, s.all_epochs)
        self.report.metric("loss", loss, s.all_epochs)

    def _compile(self) -> None:
        started = time.monotonic()
        self.step.rehearse()
        self._report_compile()
        if self.step.compile != "off" and self.step.compile_failure is None:
            self.report.note(f"torch.compile took {time.monotonic() - started:.0f} s.")

    def _report_compile(self) -> None:
        if self.settings.compile == "off":
            return
        failure = self.step.compile_failure
        applied = "off" if failure else self.step.compile
        self.report.option("compile", self.settings.compile, applied, failure or self.compile_reason)

    def _save_if_due(self, losses: list[torch.Tensor]) -> None:
        if time.monotonic() - self.saved_at >= self.settings.resume_every:
            self._take_losses(losses)
            self.save()


def _waiting(batches: Iterator[Batch]) -> Iterator[tuple[Batch, float]]:
    """Each batch with the seconds that its step waited for it."""
    while True:
        started = time.monotonic()
        batch = next(batches, None)
        if batch is None:
            return
        yield batch, time.monotonic() - started
