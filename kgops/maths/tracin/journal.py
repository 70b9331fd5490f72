"""Journal of finished retrainings, one JSON line each, so that none is repeated."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import Interrupted
from kgops.jobs.files import sync
from kgops.maths.tracin.retraining import Outcome, Retrain
from kgops.maths.worker.reporter import Progress, Report


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
        """One list for each of `wanted`, in order. Raises `Interrupted` on a stop request; finished retrainings are
        kept."""
        keys = [self._key(one) for one in wanted]
        missing = {key: one for key, one in zip(keys, wanted, strict=True) if key not in self._done}
        total = len(set(keys))
        progress = None if self.report is None else Progress(self.report, "retrain", "retrainings")
        for n, (key, one) in enumerate(missing.items(), total - len(missing)):
            if self.stop_requested():
                raise Interrupted(
                    f"stopped after {n:,} of {total:,} retrainings.", hint="resume the run to go on."
                )
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
                "outcomes": [outcome.to_dict() for outcome in outcomes],
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
