"""`--validate K`: validates influences by deletion and retraining (Bhardwaj et al. 2021): do tests change without them?

A change is the difference between two retrainings with equal settings and seed, one of them on all training triples. It
is meaningful if it exceeds the noise and the change by deleting as many random triples. Noise is the difference between
two retrainings on all triples with different seeds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.files import write_json
from kgops.maths.graphs.triples import Graph
from kgops.maths.tracin.checkpoint_set import LoadedCheckpoint
from kgops.maths.tracin.retraining import FitAgain, Journal, Outcome, Retrain, Retraining, union_of
from kgops.maths.tracin.scan import AllScores, Scoring, TopTriples
from kgops.maths.worker.report import Report, Reporter
from kgops.workloads.tracin.options import (
    TRACIN_VALIDATED_TESTS,
    TRACIN_VALIDATION_DRAWS,
    TRACIN_VALIDATION_NOISE,
)

NOISE = "another seed"
QUANTITIES = ("logit", "probability")
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

    def change(self, deletion: str, quantity: str, test: int | None = None) -> float | None:
        """Mean over all draws and seeds, of one test triple or of all."""
        return _mean(
            change.of(quantity)
            for change in self.changes
            if change.deletion == deletion and test in (None, change.test)
        )

    def noise(self, quantity: str) -> float | None:
        """Mean absolute change of a test triple when only the seed changes."""
        return _mean(abs(change.of(quantity)) for change in self.changes if change.deletion == NOISE)

    def metrics(self) -> dict[str, float]:
        """Means by name, such as `logit_change_proponents`."""
        metrics: dict[str, float | None] = {"retrainings": float(self.retrainings)}
        for quantity in QUANTITIES:
            for deletion in self.deletions:
                if deletion != NOISE:
                    metrics[f"{quantity}_change_{deletion}"] = self.change(deletion, quantity)
            metrics[f"{quantity}_noise"] = self.noise(quantity)
        return {name: value for name, value in metrics.items() if value is not None}

    def sentence(self, quantity: str = "probability") -> str:
        """The change by deleting the proponents, compared with controls and noise, and whether it exceeds both."""
        changes = {kind: self.change(kind, quantity) for kind in ("proponents", *CONTROLS)}
        ours, noise = changes.pop("proponents"), self.noise(quantity)
        if ours is None:
            return f"validation: the {quantity} could not be measured."
        beside = ", ".join(f"{kind} {_signed(change)}" for kind, change in changes.items())
        said = "n/a" if noise is None else f"{noise:.3f}"
        return (
            f"validation: without the {self.k:,} strongest triples of each test triple the {quantity} of "
            f"{len(self.tests):,} test triples changes by {_signed(ours)} on average (as many {beside}; another seed "
            f"alone {said}): {_verdict(ours, [one for one in changes.values() if one is not None], noise)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "k": self.k,
            "retrainings": self.retrainings,
            "metrics": self.metrics(),
            "tests": [
                {
                    "triple": list(triple),
                    "changes": {
                        deletion: {quantity: self.change(deletion, quantity, test) for quantity in QUANTITIES}
                        for deletion in self.deletions
                    },
                }
                for test, triple in enumerate(self.tests)
            ],
            "retrained": [asdict(change) for change in self.changes],
        }


def _mean(values: Iterable[float]) -> float | None:
    """Of the finite values; None where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return fmean(finite) if finite else None


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
    `noise` more seeds. Finished retrainings are kept in the file `journal` and not repeated. Raises `Stopped`
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
    settings = last.training("--validate")
    if len(tests) > TRACIN_VALIDATED_TESTS:  # more would delete most of a small graph
        report.note(f"validated on the first {TRACIN_VALIDATED_TESTS} of {len(tests):,} test triples.")
        tests = tests[:TRACIN_VALIDATED_TESTS]
    scores = AllScores(len(tests), len(graph.train))
    scoring(graph.train, tests, scores, report, stop)
    model = last.checkpoint.model
    again = FitAgain(
        graph,
        tests,
        model.config,
        settings,
        folder,
        report,
        device=model.entities.device,
        stop_requested=stop,
        cleanup=scoring.cleanup,
    )
    deleted = validate(
        *(graph, tests, scores.scores, k, again, folder / JOURNAL),
        seed=seed,
        draws=TRACIN_VALIDATION_DRAWS,
        noise=TRACIN_VALIDATION_NOISE,
        report=report,
        stop_requested=stop,
    )
    report.note(deleted.sentence())
    write_json(folder / "results" / "validation.json", deleted.to_dict())
    return deleted.metrics()
