"""The group's tables run again: which runs take turns for each of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kgops.experiments.comparison import Contest
from kgops.jobs.job import read_job

__all__ = ["contests"]

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


class _Often(NamedTuple):
    """Runs of the command, turns of each way in a run, and parts of a turn: as many pairs of times."""

    runs: int
    turns: int
    parts: int


# Quick: all tables together in less than three minutes. Of the whole ones a part takes seconds, not hundredths.
_QUICK, _WHOLE = _Often(2, 2, 5), _Often(3, 2, 4)


def contests(table: str, *, quick: bool, data: Path | None) -> list[Contest]:
    """The runs of a table."""
    often = _QUICK if quick else _WHOLE
    given = [] if data is None else ["--data", str(data.absolute())]
    label = " (quick)" if quick else ""
    on = "" if data is None else f" on {data.absolute().name}"
    if table == "a":
        small = ["--entities", "3000", "--dim", "64", "--steps", "2"]
        words = [*given, *(small if quick else ["--compile"])]
        return [
            _together(
                f"claims a{label}: training ConvE{on}, batch {batch}",
                "training",
                [*words, "--batch-size", str(batch)],
                _TRAINING,
                often,
            )
            for batch in ((256,) if quick else (256, 1024))
        ]
    if table == "b":
        small = ["--entities", "6400", "--dim", "32", "--triples", "128", "--training", "30"]
        words = [*given, *(small if quick else ["--compile"])]
        name = f"claims b{label}: TracIn{on}, one test triple"
        return [_together(name, "tracin", words, _TRACIN, often)]
    if table == "c":
        sizes = [(256, 10_000)] if quick else [(256, 10_000), (1024, 10_000), (256, 50_000), (1024, 50_000)]
        return [_loss(label, batch, entities, often) for batch, entities in sizes]
    words = ["--size", "32", "--batch-size", "4"] if quick else ["--compile"]
    name = f"claims d{label}: the regression network, windows of 5 frames"
    return [_together(name, "regression", words, _REGRESSION, often)]


def _loss(label: str, batch: int, entities: int, often: _Often) -> Contest:
    words = ["--entities", str(entities), "--batch-size", str(batch)]
    name = f"claims c{label}: batch {batch} × {entities:,} entities"
    return _together(name, "loss", words, _LOSS, often)


def _together(
    name: str, module: str, words: Sequence[str], variants: Sequence[str], often: _Often
) -> Contest:
    """Several turns in each run, since loading libraries takes longer than a turn, and several parts in each turn: the
    quartiles of a few pairs are hardly ever those of the next few."""
    command = [sys.executable, "-P", "-m", f"kgops.trials.{module}", *words]
    command += ["--trials", str(often.turns), "--repetitions", str(often.parts), "--round", "{round}"]
    job = read_job({"workload": "exec", "exec": {"command": command}}, name)
    pairs = often.turns * often.parts
    return Contest(name, dict.fromkeys(variants, job), often.runs * pairs, together=True, turns=pairs)
