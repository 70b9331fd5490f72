"""What listens to PyKEEN while it trains: it reports, keeps checkpoints and ranks, and stops."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.trackers import ResultTracker
from pykeen.training.callbacks import TrainingCallback

from kgops.maths.graphs.triples import Graph
from kgops.maths.models.pykeen_models import PykeenRecipe, write_kept_pykeen
from kgops.maths.train.evaluate import Evaluation
from kgops.maths.worker.entry import Stopped, StopRequest
from kgops.maths.worker.memory_cleanup import MemoryCleanup
from kgops.maths.worker.report import Progress, Reporter

MRR = "both.realistic.inverse_harmonic_mean_rank"
CHECKPOINT = "resume_pykeen.pt"


class KeepForTracin(TrainingCallback):  # type: ignore[misc]
    """Writes a checkpoint for TracIn every `checkpoint_frequency` epochs, with all that rebuilds the model."""

    def __init__(
        self, checkpoints: Path, settings: dict[str, Any], recipe: PykeenRecipe, graph: Graph
    ) -> None:
        super().__init__()
        self._folder, self._every, self._recipe = checkpoints, settings["checkpoint_frequency"], recipe
        smoothing = settings["label_smoothing"]
        self._loss = settings["loss"] and {"name": settings["loss"], "label_smoothing": smoothing}
        self._digests: dict[str, Any] = {
            "entities_digest": graph.entities.digest,
            "relations_digest": graph.relations.digest,
            "data": graph.digests,
        }

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        if not self._every or epoch % self._every:
            return
        write_kept_pykeen(
            self._folder / f"checkpoint_epoch_{epoch:07}.pt",
            self.model,
            self._recipe,
            epoch=epoch,
            learning_rate=self.optimizer.param_groups[0]["lr"],
            loss=self._loss,
            **self._digests,
        )


class ReportEpochs(TrainingCallback):  # type: ignore[misc]
    """Reports progress and loss, checks for a stop request, keeps the previous checkpoint."""

    def __init__(
        self, epochs: int, checkpoint: Path, report: Reporter, stop: StopRequest, cleanup: MemoryCleanup
    ) -> None:
        super().__init__()
        self._cleanup = cleanup
        self.seconds = 0.0
        self._epochs, self._checkpoint, self._report, self._stop = epochs, checkpoint, report, stop
        self._batches = self._batches_an_epoch = self._held = 0
        self._started = time.monotonic()
        self._progress: Progress | None = None

    def pre_batch(self, **kwargs: Any) -> None:
        if not self._batches:
            self._started = time.monotonic()

    def post_batch(self, epoch: int, batch: Any, **kwargs: Any) -> None:
        if self._stop():
            raise Stopped
        self._cleanup.after_step()
        self._batches += 1
        if self._progress is None:
            self._progress = Progress(self._report, "train", "epoch", done=epoch - 1)
        if self._batches_an_epoch:
            share = min(1.0, self._batches / self._batches_an_epoch)
            self._progress(round(epoch - 1 + share, 2), self._epochs)

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        took = time.monotonic() - self._started
        self.seconds += took
        self._batches_an_epoch, self._batches = self._batches, 0
        rate = self.optimizer.param_groups[0]["lr"]
        if self._progress is not None:
            self._progress(epoch, self._epochs)
        self._report.metric("learning_rate", rate, epoch)
        self._report.metric("epoch_seconds", took, epoch)
        self._report.metric("loss", epoch_loss, epoch)
        if self.model.device.type == "cuda" and not self._held:
            # Before the evaluation: of training only.
            self._held = torch.cuda.max_memory_allocated(self.model.device)
            self._report.memory(peak_allocated=self._held / 2**20)
        self._cleanup.between_phases()
        if self._checkpoint.exists():
            # PyKEEN overwrites it in place: a kill in the middle would leave a truncated file.
            self._checkpoint.rename(self._checkpoint.with_name(f"{CHECKPOINT}.before"))


class KeepRanks(RankBasedEvaluator):  # type: ignore[misc]
    """Keeps the ranks of the newest evaluation, in the order of its triples."""

    def finalize(self) -> Any:
        self._kept = {
            side: np.concatenate(self.ranks[side, "realistic"]).astype(np.float64)
            for side in ("head", "tail")
        }
        return super().finalize()

    def newest(self) -> Evaluation:
        return Evaluation(torch.from_numpy(self._kept["head"]), torch.from_numpy(self._kept["tail"]))


class Tracker(ResultTracker):  # type: ignore[misc]
    """Reports the early stopper's validation metrics; the callback reports the loss."""

    def __init__(self, report: Reporter) -> None:
        super().__init__()
        self._report = report

    def log_metrics(self, metrics: Any, step: int | None = None, prefix: str | None = None) -> None:
        if prefix != "validation" or step is None:
            return
        for k in (1, 3, 10):
            self._report.metric(f"valid_hits_at_{k}", metrics[f"both.realistic.hits_at_{k}"], step)
        self._report.metric("valid_mrr", metrics[MRR], step)
