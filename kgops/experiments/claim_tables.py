"""The paired comparisons of `kgops bench claims`, which `kgops/maths/trials` runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kgops.experiments.comparison import PairedComparison
from kgops.jobs.job import GpuRequest
from kgops.workloads.job_files import read_job

_TRAINING = (
    *("fp32", "fp32 again", "+ cleanup", "+ fp16", "+ bf16", "+ checkpointing", "+ fp16 + checkpointing"),
    *("+ compile", "fp16, twice the batch", "fp16, checkpointing, four times the batch", "kgops"),
)
_TRACIN = (
    *("baseline", "baseline again", "+ cleanup", "+ fp16", "+ bf16", "+ checkpointing"),
    *("+ fp16 + checkpointing", "+ last layers", "+ fp16 + last layers", "+ test caching", "+ vmap"),
    *("+ compile", "+ fp16 + compile", "+ filtering", "+ fp16 + compile + filtering", "all that is exact"),
    "kgops",
)
_REGRESSION = (
    *("original", "original again", "+ fp16", "+ checkpointing", "+ compile", "+ checkpointing + compile"),
    *("small model", "full, as documented", "small, as documented"),
)
_LOSS = ("dense labels", "dense labels again", "their efficient loss", "kgops")
_LOSS_SIZES = ((256, 10_000), (256, 50_000), (512, 50_000), (1024, 50_000))


class _Repeats(NamedTuple):
    """Runs of the command, trials of each variant in a run, timings in a trial: as many pairs as their product."""

    runs: int
    trials: int
    parts: int


# Quick: all tables take less than three minutes. In full tables one timing takes seconds, not hundredths. A GPU has no
# other users meanwhile: fewer pairs do.
_WHOLE, _QUICK, _QUICK_ON_GPU = _Repeats(3, 2, 4), _Repeats(1, 4, 5), _Repeats(1, 3, 2)
_ONCE = _Repeats(1, 1, 3)


def comparisons(table: str, *, quick: bool, data: Path | None, gpu: bool) -> list[PairedComparison]:
    """The paired comparisons of a table, on a GPU or on the CPU."""
    repeats = _repeats(quick, gpu)
    given = [] if data is None else ["--data", str(data.absolute())]
    label = " (quick)" if quick else ""
    compile_ = [] if quick and not gpu else ["--compile"]  # on a CPU it takes longer than all other variants
    on = "" if data is None else f" on {data.absolute().name}"
    if table == "a":
        words = [*(["--entities", "3000", "--dim", "64", "--steps", "2"] if quick else []), *compile_]
        name = f"claims a{label}: training ConvE{on}, batch 256"
        return [_comparison(name, "training", [*given, *words], _TRAINING, repeats, gpu)]
    if table == "b":
        small = ["--entities", "6400", "--dim", "32", "--triples", "32" if gpu else "128", "--training", "30"]
        name = f"claims b{label}: TracIn{on}, one test triple"
        words = [*given, *(small if quick else []), *compile_]
        return [_comparison(name, "tracin", words, _TRACIN, repeats, gpu)]
    if table == "c":
        return [_loss(label, batch, entities, quick, gpu) for batch, entities in _LOSS_SIZES]
    words = [*(["--size", "32", "--batch-size", "4"] if quick else []), *compile_]
    name = f"claims d{label}: the regression network, windows of 5 frames"
    return [_comparison(name, "regression", words, _REGRESSION, repeats, gpu)]


def _repeats(quick: bool, gpu: bool) -> _Repeats:
    return (_QUICK_ON_GPU if gpu else _QUICK) if quick else _WHOLE


def _loss(label: str, batch: int, entities: int, quick: bool, gpu: bool) -> PairedComparison:
    """Quick versions of the larger sizes are about the labels, whose size does not depend on the dimension."""
    words = ["--entities", str(entities), "--batch-size", str(batch)]
    repeats, variants = _repeats(quick, gpu), [*_LOSS]
    if quick and entities > 10_000:
        words, repeats, variants = [*words, "--dim", "32", "--labels-only"], _ONCE, [_LOSS[0], _LOSS[2]]
    name = f"claims c{label}: batch {batch} × {entities:,} entities"
    return _comparison(name, "loss", words, variants, repeats, gpu)


def _comparison(
    name: str, module: str, words: Sequence[str], variants: Sequence[str], repeats: _Repeats, gpu: bool
) -> PairedComparison:
    """Several trials in each run, since loading libraries takes longer than a trial, and several timings in each trial,
    since the quartiles of a few pairs are unstable."""
    command = [sys.executable, "-P", "-m", f"kgops.maths.trials.{module}", *words]
    command += ["--trials", str(repeats.trials), "--repetitions", str(repeats.parts), "--round", "{round}"]
    job = read_job({"workload": "exec", "exec": {"command": command}}, name)
    job = replace(job, gpu=GpuRequest("auto")) if gpu else job
    pairs = repeats.trials * repeats.parts
    return PairedComparison(
        name, dict.fromkeys(variants, job), repeats.runs * pairs, together=True, trials=pairs
    )
