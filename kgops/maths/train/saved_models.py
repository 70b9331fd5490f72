"""Saves a training's state, checkpoints and best model, and checks whether a checkpoint belongs to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgops.errors import BadInput
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.train import checkpoints, losses
from kgops.maths.train.checkpoints import Checkpoint
from kgops.maths.train.optimizers import Schedule, rate_of
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep
from kgops.maths.worker.report import Report

# Settings that OOM fallbacks change, and how long to train and how often to validate: any other change is refused.
MAY_DIFFER = frozenset(
    {
        *("batch_size", "precision", "entity_chunk", "gradient_checkpointing", "compile", "cuda_graphs"),
        *("num_epochs", "patience", "validate_every", "checkpoint_frequency", "resume_every", "loss_every"),
    }
)


@dataclass
class TrainState:
    """Saved in every checkpoint, so it holds only numbers, lists and dicts."""

    epoch: int = 0  # completed
    batch: int = 0  # done in the next epoch
    owed: bool = False  # the validation and checkpoints that follow a completed epoch
    loss_sum: float = 0.0
    losses: int = 0
    first_loss: float | None = None  # of all
    seconds: float = 0.0  # in steps, by all attempts
    best_epoch: int | None = None
    best_mrr: float | None = None
    waited: int = 0
    early: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


def refuse_foreign(checkpoint: Checkpoint, graph: Graph, model: EntityModel, settings: TrainSettings) -> None:
    """Raises if the checkpoint has another graph, model or data order. More epochs, smaller batches or another
    precision are allowed, since OOM fallbacks change them."""
    saved = checkpoint.settings
    current = settings.to_dict()
    same = {
        "entities": checkpoint.entities_digest == graph.entities.digest,
        "relations": checkpoint.relations_digest == graph.relations.digest,
        "model": dict(checkpoint.config) == model.config.to_dict(),
        **{name: saved.get(name) == current[name] for name in current if name not in MAY_DIFFER},
    }
    checkpoints.refuse_unless_same(checkpoint, same)
    refuse_other_data(graph, checkpoint.data)


def refuse_other_data(graph: Graph, trained: Mapping[str, str]) -> None:
    """Raises if the training, of which these are the digests, cannot go on with this graph."""
    for part in ("train", "valid"):
        if (difference := graph.difference(part, trained)) is not None:
            raise BadInput(
                difference,
                hint="put the file back as it was, or start a new run, which `kgops run --again` does.",
            )


@dataclass
class Keeper:
    """Writes the files of a training; of several ranks only rank 0 does."""

    model: EntityModel
    graph: Graph
    settings: TrainSettings
    step: TrainStep
    schedule: Schedule
    folder: Path
    report: Report
    saved_at: float = field(default_factory=time.monotonic)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def is_due(self) -> bool:
        """Whether the last resume checkpoint is older than the interval."""
        return time.monotonic() - self.saved_at >= self.settings.resume_every

    def sweep(self, resume: bool) -> None:
        """Removes incomplete files of an earlier writer, and, unless `resume`, its resume checkpoints."""
        checkpoints.sweep(self.checkpoints)
        checkpoints.sweep(self.folder)
        if resume:
            return
        if checkpoints.forget_resumable(self.checkpoints):
            self.report.note("removed resume checkpoints of an earlier training in this folder.")
        kept = checkpoints.kept_checkpoints(self.checkpoints)
        if kept:
            self.report.note(f"{len(kept)} TracIn checkpoints of an earlier training stay in this folder.")

    def keep(self, name: str, kind: str, state: TrainState) -> None:
        path = self.folder / name
        checkpoints.write_checkpoint(path, self._checkpoint(state))
        self.report.artifact(path, kind)

    def keep_epoch(self, state: TrainState) -> None:
        """Writes a checkpoint for TracIn."""
        path = checkpoints.write_kept(self.checkpoints, self._checkpoint(state))
        self.report.artifact(path, "checkpoint")

    def save_resumable(self, state: TrainState) -> None:
        training = {
            "optimizer": self.step.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "overflows": self.step.overflows,
            "rng": checkpoints.rng_states(self.model.entities.device),
            "state": vars(state),
        }
        checkpoints.write_resumable(self.checkpoints, self._checkpoint(state, training))
        self.saved_at = time.monotonic()

    def _checkpoint(self, state: TrainState, training: dict[str, Any] | None = None) -> Checkpoint:
        settings = self.settings
        return Checkpoint(
            model=self.model.state_dict(),
            config=self.model.config.to_dict(),
            epoch=state.epoch,
            batch=state.batch,
            learning_rate=rate_of(self.step.optimizer),
            loss={
                "name": settings.loss,
                "label_smoothing": settings.label_smoothing,
                losses.SMOOTHED_OVER: losses.ALL,
            },
            entities_digest=self.graph.entities.digest,
            relations_digest=self.graph.relations.digest,
            settings=settings.to_dict(),
            training=training or {},
            data=self.graph.digests,
        )
