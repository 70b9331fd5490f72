"""The paired comparisons that measure each claim table of `kgops bench claims`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kgops.experiments.comparison import PairedComparison
from kgops.jobs.job import read_job

__all__ = ["comparisons"]

_TRAINING = (
    *("fp32", "fp32 again", "+ fp16", "+ bf16", "+ checkpointing", "+ fp16 + checkpointing", "+ compile"),
    "kgops",
)
_TRACIN = (
    *("baseline", "baseline again", "+ fp16", "+ bf16", "+ checkpointing", "+ last layers"),
    *("+ test caching", "+ vmap", "+ compile", "+ filtering", "all that is exact", "kgops"),
)
_REGRESSION = (
    *("original", "original again", "+ checkpointing", "+ compile", "+ checkpointing + compile"),
    "small model",
)
_LOSS = ("dense labels", "dense labels again", "their efficient loss", "kgops")


class _Repeats(NamedTuple):
    """Runs of the command, trials of each variant in a run, timings in a trial: as many pairs as their product."""

    runs: int
    trials: int
    parts: int


# Quick: all tables take less than three minutes. In full tables one timing takes seconds, not hundredths.
_QUICK, _WHOLE = _Repeats(2, 2, 5), _Repeats(3, 2, 4)


def comparisons(table: str, *, quick: bool, data: Path | None) -> list[PairedComparison]:
    """The paired comparisons of a claim table."""
    repeats = _QUICK if quick else _WHOLE
    given = [] if data is None else ["--data", str(data.absolute())]
    label = " (quick)" if quick else ""
    on = "" if data is None else f" on {data.absolute().name}"
    if table == "a":
        small = ["--entities", "3000", "--dim", "64", "--steps", "2"]
        words = [*given, *(small if quick else ["--compile"])]
        return [
            _comparison(
                f"claims a{label}: training ConvE{on}, batch {batch}",
                "training",
                [*words, "--batch-size", str(batch)],
                _TRAINING,
                repeats,
            )
            for batch in ((256,) if quick else (256, 1024))
        ]
    if table == "b":
        small = ["--entities", "6400", "--dim", "32", "--triples", "128", "--training", "30"]
        words = [*given, *(small if quick else ["--compile"])]
        name = f"claims b{label}: TracIn{on}, one test triple"
        return [_comparison(name, "tracin", words, _TRACIN, repeats)]
    if table == "c":
        sizes = [(256, 10_000)] if quick else [(256, 10_000), (1024, 10_000), (256, 50_000), (1024, 50_000)]
        return [_loss(label, batch, entities, repeats) for batch, entities in sizes]
    words = ["--size", "32", "--batch-size", "4"] if quick else ["--compile"]
    name = f"claims d{label}: the regression network, windows of 5 frames"
    return [_comparison(name, "regression", words, _REGRESSION, repeats)]


def _loss(label: str, batch: int, entities: int, repeats: _Repeats) -> PairedComparison:
    words = ["--entities", str(entities), "--batch-size", str(batch)]
    name = f"claims c{label}: batch {batch} × {entities:,} entities"
    return _comparison(name, "loss", words, _LOSS, repeats)


def _comparison(
    name: str, module: str, words: Sequence[str], variants: Sequence[str], repeats: _Repeats
) -> PairedComparison:
    """Several trials in each run, since loading libraries takes longer than a trial, and several timings in each trial,
    since the quartiles of a few pairs are unstable."""
    command = [sys.executable, "-P", "-m", f"kgops.trials.{module}", *words]
    command += ["--trials", str(repeats.trials), "--repetitions", str(repeats.parts), "--round", "{round}"]
    job = read_job({"workload": "exec", "exec": {"command": command}}, name)
    pairs = repeats.trials * repeats.parts
    return PairedComparison(
        name, dict.fromkeys(variants, job), repeats.runs * pairs, together=True, trials=pairs
    )
