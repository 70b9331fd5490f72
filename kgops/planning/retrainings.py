"""The trainings that a run repeats to check what it found: how many, and how long one of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.jobs.job import Job
from kgops.planning.corrections import ExpectedTime, TimeCorrection
from kgops.planning.speed import seconds
from kgops.workloads.plan import Rates
from kgops.workloads.registry import workload_of
from kgops.workloads.train.sizes import TrainShape


@dataclass(frozen=True, slots=True)
class Retrainings:
    """`count` trainings of so many epochs, one after the other; fewer where that is `at_most`, or `epochs_at_most`.
    `epoch_s` is modelled, `time` what runs on this machine taught of it; None where it is not known."""

    count: int
    at_most: bool
    epochs: int | None
    epochs_at_most: bool
    epoch_s: float | None
    time: TimeCorrection | None

    @property
    def expected(self) -> ExpectedTime | None:
        """Of all of them."""
        if self.time is None or self.epoch_s is None or self.epochs is None:
            return None
        one, whole = self.time.expected(self.epoch_s), self.count * self.epochs
        return ExpectedTime(one.s * whole, one.low_s * whole, one.high_s * whole, one.runs)

    def __str__(self) -> str:
        """Lines of a plan about retraining."""
        what = f"plus {'at most ' * self.at_most}{self.count:,} trainings"
        expected = self.expected
        if expected is None:
            return f"{what}, whose time is not known yet"
        bound = "at most " if self.epochs_at_most else ""
        epochs = f"{bound}{self.epochs:,} epoch{'' if self.epochs == 1 else 's'}"
        runs = f"{expected.runs} training{'' if expected.runs == 1 else 's'} here"
        return (
            f"{what} of {epochs}: {_amount(expected.s)} s ({_amount(expected.low_s)} to {_amount(expected.high_s)}, "
            f"from {runs})"
        )

    def as_table(self) -> dict[str, Any]:
        expected = self.expected
        return {
            "count": self.count,
            "at_most": self.at_most,
            "epochs": self.epochs,
            "epochs_at_most": self.epochs_at_most,
            "expected_s": None if expected is None else expected._asdict(),
        }


def trains_again(job: Job) -> bool:
    return workload_of(job).retrainings(job.settings) > 0


def retrainings_of(
    job: Job,
    shape: TrainShape | None,
    rates: Rates,
    time: TimeCorrection | None,
) -> Retrainings | None:
    """Of a job `tracin` or `explain`, which trains `shape` again (None: not known); None where it does not."""
    if not trains_again(job):
        return None
    explains = "explanations" in workload_of(job).leaves
    count = workload_of(job).retrainings(job.settings)
    epoch_s = None if shape is None else seconds(shape, rates)
    kept = _kept_epochs(job.settings["checkpoint_dir"])
    whole = None if shape is None else shape.epochs
    epochs = kept[-1] if kept else whole
    of_model = explains and bool(job.settings["model_path"])
    if of_model and kept and whole is not None:
        # A best or final model is of any epoch before the next checkpoint would have been kept.
        epochs = min(kept[-1] + kept[0] - 1, whole)
    return Retrainings(count, explains and job.settings["smallest"], epochs, of_model, epoch_s, time)


def _kept_epochs(checkpoints: str | None) -> list[int]:
    folder = Path(checkpoints or "")  # relative in a pipeline, whose checkpoints are not there yet
    kept = folder.glob("checkpoint_epoch_*.pt") if folder.is_absolute() else ()
    numbers = (one.stem.rpartition("_")[2] for one in kept)
    return sorted(int(one) for one in numbers if one.isdecimal())


def _amount(seconds_: float) -> str:
    return f"{seconds_:.3g}" if seconds_ < 1000 else f"{seconds_:,.0f}"
