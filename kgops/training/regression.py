"""The loop of a regression on flights: stage by stage, stopping when asked, resumed as if never stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.flights.reading import Flight
from kgops.flights.windows import Batch
from kgops.jobs.regression_config import RegressionConfig
from kgops.models.regression import RegressionModel, load_weights
from kgops.training import checkpoints
from kgops.training.checkpoints import Checkpoint
from kgops.training.loop import Diverged
from kgops.training.optimizers import Schedule, build_optimizer, rate_of, restore, set_rate
from kgops.training.precision import resolve_precision
from kgops.training.regression_checkpoints import as_checkpoint, foreign, same_network
from kgops.training.regression_data import Prepared, Stream, Training, flights_digest
from kgops.training.regression_figures import HeightLoss, HeightReport, Heights
from kgops.training.regression_predict import judge_stage, predict
from kgops.training.regression_settings import RegressionSettings
from kgops.training.regression_stages import Stage, plan_stages
from kgops.training.regression_state import RegressionState
from kgops.training.regression_step import RegressionStep, memory_mib, report_levers, resolve_compile
from kgops.training.report import Progress, Report

__all__ = ["Regression", "regress"]

_PLATEAU_FACTOR, _PLATEAU_PATIENCE = 0.5, 5
_LOSSES_AT_ONCE = 32  # fetched from a card together, since each would wait for it


@dataclass
class Regression:
    """How it ended: "finished" or "requested" to stop. By stage a report on the flight held out, and the predicted
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
) -> Regression:
    """Runs all stages that `settings` ask for; weights of each stage's best epoch lie in `folder`.

    With `resume` it goes on from the newest checkpoint there that can be believed; on one device with one
    number of threads the weights then are those of a run never stopped.
    """
    run = _Run(flights, config, settings, folder, report, stop_requested, torch.device(device))
    run.begin(resume)
    return run.run()


