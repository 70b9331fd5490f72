"""One training within a regression, its state and its checkpoints: ConvE's format plus the scaling to kilometres."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kgops.jobs.on_device import compile_mode
from kgops.maths.regress.batches import Prepared, flights_digest
from kgops.maths.regress.flights import Flight
from kgops.maths.regress.metrics import HeightLoss
from kgops.maths.regress.network import RegressionModel
from kgops.maths.regress.stages import MAY_DIFFER, RegressionSettings, Stage, plan_stages
from kgops.maths.regress.step import RegressionStep, report_options
from kgops.maths.train import checkpoints
from kgops.maths.train.checkpoints import Checkpoint
from kgops.maths.train.loop import HOPELESS
from kgops.maths.train.optimizers import Schedule, build_optimizer, rate_of, restore
from kgops.maths.train.settings import place_of, resolve_precision
from kgops.maths.worker.memory_cleanup import MemoryCleanup
from kgops.maths.worker.report import Report
from kgops.workloads.regress.job import RegressionConfig

_WORKLOAD = "regress"
_BY_FALLBACKS = ("channels", "temporal_frames")  # of the network; a run with other values starts from epoch 1


@dataclass
class RegressionState:
    """Counts are of the current stage unless noted."""

    stage: int = 0
    earlier_epochs: int = 0  # of earlier stages
    epoch: int = 0  # completed
    batch: int = 0  # done in the next epoch
    step: int = 0
    owed: bool = False  # the validation that follows a completed epoch
    early: bool = False
    loss_sum: float = 0.0
    losses: int = 0
    first_loss: float | None = None
    best_loss: float | None = None
    best_epoch: int = 0
    waited: int = 0
    seconds: float = 0.0  # of all stages, like the fields below
    loader_wait_s: float = 0.0
    windows: int = 0
    overflows: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    judged: dict[str, list[list[float]]] = field(default_factory=dict)  # stage → predicted and true heights

    @property
    def all_epochs(self) -> int:
        return self.earlier_epochs + self.epoch

    def begin_stage(self) -> None:
        """Resets the counts for a new stage."""
        self.epoch = self.batch = self.step = self.losses = self.waited = self.best_epoch = 0
        self.owed = self.early = False
        self.loss_sum, self.first_loss, self.best_loss = 0.0, None, None

    def end_stage(self) -> None:
        self.earlier_epochs, self.epoch, self.stage = self.all_epochs, 0, self.stage + 1

    def end_epoch(self, entry: dict[str, Any]) -> None:
        self.history.append(entry)
        self.epoch, self.batch, self.loss_sum, self.losses = self.epoch + 1, 0, 0.0, 0
        self.owed = True

    def add_losses(self, values: Sequence[float]) -> str | None:
        """Adds up losses; returns the reason where training has diverged."""
        for value in values:
            if self.first_loss is None:
                self.first_loss = value
            if not math.isfinite(value):
                return f"the loss of epoch {self.epoch + 1} is NaN or infinite"
            if value > HOPELESS * max(self.first_loss, 1e-3):
                return (
                    f"the loss of epoch {self.epoch + 1} has grown from {self.first_loss:.3g} to {value:.3g}"
                )
            self.loss_sum += value
            self.losses += 1
        return None

    def validated(self, loss: float | None, *, last: bool, min_delta: float, patience: int) -> bool:
        """Whether this epoch's weights are the best; without a validation loss, always."""
        self.owed = False
        better = last if loss is None else self.best_loss is None or loss < self.best_loss - min_delta
        if better:
            self.best_loss, self.best_epoch, self.waited = loss, self.epoch, 0
        else:
            self.waited += 1
            self.early = loss is not None and 0 < patience <= self.waited
        return better


_PLATEAU_FACTOR, _PLATEAU_PATIENCE = 0.5, 5


