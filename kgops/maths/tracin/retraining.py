"""Retrains on a subset of the training triples and measures the new model on the test triples."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from kgops.errors import Interrupted
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.loss import ONE_TO_N, KnownTails, TracinLoss, row_loss
from kgops.maths.train.batches import query_rows
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.loop import fit
from kgops.maths.train.settings import TrainSettings
from kgops.maths.worker.memory_cleanup import OFF, MemoryCleanup
from kgops.maths.worker.reporter import Report
from kgops.workloads.train.job import ConvEConfig

_NEVER_S = 1e12  # a training that is short is not saved on the way


@dataclass(frozen=True)
class Outcome:
    """Outputs of one model for one test triple.

    `probability` as in the training loss: sigmoid or softmax of the logit. `margin`: logit minus the log-sum-exp over
    all others that are not known true tails; where there is none, the logit. Ranks are filtered.
    """

    logit: float
    probability: float
    margin: float
    loss: float
    rank: float
    head_rank: float

    @property
    def reciprocal_rank(self) -> float:
        return 1 / self.rank

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


class Retrain(Protocol):
    """Trains on `train` from `seed` and returns an outcome for each test triple.

    `about`: everything else that determines the outcomes; journaled retrainings are reused only if it is equal.
    `on_progress` is called with the share done.
    """

    @property
    def about(self) -> Mapping[str, Any]: ...

    def __call__(
        self, train: torch.Tensor, seed: int, on_progress: Callable[[float], None]
    ) -> Sequence[Outcome]: ...


class FitAgain:
    """Retrains with the model's config and settings, as `kgops train` does, without validation.

    Entities and relations keep their ids, even if no triple of theirs is left. Ranks are filtered by all triples of
    `graph`: a deleted one is still true. `settings.num_epochs` should be the epochs of the last checkpoint, `loss` the
    loss that TracIn compares, which influences predict.
    """

    def __init__(
        self,
        graph: Graph,
        tests: torch.Tensor,
        config: ConvEConfig,
        settings: TrainSettings,
        folder: Path,
        report: Report,
        *,
        loss: TracinLoss = ONE_TO_N,
        device: torch.device | str = "cpu",
        stop_requested: Callable[[], bool] = lambda: False,
        cleanup: MemoryCleanup = OFF,
    ) -> None:
        self.cleanup = cleanup
        self.graph, self.tests, self.config = graph, tests.cpu(), config
        # Where the tests and their scores are.
        self.loss = loss if loss.known is None else replace(loss, known=loss.known.to(torch.device("cpu")))
        self.settings = replace(settings, validate_every=0, patience=0, checkpoint_frequency=0)
        self.folder, self.report, self.stop_requested = folder, report, stop_requested
        self.device = torch.device(device)
        known = torch.cat([graph.train, graph.valid, graph.test, self.tests])
        self._evaluator = Evaluator(known, graph.num_entities, device=self.device)
        self._known = KnownTails(query_rows(known, config.inverse), config.relation_rows)
        self._known_digest = hashlib.sha256(known.numpy().tobytes()).hexdigest()
        if settings.schedule == "plateau":
            report.note("retrainings keep the first learning rate: the plateau schedule needs validation.")

    @property
    def about(self) -> Mapping[str, Any]:
        settings = self.settings.to_dict()
        # The seed is part of the journal's key; the others change no weight.
        for name in ("seed", "resume_every", "loss_every"):
            del settings[name]
        loss = {
            "kind": self.loss.kind,
            "smoothing": self.loss.smoothing,
            "over_others": self.loss.over_others,
            "all": self.loss.known is not None,
        }
        graph = {"entities": self.graph.entities.digest, "relations": self.graph.relations.digest}
        measured = {"loss": loss, "known": self._known_digest}
        return {"model": self.config.to_dict(), "settings": settings, "measured": measured, **graph}

    def __call__(self, train: torch.Tensor, seed: int, on_progress: Callable[[float], None]) -> list[Outcome]:
        torch.manual_seed(seed)
        model = ConvE(self.config).to(self.device)
        reduced = replace(self.graph, train=train, valid=self.graph.valid[:0])
        settings = replace(self.settings, seed=seed, resume_every=_NEVER_S)
        scratch = self.folder / "retraining"
        shutil.rmtree(scratch, ignore_errors=True)  # left by a killed attempt
        scratch.mkdir(parents=True)
        try:
            done = fit(
                model,
                reduced,
                settings,
                scratch,
                _ProgressOnly(self.report, on_progress),
                self.stop_requested,
                cleanup=self.cleanup,
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self.cleanup.between_phases()
        if done.stopped == "requested":
            raise Interrupted("stopped within a retraining.", hint="resume the run to go on.")
        return self.outcomes(model)

    @torch.no_grad()
    def outcomes(self, model: ConvE) -> list[Outcome]:
        """Outcomes of `model` for the test triples; leaves it in evaluation mode."""
        model.eval()
        ranks = self._evaluator(model, self.tests)
        assert ranks is not None  # no stop request here
        outcomes = []
        for i, row in enumerate(query_rows(self.tests, model.config.inverse)):
            scores = model(row[:1].to(self.device), row[1:2].to(self.device))[0].cpu().double()
            false = torch.ones(len(scores), dtype=torch.bool)
            false[self._known.positives(row[None])[1]] = False
            false[row[2]] = False
            logit = scores[row[2]]
            probability = logit.sigmoid() if self.settings.loss.endswith("bce") else scores.softmax(0)[row[2]]
            outcomes.append(
                Outcome(
                    logit=float(logit),
                    probability=float(probability),
                    margin=float(logit - scores[false].logsumexp(0)) if false.any() else float(logit),
                    loss=float(row_loss(scores, row, self.loss)),
                    rank=float(ranks.tail_ranks[i]),
                    head_rank=float(ranks.head_ranks[i]),
                )
            )
        return outcomes


class _ProgressOnly:
    """Passes on a retraining's progress and notes; drops its metrics and files."""

    def __init__(self, report: Report, on_progress: Callable[[float], None]) -> None:
        self._report, self._inside = report, on_progress

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        if phase == "train":
            self._inside(done / total)

    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None:
        pass

    def metric(self, name: str, value: float, step: int) -> None:
        pass

    def memory(self, **mib: float) -> None:
        pass

    def artifact(self, path: Path, kind: str) -> None:
        pass

    def note(self, text: str) -> None:
        self._report.note(text)