class _Run:
    def __init__(
        self,
        flights: Sequence[Flight],
        config: RegressionConfig,
        settings: RegressionSettings,
        folder: Path,
        report: Report,
        stop_requested: Callable[[], bool],
        device: torch.device,
    ) -> None:
        self.config, self.settings, self.folder, self.report = config, settings, folder, report
        self.stop_requested, self.device = stop_requested, device
        self.stages = plan_stages(flights, settings)
        self.digest = flights_digest(flights)
        self.precision = resolve_precision(settings.precision, device)
        self.precision.apply()
        checkpointing = settings.gradient_checkpointing
        self.model = RegressionModel(config, checkpointing=checkpointing).to(device)
        mode, self.compile_reason = resolve_compile(settings.compile, device, checkpointing)
        s = settings
        self.step = RegressionStep(
            self.model,
            HeightLoss(s.loss, s.loss_alpha, s.huber_delta, s.gamma, s.under_weight),
            self._optimizer(),
            self.precision,
            s.at_once,
            compile=mode,
        )
        self.state = RegressionState()
        self.saved_at = time.monotonic()
        report_levers(report, settings, config, self.precision)

    # --- where it stands ------------------------------------------------------------------------------

    @property
    def checkpoint_folder(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def stage(self) -> Stage:
        """The one it is in; the last where all are done."""
        return self.stages[min(self.state.stage, len(self.stages) - 1)]

    @property
    def all_done(self) -> bool:
        return self.state.stage == len(self.stages)

    def begin(self, resume: bool) -> None:
        """Starts the first stage, or takes up the newest checkpoint that can be believed."""
        for folder in (self.checkpoint_folder, self.folder):
            checkpoints.sweep(folder)
        found = self._newest() if resume else None
        if found is not None:
            foreign(found, self.config, self.settings, self.digest)
            self._resume(found)
            return
        if checkpoints.forget_resumable(self.checkpoint_folder) and not resume:
            self.report.note("removed the points to resume from of an earlier training in this folder.")
        self._begin_stage()

    def _newest(self) -> Checkpoint | None:
        found, refused = checkpoints.newest_resumable(self.checkpoint_folder, self.device)
        for error in refused:
            self.report.note(f"{error.message} {error.hint or ''}".strip())
        if found is None:
            self.report.note("there is no checkpoint to resume from: training starts at epoch 1.")
        elif not same_network(found, self.config):
            self.report.note("channels or frames of a window have changed: the training starts anew.")
            return None
        return found

    def _resume(self, found: Checkpoint) -> None:
        training = found.training
        self.state = RegressionState(**training["state"])
        self._prepare_stage()
        load_weights(self.model, found.model)
        restore(self.step.optimizer, dict(training["optimizer"]))
        self.schedule.load_state_dict(dict(training["schedule"]))
        if training["scaler"] and self.precision.scaled:
            self.step.scaler.load_state_dict(dict(training["scaler"]))
        before = int(found.settings["batch_size"])
        if before != self.settings.batch_size:
            # As many windows as were done, in the same order; a last part of a batch comes twice.
            done = self.state.batch * before // self.settings.batch_size
            self.state.batch = min(done, len(self.data.stream) - 1)
        at = f"after epoch {self.state.epoch} and {self.state.batch} batches"
        self.report.note(f"resumed in stage {self.stage.name}, {at}.")
        # Last, since nothing may draw random numbers between here and the next batch.
        checkpoints.set_rng_states(training["rng"], self.device)

    def _begin_stage(self) -> None:
        torch.manual_seed(self.settings.seed)
        if self.stage.fresh:
            self.model.load_state_dict(RegressionModel(self.config).state_dict())
        self._prepare_stage()
        self.state.begin_stage()
        steps, warmup = self.stage.epochs * len(self.data.stream), self.settings.warmup_steps
        if warmup > steps:
            self.report.note(
                f"stage {self.stage.name} has {steps:,} steps and warmup_steps is {warmup:,}: the learning rate "
                f"never reaches {self.settings.learning_rate:g}."
            )

    def _prepare_stage(self) -> None:
        """Data, optimizer and schedule of the stage, without touching weights or counts."""
        s = self.settings
        self.data = Prepared(self.stage, self.config.temporal_frames, s, self.device)
        self.step.begin(self._optimizer())
        self.schedule = Schedule(
            s.scheduler, s.learning_rate, self.stage.epochs, _PLATEAU_FACTOR, _PLATEAU_PATIENCE
        )

    def _optimizer(self) -> torch.optim.Optimizer:
        s = self.settings
        return build_optimizer(s.optimizer, self.model, s.learning_rate, s.weight_decay)

    # --- what it does ---------------------------------------------------------------------------------

    def run(self) -> Regression:
        s = self.state
        if not self.all_done:
            self._compile()
        finished = True
        while finished and not self.all_done:
            finished = self._train_stage() and self._finish_stage()
        self._save()
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
        """The rest of the stage's epochs; False if asked to stop before their end."""
        self.model.train()
        batches = len(self.data.stream)
        done = self.state.epoch * batches + self.state.batch
        progress = Progress(self.report, self.stage.name, "batch", done=done)
        while True:
            # After a resume too: an epoch may be complete and its validation still owed.
            if self.state.owed:
                if not self._epoch_done():
                    return False
            elif self.state.early or self.state.epoch >= self.stage.epochs:
                return True
            elif not self._epoch(progress):
                return False

    def _epoch(self, progress: Progress) -> bool:
        """The rest of the next epoch; False if asked to stop before its end."""
        s, batches = self.state, len(self.data.stream)
        started, first = time.monotonic(), s.batch
        losses: list[torch.Tensor] = []
        for batch, waited in _waiting(self.data.stream.epoch(self._key(), skip=s.batch)):
            before = time.monotonic()
            losses.append(self._take(batch))
            s.batch, s.step, s.windows = s.batch + 1, s.step + 1, s.windows + len(batch)
            if self.device.type == "cpu" or len(losses) >= _LOSSES_AT_ONCE:
                self._take_losses(losses)
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
        self._tell_epoch(time.monotonic() - started if first == 0 else None)
        return True

    def _take(self, batch: Batch) -> torch.Tensor:
        """One step on this batch; its loss, still on the device."""
        s, warmup = self.state, self.settings.warmup_steps
        if s.batch == 0 or s.step <= warmup:
            rising = min(1.0, (s.step + 1) / warmup) if warmup else 1.0
            set_rate(self.step.optimizer, rising * self.schedule.rate(s.epoch + 1))
        failure, overflows = self.step.compile_failure, self.step.overflows
        value = self.step(*self.data.inputs(batch, f"{self._key()} {s.batch}"))
        s.overflows += self.step.overflows - overflows
        if self.step.compile_failure != failure:
            self._tell_compile()
        return value

    def _epoch_done(self) -> bool:
        """Validation after an epoch; False if asked to stop before the next."""
        s = self.state
        last = s.epoch == self.stage.epochs
        if s.epoch == 1 or last:
            self.report.memory(**memory_mib(self.step))
        loss = self._validate() if len(self.data.training.valid) else None
        wait = {"min_delta": self.settings.min_delta, "patience": self.settings.patience}
        if s.validated(loss, last=last, **wait):  # type: ignore[arg-type]
            checkpoints.write_checkpoint(self.folder / self.stage.weights_file, self._checkpoint())
        self._save_if_due([])
        return last or s.early or not self.stop_requested()

    def _finish_stage(self) -> bool:
        """Judges the best epoch on the flight held out and begins the next stage; False if asked to stop."""
        s, stage = self.state, self.stage
        path = self.folder / stage.weights_file
        load_weights(self.model, checkpoints.read_checkpoint(path, self.device).model)
        if stage.judged and not self._judge(stage):
            return False
        self.report.artifact(path, "best_model" if stage.name == "final" else "model")
        s.end_stage()
        if not self.all_done:
            self._begin_stage()
            self._save()
        return self.all_done or not self.stop_requested()

    # --- its parts ------------------------------------------------------------------------------------

    def _validate(self) -> float:
        """The mean loss of the windows that nobody trains on."""
        s, data = self.state, self.data
        predicted = predict(self.model, data.scaling, data.stream.validation(), self.settings.at_once)
        assert predicted is not None
        true = torch.from_numpy(data.training.windows.heights)[data.training.valid].double()
        scaled = (data.scaling.standardised(one) for one in (predicted, true))
        loss = float(self.step.loss(*scaled).mean())
        if not math.isfinite(loss):
            raise self._diverged(f"the validation loss of epoch {s.epoch} is no number any more")
        found = Heights.of(predicted, true)
        s.history[-1]["valid"] = {"loss": loss, **found.to_dict()}
        self.report.metric("valid_mae", found.mae, s.all_epochs)
        if found.r2 is not None:
            self.report.metric("valid_r2", found.r2, s.all_epochs)
        self.report.metric("valid_loss", loss, s.all_epochs)
        self.schedule.observe(-loss)
        return loss

    def _judge(self, stage: Stage) -> bool:
        """False if asked to stop before its end."""
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
        """Adds up what the device has computed, and looks whether it still is numbers."""
        values = torch.stack(losses).double().tolist() if losses else []
        losses.clear()
        trouble = self.state.add_losses(values)
        if trouble is not None:
            raise self._diverged(trouble)

    def _diverged(self, what: str) -> Diverged:
        rate, numbers = rate_of(self.step.optimizer), self.precision.effective
        tries = [f"a learning rate below {rate / 3:.2g}", "more warmup_steps"]
        if numbers in ("fp16", "bf16"):
            tries.append(f"precision fp32 instead of {numbers}")
        return Diverged(
            f"{what} (learning rate {rate:.2g}, {self.settings.optimizer}, {numbers}).",
            hint=f"try {' or '.join(tries)}.",
        )

    def _tell_epoch(self, seconds: float | None) -> None:
        """Of the epoch that has just ended; what comes last is what lists show of a run."""
        s = self.state
        loss, rate = s.loss_sum / max(s.losses, 1), rate_of(self.step.optimizer)
        entry = {"stage": self.stage.name, "epoch": s.epoch + 1, "loss": loss, "learning_rate": rate}
        s.end_epoch(entry | ({} if seconds is None else {"seconds": seconds}))
        self.report.metric("learning_rate", rate, s.all_epochs)
        if seconds is not None:
            self.report.metric("epoch_seconds", seconds, s.all_epochs)
        self.report.metric("loss", loss, s.all_epochs)

    def _key(self) -> str:
        """Of the epoch that is running: what order and augmentation depend on."""
        return f"{self.settings.seed} {self.stage.name} {self.state.epoch + 1}"

    def _compile(self) -> None:
        started = time.monotonic()
        self.step.rehearse()
        self._tell_compile()
        if self.step.compile != "off" and self.step.compile_failure is None:
            self.report.note(f"torch.compile took {time.monotonic() - started:.0f} s.")

    def _tell_compile(self) -> None:
        if self.settings.compile == "off":
            return
        failure = self.step.compile_failure
        effective = "off" if failure else self.step.compile
        self.report.lever("compile", self.settings.compile, effective, failure or self.compile_reason)

    def _checkpoint(self, training: dict[str, Any] | None = None) -> Checkpoint:
        return as_checkpoint(
            self.model,
            self.config,
            self.settings,
            self.data.scaling,
            self.digest,
            epoch=self.state.all_epochs,
            batch=self.state.batch,
            learning_rate=rate_of(self.step.optimizer),
            training=training,
        )

    def _save_if_due(self, losses: list[torch.Tensor]) -> None:
        if time.monotonic() - self.saved_at >= self.settings.resume_every_s:
            self._take_losses(losses)
            self._save()

    def _save(self) -> None:
        training = {
            "optimizer": self.step.optimizer.state_dict(),
            "scaler": self.step.scaler.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rng": checkpoints.rng_states(self.device),
            "state": vars(self.state),
        }
        checkpoints.write_resumable(self.checkpoint_folder, self._checkpoint(training))
        self.saved_at = time.monotonic()


def _waiting(batches: Iterator[Batch]) -> Iterator[tuple[Batch, float]]:
    """Each batch with the seconds its step had to wait for it."""
    while True:
        started = time.monotonic()
        batch = next(batches, None)
        if batch is None:
            return
        yield batch, time.monotonic() - started