class Session:
    """A regression and its checkpoints; `kgops.maths.regress.loop` trains it."""

    def __init__(
        self,
        flights: Sequence[Flight],
        config: RegressionConfig,
        settings: RegressionSettings,
        folder: Path,
        report: Report,
        stop_requested: Callable[[], bool],
        device: torch.device,
        cleanup: MemoryCleanup,
    ) -> None:
        self.cleanup = cleanup
        self.config, self.settings, self.folder, self.report = config, settings, folder, report
        self.stop_requested, self.device = stop_requested, device
        self.stages = plan_stages(flights, settings)
        self.digest = flights_digest(flights)
        self.precision = resolve_precision(settings.precision, device)
        self.precision.apply()
        checkpointing = settings.gradient_checkpointing
        self.model = RegressionModel(config, checkpointing=checkpointing).to(device)
        mode, self.compile_reason = compile_mode(
            settings.compile, place_of(device), checkpointing=checkpointing
        )
        s = settings
        self.step = RegressionStep(
            self.model,
            HeightLoss(s.loss_type, s.loss_alpha, s.huber_delta, s.gamma, s.under_weight),
            self._optimizer(),
            self.precision,
            s.at_once,
            compile=mode,
        )
        self.state = RegressionState()
        self.saved_at = time.monotonic()
        report_options(report, settings, config, self.precision)

    @property
    def checkpoint_folder(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def stage(self) -> Stage:
        """The current stage; the last one where all are done."""
        return self.stages[min(self.state.stage, len(self.stages) - 1)]

    @property
    def all_done(self) -> bool:
        return self.state.stage == len(self.stages)

    def begin(self, resume: bool) -> None:
        """Starts the first stage, or resumes from the newest valid checkpoint."""
        for folder in (self.checkpoint_folder, self.folder):
            checkpoints.sweep(folder)
        checkpoint = self._newest() if resume else None
        if checkpoint is not None:
            _refuse_foreign(checkpoint, self.config, self.settings, self.digest)
            self._resume(checkpoint)
            return
        if checkpoints.forget_resumable(self.checkpoint_folder) and not resume:
            self.report.note("removed resume checkpoints of an earlier training in this folder.")
        self.begin_stage()

    def _newest(self) -> Checkpoint | None:
        checkpoint = checkpoints.newest_resumable(self.checkpoint_folder, self.device, self.report.note)
        if checkpoint is not None and not _same_network(checkpoint, self.config):
            self.report.note("channels or frames per window have changed: training starts at epoch 1.")
            return None
        return checkpoint

    def _resume(self, checkpoint: Checkpoint) -> None:
        training = checkpoint.training
        self.state = RegressionState(**training["state"])
        self._prepare_stage()
        self.model.load_state_dict(dict(checkpoint.model))
        restore(self.step.optimizer, dict(training["optimizer"]))
        self.schedule.load_state_dict(dict(training["schedule"]))
        self.step.overflows = self.state.overflows
        if training["scaler"] and self.precision.scaled:
            self.step.scaler.load_state_dict(dict(training["scaler"]))
        self.state.batch = checkpoint.batches_done(self.settings.batch_size, len(self.data.stream))
        at = f"after epoch {self.state.epoch} and {self.state.batch} batches"
        self.report.note(f"resumed in stage {self.stage.name}, {at}.")
        # Last, since nothing may draw random numbers before the next batch.
        checkpoints.set_rng_states(training["rng"], self.device)

    def begin_stage(self) -> None:
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
        """Builds data, optimizer and schedule of the stage; leaves weights and counts."""
        s = self.settings
        self.data = Prepared(self.stage, self.config.temporal_frames, s, self.device)
        self.step.begin(self._optimizer())
        self.schedule = Schedule(
            s.scheduler, s.learning_rate, self.stage.epochs, _PLATEAU_FACTOR, _PLATEAU_PATIENCE
        )

    def _optimizer(self) -> torch.optim.Optimizer:
        s = self.settings
        return build_optimizer(s.optimizer, self.model, s.learning_rate, s.weight_decay)

    def key(self) -> str:
        """Key of the current epoch, which determines order and augmentation."""
        return f"{self.settings.seed} {self.stage.name} {self.state.epoch + 1}"

    def checkpoint(self, training: dict[str, Any] | None = None) -> Checkpoint:
        return Checkpoint(
            model=self.model.state_dict(),
            config=self.config.to_dict(),
            epoch=self.state.all_epochs,
            batch=self.state.batch,
            learning_rate=rate_of(self.step.optimizer),
            loss={"name": self.settings.loss_type, "workload": _WORKLOAD},
            entities_digest=self.digest,
            relations_digest="",
            settings=self.settings.to_dict(),
            training={"scaling": self.data.scaling.to_dict(), **(training or {})},
        )

    def save(self) -> None:
        training = {
            "optimizer": self.step.optimizer.state_dict(),
            "scaler": self.step.scaler.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rng": checkpoints.rng_states(self.device),
            "state": vars(self.state),
        }
        checkpoints.write_resumable(self.checkpoint_folder, self.checkpoint(training))
        self.saved_at = time.monotonic()


def _same_network(checkpoint: Checkpoint, config: RegressionConfig) -> bool:
    """Whether the checkpoint has this network; the last OOM fallbacks change the network of a job."""
    return all(checkpoint.config.get(name) == config.to_dict()[name] for name in _BY_FALLBACKS)


def _refuse_foreign(
    checkpoint: Checkpoint, config: RegressionConfig, settings: RegressionSettings, flights: str
) -> None:
    """Raises if the checkpoint belongs to another network, other flights or another data order."""
    saved, current = checkpoint.settings, settings.to_dict()
    same = {
        "workload": checkpoint.loss.get("workload") == _WORKLOAD,
        "flights": checkpoint.entities_digest == flights,
        "network": dict(checkpoint.config) == config.to_dict(),
        **{name: saved.get(name) == current[name] for name in current if name not in MAY_DIFFER},
    }
    checkpoints.refuse_unless_same(checkpoint, same)
