"""Retrains on a subset of the training triples and measures the new model on the test triples. A journal keeps finished
retrainings, one JSON line each, so that none is repeated."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from kgops.jobs.files import sync
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.build import build_model
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.train.batches import query_rows
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.loop import fit
from kgops.maths.train.settings import TrainSettings
from kgops.maths.worker.entry import Stopped
from kgops.maths.worker.memory_cleanup import OFF, MemoryCleanup
from kgops.maths.worker.report import Progress, Report
from kgops.workloads.train.models import ModelConfig

_NEVER_S = 1e12  # a training that is short is not saved on the way


@dataclass(frozen=True)
class Outcome:
    """Outputs of one model for one test triple.

    `probability` as in the training loss: sigmoid or softmax of the logit. Ranks are filtered.
    """

    logit: float
    probability: float
    rank: float
    head_rank: float


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
    `graph`: a deleted one is still true. `settings.num_epochs` should be the epochs of the last checkpoint.
    """

    def __init__(
        self,
        graph: Graph,
        tests: torch.Tensor,
        config: ModelConfig,
        settings: TrainSettings,
        folder: Path,
        report: Report,
        *,
        device: torch.device | str = "cpu",
        stop_requested: Callable[[], bool] = lambda: False,
        cleanup: MemoryCleanup = OFF,
    ) -> None:
        self.cleanup = cleanup
        self.graph, self.tests, self.config = graph, tests.cpu(), config
        self.settings = replace(settings, validate_every=0, patience=0, checkpoint_frequency=0)
        self.folder, self.report, self.stop_requested = folder, report, stop_requested
        self.device = torch.device(device)
        known = torch.cat([graph.train, graph.valid, graph.test, self.tests])
        self._evaluator = Evaluator(known, graph.num_entities, device=self.device)
        self._known_digest = hashlib.sha256(known.numpy().tobytes()).hexdigest()
        if settings.schedule == "plateau":
            report.note("retrainings keep the first learning rate: the plateau schedule needs validation.")

    @property
    def about(self) -> Mapping[str, Any]:
        settings = self.settings.to_dict()
        # The seed is part of the journal's key; the others change no weight.
        for name in ("seed", "resume_every", "loss_every"):
            del settings[name]
        graph = {"entities": self.graph.entities.digest, "relations": self.graph.relations.digest}
        return {"model": self.config.to_dict(), "settings": settings, "known": self._known_digest, **graph}

    def __call__(self, train: torch.Tensor, seed: int, on_progress: Callable[[float], None]) -> list[Outcome]:
        torch.manual_seed(seed)
        model = build_model(self.config).to(self.device)
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
            raise Stopped
        return self.outcomes(model)

    @torch.no_grad()
    def outcomes(self, model: EntityModel) -> list[Outcome]:
        """Outcomes of `model` for the test triples; leaves it in evaluation mode."""
        model.eval()
        ranks = self._evaluator(model, self.tests)
        assert ranks is not None  # no stop request here
        outcomes = []
        for i, row in enumerate(query_rows(self.tests, model.config.inverse)):
            scores = model(row[:1].to(self.device), row[1:2].to(self.device))[0].cpu().double()
            logit = scores[row[2]]
            probability = logit.sigmoid() if self.settings.loss.endswith("bce") else scores.softmax(0)[row[2]]
            outcomes.append(
                Outcome(
                    logit=float(logit),
                    probability=float(probability),
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

    def _drop(self, *what: object, **fields: object) -> None:
        pass

    option = metric = memory = artifact = _drop

    def note(self, text: str) -> None:
        self._report.note(text)


@dataclass(frozen=True)
class Retraining:
    """A retraining on all training triples but `deleted`, whose rows are in ascending order."""

    deleted: tuple[int, ...]
    seed: int
    name: str  # for people who read the journal


def union_of(sets: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Rows as `deleted` has them."""
    return tuple(sorted({row for rows in sets for row in rows}))


class Journal:
    """Retrainings of one training set, measured on the test triples, kept in the file at `path`.

    A line's key is a digest of all that determines its outcomes: data, tests, settings, deleted triples and seed. So
    one file can serve several runs.
    """

    def __init__(
        self,
        path: Path,
        train: torch.Tensor,
        tests: torch.Tensor,
        retrain: Retrain,
        *,
        report: Report | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        self.path, self.train, self.retrain = path, train, retrain
        self.report, self.stop_requested = report, stop_requested
        self._tests = len(tests)
        about = {"train": train.tolist(), "tests": tests.tolist(), **retrain.about}
        self._about = _digest(about)
        self._torn = False
        self._done = self._read()

    def outcomes(self, wanted: Sequence[Retraining]) -> list[list[Outcome]]:
        """One list for each of `wanted`, in order. Raises `Stopped` on a stop request; finished retrainings are
        kept."""
        keys = [self._key(one) for one in wanted]
        missing = {key: one for key, one in zip(keys, wanted, strict=True) if key not in self._done}
        total = len(set(keys))
        progress = None if self.report is None else Progress(self.report, "retrain", "retrainings")
        for n, (key, one) in enumerate(missing.items(), total - len(missing)):
            if self.stop_requested():
                raise Stopped
            self._done[key] = self._one(key, one, n, total, progress)
            if progress is not None:
                progress(n + 1, total)
        return [self._done[key] for key in keys]

    def _one(self, key: str, one: Retraining, n: int, total: int, progress: Progress | None) -> list[Outcome]:
        kept = torch.ones(len(self.train), dtype=torch.bool)
        kept[list(one.deleted)] = False

        def on_progress(share: float) -> None:
            if progress is not None and share < 1:
                progress(n + share, total)

        started = time.monotonic()
        outcomes = list(self.retrain(self.train[kept], one.seed, on_progress))
        if len(outcomes) != self._tests:
            raise ValueError(f"a retraining gave {len(outcomes)} outcomes for {self._tests} tests")
        self._append(
            {
                "key": key,
                "name": one.name,
                "seed": one.seed,
                "deleted": len(one.deleted),
                "seconds": round(time.monotonic() - started, 3),
                "outcomes": [asdict(outcome) for outcome in outcomes],
            }
        )
        return outcomes

    def _key(self, one: Retraining) -> str:
        return _digest({"about": self._about, "deleted": list(one.deleted), "seed": one.seed})

    def _append(self, line: dict[str, Any]) -> None:
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A killed writer may have left a partial line: start a new one.
        with self.path.open("ab") as file:
            file.write(b"\n" * self._torn + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._torn = False
        if new:
            sync(self.path.parent)

    def _read(self) -> dict[str, list[Outcome]]:
        if not self.path.exists():
            return {}
        done, content = {}, self.path.read_bytes()
        self._torn = bool(content) and not content.endswith(b"\n")
        for text in content.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # empty or a partial line: that retraining is repeated
            done[line["key"]] = [Outcome(**outcome) for outcome in line["outcomes"]]
        return done


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
