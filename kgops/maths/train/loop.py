"""Training loop: epochs, validation, best model, early stopping, stop requests and exact resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadJob, KgopsError
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.train import checkpoints
from kgops.maths.train.acceleration import AcceleratedStep
from kgops.maths.train.batches import Batches
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.optimizers import Schedule, build_optimizer, memory_mib, rate_of, restore, set_rate
from kgops.maths.train.saved_models import Keeper, TrainState, refuse_foreign
from kgops.maths.train.settings import Precision, TrainSettings, resolve_precision
from kgops.maths.worker.memory_cleanup import OFF, MemoryCleanup
from kgops.maths.worker.report import Progress, Report

# Times the first loss. With Adam and batch norm, too large steps give losses like 1e8, not NaN.
HOPELESS = 1e4


class Diverged(KgopsError):
    """The loss is NaN, infinite or far above its first value."""


@dataclass
class FitResult:
    """Result of a training. `stopped` is "finished", "early" or "requested"; only the last can be resumed.

    `seconds` is time in steps over all attempts, without repeated steps.
    """

    stopped: str
    epochs: int
    best_epoch: int | None
    best_mrr: float | None
    overflows: int
    seconds: float
    history: list[dict[str, Any]]


def fit(
    model: EntityModel,
    graph: Graph,
    settings: TrainSettings,
    folder: Path,
    report: Report,
    stop_requested: Callable[[], bool] = lambda: False,
    *,
    resume: bool = False,
    cleanup: MemoryCleanup = OFF,
) -> FitResult:
    """Trains `model` in place.

    Writes `best_model.pt` (by validation MRR, when there is validation), `final_model.pt` and `checkpoints/` into
    `folder`. With `resume` it continues from the newest valid checkpoint there. With an unchanged device and number of
    threads, the weights equal an uninterrupted run's.
    """
    run = _Run(model, graph, settings, folder, report, stop_requested, cleanup)
    with run.take.stream():
        run.begin(resume)
        result = run.train()
    run.take.release()
    return result


class _Run:
    def __init__(
        self,
        model: EntityModel,
        graph: Graph,
        settings: TrainSettings,
        folder: Path,
        report: Report,
        stop_requested: Callable[[], bool],
        cleanup: MemoryCleanup,
    ) -> None:
        self.model, self.graph, self.settings = model, graph, settings
        self.cleanup = cleanup
        self.report, self.stop_requested = report, stop_requested
        self.device = model.entities.device
        self.precision = resolve_precision(settings.precision, self.device)
        self.precision.apply()
        dtype = self.precision.dtype
        if model.entities.dtype == torch.float64:
            dtype = torch.float64
        chunk = settings.chunk_for(self.device)
        self.schedule = Schedule(
            settings.schedule,
            settings.learning_rate,
            settings.num_epochs,
            settings.schedule_factor,
            settings.schedule_patience,
            settings.lowest_learning_rate,
            settings.warmup_epochs,
        )
        self.batches = Batches(
            graph.train,
            inverse=model.config.inverse,
            one_positive=settings.one_positive,
            largest_group=settings.largest_group,
            batch_size=settings.batch_size,
            seed=settings.seed,
            device=self.device,
        )
        if model.config.batch_norm and min(settings.batch_size, self.batches.num_queries) < 2:
            raise BadJob(
                "the training settings",
                [
                    f"batch_size: batch norm cannot train on a batch of one (batch_size {settings.batch_size}, "
                    f"{self.batches.num_queries} queries in the training data)"
                ],
            )
        self.take = AcceleratedStep(
            model,
            settings.build_loss(dtype, chunk, self.batches.positives_a_query),
            build_optimizer(settings.optimizer, model, settings.learning_rate, settings.weight_decay),
            requested=(settings.compile, settings.cuda_graphs),
            usual_size=self.batches.usual_size,
            checkpointing=settings.gradient_checkpointing,
            report=report,
            penalties=settings.penalties,
        )
        self.step = self.take.step
        if settings.grad_clip:
            self.step.optimizer.register_step_pre_hook(self._clip)
        self.keeper = Keeper(model, graph, settings, self.step, self.schedule, folder, report)
        self.evaluator: Evaluator | None = None
        self.state = TrainState()
        _report_options(report, settings, self.precision, chunk)

    def _clip(self, *_: object) -> None:
        """Scales the gradients of a step down to the largest norm allowed."""
        trained = [weight for group in self.step.optimizer.param_groups for weight in group["params"]]
        torch.nn.utils.clip_grad_norm_(trained, self.settings.grad_clip)

    def begin(self, resume: bool) -> None:
        """Seeds a new run, or resumes from the newest valid checkpoint."""
        self.keeper.sweep(resume)
        torch.manual_seed(self.settings.seed)
        if resume:
            self._take_up()

    def _take_up(self) -> None:
        checkpoint = checkpoints.newest_resumable(self.keeper.checkpoints, self.device, self.report.note)
        if checkpoint is None:
            return
        refuse_foreign(checkpoint, self.graph, self.model, self.settings)
        self.model.load_state_dict(dict(checkpoint.model))
        restore(self.step.optimizer, dict(checkpoint.training["optimizer"]))
        self.schedule.load_state_dict(dict(checkpoint.training["schedule"]))
        self.step.overflows = int(checkpoint.training["overflows"])
        self.state = TrainState(**checkpoint.training["state"])
        self.state.batch = checkpoint.batches_done(self.settings.batch_size, len(self.batches))
        # Last, since nothing may draw random numbers before the next batch.
        checkpoints.set_rng_states(checkpoint.training["rng"], self.device)
        self.report.note(f"resumed after epoch {self.state.epoch} and {self.state.batch} batches.")
        self.cleanup.between_phases()

    def train(self) -> FitResult:
        self.model.train()
        total = self.settings.num_epochs * len(self.batches)
        done = self.state.epoch * len(self.batches) + self.state.batch
        progress = Progress(self.report, "train", "batch", done=done)
        if done < total and not self.state.early:
            self.take.prepare(next(self.batches.epoch(1)))
        finished = True
        while finished:
            # After a resume too: an epoch may be complete without its validation.
            if self.state.owed:
                finished = self._epoch_done()
            elif self.state.early or self.state.epoch >= self.settings.num_epochs:
                break
            else:
                finished = self._epoch(progress, total)
        self.keeper.save_resumable(self.state)
        if finished:
            self.keeper.keep("final_model.pt", "model", self.state)
        s = self.state
        stopped = "requested" if not finished else "early" if s.early else "finished"
        return FitResult(
            stopped, s.epoch, s.best_epoch, s.best_mrr, self.step.overflows, s.seconds, s.history
        )

    def _epoch(self, progress: Progress, total: int) -> bool:
        """Trains the rest of the epoch; False if a stop was requested before its end."""
        state, number = self.state, self.state.epoch + 1
        rate = self.schedule.rate(number)
        set_rate(self.step.optimizer, rate)
        started, first = time.monotonic(), state.batch
        before = started
        losses: list[torch.Tensor] = []
        for batch in self.batches.epoch(number, skip=state.batch):
            # The loss value needs a pass over all scores that the gradient does not.
            wanted = state.batch % self.settings.loss_every == 0 or state.batch + 1 == len(self.batches)
            value = self.take(batch, want_value=wanted)
            state.batch += 1
            if value is not None:
                losses.append(value)
                if self.device.type == "cpu" or len(losses) >= 64:
                    self._take_losses(losses, number)
            self.cleanup.after_step()
            now = time.monotonic()
            state.seconds, before = state.seconds + now - before, now
            progress((number - 1) * len(self.batches) + state.batch, total)
            if state.batch == len(self.batches):
                break
            if self.stop_requested():
                self._take_losses(losses, number)
                return False
            self._save_if_due(losses, number)
        self._take_losses(losses, number)
        seconds = time.monotonic() - started
        entry = {"epoch": number, "loss": state.loss_sum / max(state.losses, 1), "learning_rate": rate}
        # Lists of runs show the metric that is reported last.
        self.report.metric("learning_rate", rate, number)
        if first == 0:
            entry["seconds"] = seconds
            self.report.metric("epoch_seconds", seconds, number)
        self.report.metric("loss", entry["loss"], number)
        state.history.append(entry)
        state.epoch, state.batch, state.loss_sum, state.losses = number, 0, 0.0, 0
        state.owed = True
        return True

    def _epoch_done(self) -> bool:
        """Validates and writes checkpoints after an epoch; False if a stop was requested before the last."""
        state, settings = self.state, self.settings
        last = state.epoch == settings.num_epochs
        if state.epoch == 1 or last:
            self.report.memory(
                **memory_mib(self.model, self.step.optimizer, buffers=self.step.buffers.nbytes)
            )
        if settings.checkpoint_frequency and state.epoch % settings.checkpoint_frequency == 0:
            self.keeper.keep_epoch(state)
        due = settings.validate_every and (state.epoch % settings.validate_every == 0 or last)
        if due and len(self.graph.valid) and not self._validate():
            return False
        state.owed = False
        self._save_if_due([], state.epoch)
        return last or state.early or not self.stop_requested()

    def _validate(self) -> bool:
        """Validates; False if a stop was requested before its end."""
        state = self.state
        if self.evaluator is None:
            known = torch.cat([self.graph.train, self.graph.valid])
            self.evaluator = Evaluator(known, self.graph.num_entities, device=self.device)
        self.cleanup.between_phases()
        evaluation = self.evaluator(
            self.model,
            self.graph.valid,
            stop_requested=self.stop_requested,
            progress=Progress(self.report, "validate", "query"),
        )
        self.cleanup.between_phases()
        if evaluation is None:
            return False
        both = evaluation.both
        assert both.mrr is not None
        if not math.isfinite(both.mrr):
            raise self._diverged("a validation score is NaN or infinite")
        state.history[-1]["valid"] = evaluation.to_dict()
        for k, share in both.hits.items():
            self.report.metric(f"valid_hits_at_{k}", share or 0.0, state.epoch)
        self.report.metric("valid_mrr", both.mrr, state.epoch)
        self.schedule.observe(both.mrr)
        if state.best_mrr is None or both.mrr > state.best_mrr:
            state.best_epoch, state.best_mrr, state.waited = state.epoch, both.mrr, 0
            self.keeper.keep("best_model.pt", "best_model", state)
        else:
            state.waited += 1
            state.early = 0 < self.settings.patience <= state.waited
        return True

    def _take_losses(self, losses: list[torch.Tensor], epoch: int) -> None:
        """Adds up losses from the device and raises if training has diverged."""
        values = torch.stack(losses).double().tolist() if losses else []
        losses.clear()
        for value in values:
            if self.state.first_loss is None:
                self.state.first_loss = value
            if not math.isfinite(value):
                raise self._diverged(f"the loss of epoch {epoch} is NaN or infinite")
            if value > HOPELESS * self.state.first_loss:
                raise self._diverged(
                    f"the loss of epoch {epoch} has grown from {self.state.first_loss:.3g} to {value:.3g}"
                )
            self.state.loss_sum += value
            self.state.losses += 1

    def _diverged(self, what: str) -> Diverged:
        rate = rate_of(self.step.optimizer)
        usual = TrainSettings.learning_rate
        lower = f"a learning rate below {rate / 3:.2g}"
        tries = [lower + (f", such as the default {usual:g}," if rate > 3 * usual else "")]
        if self.precision.applied in ("fp16", "bf16"):
            tries.append(f"precision fp32 instead of {self.precision.applied}")
        if not self.model.config.batch_norm:
            tries.append("batch norm")
        return Diverged(
            f"{what} (learning rate {rate:.2g}, {self.settings.optimizer}, {self.precision.applied}).",
            hint=f"try {' or '.join(tries).rstrip(',')}.",
        )

    def _save_if_due(self, losses: list[torch.Tensor], epoch: int) -> None:
        if self.keeper.is_due:
            self._take_losses(losses, epoch)
            self.keeper.save_resumable(self.state)


def _report_options(report: Report, settings: TrainSettings, precision: Precision, chunk: int) -> None:
    report.option("precision", precision.requested, precision.applied, precision.reason)
    report.option("batch_size", settings.batch_size, settings.batch_size, None)
    requested = "auto" if settings.entity_chunk is None else settings.entity_chunk
    report.option(
        "entity_chunk", requested, chunk, "by device and batch size" if requested == "auto" else None
    )
    wanted = "on" if settings.gradient_checkpointing else "off"
    report.option("gradient_checkpointing", wanted, wanted, None)
