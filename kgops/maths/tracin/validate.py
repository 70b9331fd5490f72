"""`--validate K`: validates influences by deletion and retraining (Bhardwaj et al. 2021): do tests change without them?

A change is the difference between two retrainings with equal settings and seed, one of them on all training triples. It
is meaningful if it exceeds the noise and the change by deleting as many random triples. Noise is the difference between
two retrainings on all triples with different seeds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs import events
from kgops.jobs.files import write_json
from kgops.maths.graphs.triples import Graph
from kgops.maths.tracin.attribution import Scoring
from kgops.maths.tracin.checkpoint_set import LoadedCheckpoint
from kgops.maths.tracin.retraining import FitAgain, Journal, Outcome, Retrain, Retraining, union_of
from kgops.maths.tracin.scan import AllScores, TopTriples
from kgops.maths.train.settings import TrainSettings
from kgops.maths.worker.report import Report, Reporter
from kgops.workloads.tracin.options import (
    TRACIN_VALIDATED_TESTS,
    TRACIN_VALIDATION_DRAWS,
    TRACIN_VALIDATION_NOISE,
)

NOISE = "another seed"
# Measured quantities and their units.
QUANTITIES = {
    "logit": "logits",
    "probability": "probability",
    "margin": "logits",
    "rank": "ranks",
    "reciprocal_rank": "reciprocal rank",
}
BY_INFLUENCE = ("proponents", "opponents")
CONTROLS = ("random", "neighbours")


@dataclass(frozen=True)
class _Deletion:
    """Training rows to delete, ascending."""

    kind: str
    draw: int
    rows: tuple[int, ...]


def _deletions(
    train: torch.Tensor, tests: torch.Tensor, influences: torch.Tensor, k: int, *, draws: int, seed: int
) -> Iterator[_Deletion]:
    """Deletions of all tests' proponents, of their opponents, and `draws` of each control.

    Control `random` draws from all training triples, `neighbours` from those with an entity of a test. Each deletes as
    many as there are proponents, or all it has.
    """
    proponents, opponents = _strongest(influences, k)
    rows = union_of(proponents)
    _leave_enough(len(rows), len(tests), len(train))
    yield _Deletion("proponents", 0, rows)
    yield _Deletion("opponents", 0, union_of(opponents))
    pools = [_touching(train, test) for test in tests]
    for draw in range(draws):
        where = f"{seed} {draw} {tuple(range(len(tests)))}"
        chosen = _shuffled(range(len(train)), f"random {where}")[: len(rows)]
        yield _Deletion("random", draw, tuple(sorted(chosen)))
        yield _Deletion("neighbours", draw, _round_robin(pools, len(rows), f"neighbours {where}"))


def _strongest(influences: torch.Tensor, k: int) -> tuple[list[list[int]], list[list[int]]]:
    trains = influences.shape[1]
    if not 1 <= k <= trains:
        raise BadInput(
            f"{k:,} triples cannot be deleted for each test triple: {trains:,} are ranked.",
            hint="validate fewer.",
        )
    top = TopTriples(k)
    top.add(0, torch.arange(trains, device=influences.device), influences)
    top.finish()
    return top.proponents[1].tolist(), top.opponents[1].tolist()


def _leave_enough(deleted: int, tests: int, trains: int) -> None:
    if 2 * deleted > trains:
        raise BadInput(
            f"{deleted:,} of {trains:,} training triples would be deleted for {tests:,} test triples.",
            hint="validate fewer triples or fewer tests, so that at least half remains to train on.",
        )


def _touching(train: torch.Tensor, test: torch.Tensor) -> list[int]:
    ends = test[[0, 2]]
    rows: list[int] = torch.isin(train[:, [0, 2]], ends).any(dim=1).nonzero()[:, 0].tolist()
    return rows


def _round_robin(pools: Sequence[Sequence[int]], count: int, where: str) -> tuple[int, ...]:
    """`count` rows, one from each pool in turn, so that an entity with many triples does not dominate."""
    waiting = [iter(_shuffled(pool, f"{where} {i}")) for i, pool in enumerate(pools)]
    taken: set[int] = set()
    while waiting and len(taken) < count:
        for pool in list(waiting):
            row = next((row for row in pool if row not in taken), None)
            if row is None:
                waiting.remove(pool)
            elif len(taken) < count:
                taken.add(row)
    return tuple(sorted(taken))


def _shuffled(rows: Sequence[int], what: str) -> list[int]:
    """In an order determined by `what`, so that a resumed run draws equal triples."""
    digest = hashlib.sha256(f"kgops deletion {what}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    return [rows[i] for i in torch.randperm(len(rows), generator=generator).tolist()]


@dataclass(frozen=True)
class Change:
    """One test triple before and after one deletion; for `another seed` nothing was deleted."""

    deletion: str
    draw: int
    seed: int
    test: int
    deleted: int
    before: Outcome
    after: Outcome

    def of(self, quantity: str) -> float:
        return float(getattr(self.after, quantity) - getattr(self.before, quantity))

    def to_dict(self) -> dict[str, Any]:
        what = {name: getattr(self, name) for name in ("deletion", "draw", "seed", "test", "deleted")}
        return {**what, "before": self.before.to_dict(), "after": self.after.to_dict()}


@dataclass(frozen=True)
class Validation:
    """All changes and their summary. `deletions`: proponents, opponents, controls and noise."""

    k: int
    tests: tuple[tuple[int, int, int], ...]
    retrainings: int
    changes: tuple[Change, ...]

    @property
    def deletions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.deletion for change in self.changes))

    def spread(self, deletion: str, quantity: str) -> Spread:
        """Over all test triples, draws and seeds."""
        return Spread.of(change.of(quantity) for change in self._all(deletion))

    def of_test(self, test: int, deletion: str, quantity: str) -> Spread:
        """Of one test triple, over draws and seeds."""
        return Spread.of(change.of(quantity) for change in self._all(deletion) if change.test == test)

    def noise(self, quantity: str) -> Spread:
        """Absolute change of a test triple when only the seed changes."""
        return Spread.of(abs(change.of(quantity)) for change in self._all(NOISE))

    def beside(self, deletion: str, control: str, quantity: str) -> Spread:
        """Change by `deletion` minus change by `control`, one value for each test triple."""
        ours, theirs = self._means(deletion, quantity), self._means(control, quantity)
        return Spread.of(ours[test] - theirs[test] for test in ours.keys() & theirs.keys())

    def share_below(self, control: str) -> Spread:
        """Share of test triples whose logit falls more by deleting their proponents than by `control`."""
        ours, theirs = self._means("proponents", "logit"), self._means(control, "logit")
        return Spread.of(float(ours[test] < theirs[test]) for test in ours.keys() & theirs.keys())

    def metrics(self) -> dict[str, float]:
        """Means by name, such as `logit_change_proponents`."""
        metrics: dict[str, float | None] = {"retrainings": float(self.retrainings)}
        for quantity in QUANTITIES:
            for deletion in self.deletions:
                if deletion != NOISE:
                    metrics[f"{quantity}_change_{deletion}"] = self.spread(deletion, quantity).mean
            metrics[f"{quantity}_noise"] = self.noise(quantity).mean
        for control in CONTROLS:
            metrics[f"share_hurt_more_than_{control}"] = self.share_below(control).mean
        return {name: value for name, value in metrics.items() if value is not None}

    def main_metrics(self) -> dict[str, float]:
        """The few that a run shows; `to_dict` has all."""
        kinds = ("change_proponents", *(f"change_{control}" for control in CONTROLS), "noise")
        wanted = {f"{quantity}_{kind}" for quantity in ("logit", "probability") for kind in kinds}
        return {name: value for name, value in self.metrics().items() if name in wanted | {"retrainings"}}

    def sentence(self, quantity: str = "probability") -> str:
        """The change by deleting the proponents, compared with controls and noise, and whether it exceeds both."""
        changes = {kind: self.spread(kind, quantity).mean for kind in ("proponents", *CONTROLS)}
        ours, noise = changes.pop("proponents"), self.noise(quantity).mean
        if ours is None:
            return f"validation: the {quantity} could not be measured."
        beside = ", ".join(f"{kind} {_signed(change)}" for kind, change in changes.items())
        said = "n/a" if noise is None else f"{noise:.3f}"
        return (
            f"validation: without the {self.k:,} strongest triples of each test triple the {quantity} of "
            f"{len(self.tests):,} test triples changes by {_signed(ours)} on average (as many {beside}; another seed "
            f"alone {said}): {_verdict(ours, [one for one in changes.values() if one is not None], noise)}."
        )

    def measurements(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for quantity, unit in QUANTITIES.items():
            name = f"tracin deletion: change of {quantity.replace('_', ' ')}"
            for deletion in self.deletions:
                if deletion != NOISE:
                    entries += self.spread(deletion, quantity).measurement(name, deletion, None, unit)
            entries += self.noise(quantity).measurement(f"{name}, absolute", NOISE, None, unit)
            for deletion in BY_INFLUENCE:
                for control in CONTROLS:
                    beside = self.beside(deletion, control, quantity)
                    entries += beside.measurement(name, deletion, control, unit)
        for control in CONTROLS:
            share = self.share_below(control).measurement(
                "tracin deletion: share of tests whose logit falls more", "proponents", control, "share"
            )
            entries += [{**one, "low": None, "high": None} for one in share]  # quartiles of yes and no
        return entries

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        spreads = {
            deletion: {quantity: self.spread(deletion, quantity).to_dict() for quantity in QUANTITIES}
            for deletion in self.deletions
        }
        by_test = [
            {
                "triple": list(triple),
                "changes": {
                    deletion: {q: self.of_test(test, deletion, q).to_dict() for q in QUANTITIES}
                    for deletion in self.deletions
                },
            }
            for test, triple in enumerate(self.tests)
        ]
        return {
            "k": self.k,
            "together": True,
            "retrainings": self.retrainings,
            "metrics": self.metrics(),
            "changes": spreads,
            "tests": by_test,
            "retrained": [change.to_dict() for change in self.changes],
        }

    def _means(self, deletion: str, quantity: str) -> dict[int, float]:
        spreads = {test: self.of_test(test, deletion, quantity).mean for test in range(len(self.tests))}
        return {test: mean for test, mean in spreads.items() if mean is not None}

    def _all(self, deletion: str) -> list[Change]:
        return [change for change in self.changes if change.deletion == deletion]


def _signed(change: float | None) -> str:
    return "n/a" if change is None else f"{change:+.3f}"


def _verdict(ours: float, controls: Sequence[float], noise: float | None) -> str:
    if noise is None:
        return "without a second seed nobody can say whether that is noise"
    if -ours <= noise:
        return "no fall beyond noise"
    if min(controls, default=0.0) - ours <= noise:
        return "a fall beyond noise, but not beyond that of the controls"
    return "a fall beyond noise and controls"


def validate(
    graph: Graph,
    tests: torch.Tensor,
    influences: torch.Tensor,
    k: int,
    retrain: Retrain,
    journal: Path,
    *,
    seed: int,
    draws: int = 3,
    noise: int = 3,
    report: Report | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Validation:
    """Deletes the `k` strongest proponents, opponents, or controls of each test triple, and retrains.

    `influences`: scores (tests, rows of `graph.train`). The triples of all tests are deleted at once, as in
    Bhardwaj et al.: 1 + noise + 2 + 2 · draws retrainings. Deletions are retrained with `seed`, all triples with
    `noise` more seeds. Finished retrainings are kept in the file `journal` and not repeated. Raises `Interrupted`
    soon after `stop_requested` returns true.
    """
    tests = tests.cpu()
    plan = list(_deletions(graph.train, tests, influences, k, draws=draws, seed=seed))
    everyone = range(len(tests))
    bases = [Retraining((), seed + i, "all triples") for i in range(noise + 1)]
    wanted = [Retraining(one.rows, seed, f"{one.kind} {one.draw} of tests {[*everyone]}") for one in plan]
    journaled = Journal(journal, graph.train, tests, retrain, report=report, stop_requested=stop_requested)
    outcomes = journaled.outcomes(bases + wanted)
    before, after = outcomes[: len(bases)], outcomes[len(bases) :]
    changes = [
        Change(NOISE, 0, seed + b, test, 0, before[a][test], before[b][test])
        for a, b in combinations(range(len(bases)), 2)
        for test in everyone
    ]
    changes += [
        Change(one.kind, one.draw, seed, test, len(one.rows), before[0][test], then[test])
        for one, then in zip(plan, after, strict=True)
        for test in everyone
    ]
    triples = tuple((int(h), int(r), int(t)) for h, r, t in tests.tolist())
    retrained = len({(one.deleted, one.seed) for one in bases + wanted})
    return Validation(k, triples, retrained, tuple(changes))


@dataclass(frozen=True)
class Spread:
    """Mean, quartiles and count of the finite values; None where there are none."""

    mean: float | None
    low: float | None
    median: float | None
    high: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        finite = torch.tensor([v for v in values if math.isfinite(v)], dtype=torch.float64)
        if not len(finite):
            return cls(None, None, None, None, 0)
        at = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
        low, median, high = finite.quantile(at).tolist()
        return cls(float(finite.mean()), low, median, high, len(finite))

    def measurement(self, name: str, subject: str, against: str | None, unit: str) -> list[dict[str, Any]]:
        """One measurement, with the quartiles as its range; empty without values."""
        if self.mean is None:
            return []
        what = {"name": name, "subject": subject, "against": against, "unit": unit}
        return [{**what, "value": self.mean, "low": self.low, "high": self.high, "n": self.n}]

    def to_dict(self) -> dict[str, float | int | None]:
        return asdict(self)


# Deleted together: more tests would delete most of a small graph.
MOST_TESTS = TRACIN_VALIDATED_TESTS
JOURNAL = "retrainings.jsonl"


def validate_influences(
    graph: Graph,
    scoring: Scoring,
    last: LoadedCheckpoint,
    tests: torch.Tensor,
    k: int,
    seed: int,
    folder: Path,
    report: Reporter,
    stop: Callable[[], bool],
) -> dict[str, float]:
    """Deletes the k highest, the k lowest and k random triples, retrains each time, and reports the changes."""
    if last.settings is None or last.epoch is None:
        raise BadInput(
            f"{last.path} has no training settings, so it cannot be retrained.",
            hint="--validate needs checkpoints of a kgops training.",
        )
    if len(tests) > MOST_TESTS:
        report.note(f"validated on the first {MOST_TESTS} of {len(tests):,} test triples.")
        tests = tests[:MOST_TESTS]
    scores = AllScores(len(tests), len(graph.train), like=scoring.checkpoints[0].model.entities)
    scoring(graph.train, tests, scores, report, stop)
    settings = replace(TrainSettings(**last.settings), num_epochs=last.epoch)
    model = last.checkpoint.model
    again = FitAgain(
        graph,
        tests,
        model.config,
        settings,
        folder,
        report,
        loss=scoring.loss,
        device=model.entities.device,
        stop_requested=stop,
        cleanup=scoring.cleanup,
    )
    influences = scores.scores.cpu()
    common: dict[str, Any] = {"seed": seed, "report": report, "stop_requested": stop}
    deleted = validate(
        *(graph, tests, influences, k, again, folder / JOURNAL),
        draws=TRACIN_VALIDATION_DRAWS,
        noise=TRACIN_VALIDATION_NOISE,
        **common,
    )
    results = folder / "results"
    body, metrics, measured = deleted.to_dict(), deleted.main_metrics(), deleted.measurements()
    report.note(deleted.sentence())
    write_json(results / "validation.json", body)
    for one in measured:
        report.send(events.MEASURED, **{name: value for name, value in one.items() if value is not None})
    return metrics
