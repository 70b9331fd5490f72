"""What the scripts' documents claim of their options, and the tables that they print.

A claim is repeated here in a few words; nothing in this file was measured. `variant` names the variant of a table of
`kgops bench claims` that measures the line. A line that nothing measures has one word of `why` instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kgops.experiments.comparison import PairedComparison
from kgops.jobs.job import GpuRequest
from kgops.workloads.job_files import read_job

TABLES = {
    "a": "training",
    "b": "TracIn",
    "c": "loss",
    "d": "regression",
}


class Option(NamedTuple):
    """`reserved`: the option is about memory that torch has reserved, not about what is in use."""

    table: str
    variant: str
    name: str
    claim: str
    why: str = ""
    reserved: bool = False


class Row(NamedTuple):
    """A row of a document's table. `over`: the variant that the row is compared with, otherwise the baseline.
    `part`: words of the benchmark's name, where a table has several."""

    name: str
    claim: str
    variant: str = ""
    why: str = ""
    over: str = ""
    part: str = ""


class DocumentTable(NamedTuple):
    """`unit`: what its times are measured for."""

    title: str
    table: str
    unit: str
    rows: tuple[Row, ...]


# Of a table with several benchmarks, the one that answers for its options.
PART_OF_OPTIONS = {"c": "batch 256 × 10,000 entities"}
_CLEANUP = "memory cleanup"
_CHECKPOINTING = "gradient checkpointing"

OPTIONS = (
    Option("a", "+ fp16", "FP16", "2× faster, half the memory"),
    Option("a", "+ bf16", "bf16", "–"),
    Option("a", "+ cleanup", _CLEANUP, "1.5-2× less memory, no time", reserved=True),
    Option("a", "+ checkpointing", _CHECKPOINTING, "2-3× less memory, 20 % slower"),
    Option("a", "+ fp16 + checkpointing", "FP16 + checkpointing", "4-6× less memory"),
    Option("a", "+ compile", "torch.compile", "–"),
    Option("a", "kgops", "kgops' own step", "–"),
    Option("c", "their efficient loss", "loss without labels", "10,000-50,000× less memory"),
    Option("c", "kgops", "kgops' own loss", "–"),
    Option("b", "+ fp16", "FP16", "2× faster, half the memory"),
    Option("b", "+ bf16", "bf16", "–"),
    Option("b", "+ cleanup", _CLEANUP, "1.5-2× less memory, no time", reserved=True),
    Option("b", "+ checkpointing", _CHECKPOINTING, "2-3× less memory, 20 % slower"),
    Option("b", "+ fp16 + checkpointing", "FP16 + checkpointing", "6-8× less memory, 1.5× faster"),
    Option("b", "+ last layers", "last layers only", "less accurate"),
    Option("b", "+ fp16 + last layers", "FP16 + last layers", "6.7× faster"),
    Option("b", "+ test caching", "test gradient cached", "1.5× faster; or no effect"),
    Option("b", "+ vmap", "vectorised gradients", "10-20× faster; or cannot run"),
    Option("b", "all that is exact", "vectorised + cached", "20-40× faster"),
    Option("b", "+ compile", "torch.compile", "1.2-1.5× faster"),
    Option("b", "+ fp16 + compile", "FP16 + torch.compile", "2× faster"),
    Option("b", "+ filtering", "filtering", "10× faster"),
    Option("b", "", "several GPUs", "3-4× faster with four", why="4 GPUs"),
    Option("b", "kgops", "kgops' own TracIn", "–"),
    Option("d", "+ fp16", "FP16", "40 % less memory"),
    Option("d", "+ checkpointing", _CHECKPOINTING, "30-40 % less, 10-15 % slower"),
    Option("d", "+ compile", "torch.compile", "20-30 % faster, 10-15 % less"),
    Option("d", "+ checkpointing + compile", "checkpoint + compile", "25 % faster, 35 % less memory"),
    Option("d", "small model", "small model", "half the size; good accuracy"),
)


def _loss_row(batch: int, entities: int, labels: str, after: str) -> Row:
    return Row(
        f"batch {batch:,}, {entities:,} entities",
        f"{labels} MB → {after} KB, {entities:,}×",
        "their efficient loss",
        part=f"batch {batch} × {entities:,} entities",
    )


DOCUMENT_TABLES = (
    DocumentTable(
        "Training guide: an epoch",
        "a",
        "a sample",
        (
            Row("baseline, batch 256", "10 GB, 120 s, 1×", "fp32"),
            Row("+ cleanup, batch 256", "8 GB, 118 s, 1.02×", "+ cleanup"),
            Row("+ FP16, batch 512", "8 GB, 60 s, 2×", "fp16, twice the batch"),
            Row(
                "+ FP16 + checkpointing, batch 1024",
                "6 GB, 96 s, 1.25×",
                "fp16, checkpointing, four times the batch",
            ),
        ),
    ),
    DocumentTable(
        "TracIn guide: a test triple",
        "b",
        "a training triple",
        (
            Row("baseline, batch 32", "10 GB, 20 s, 1×", "baseline"),
            Row("+ cleanup, batch 64", "8 GB, 18 s, 1.1×", "+ cleanup"),
            Row("+ FP16, batch 128", "5 GB, 10 s, 2×", "+ fp16"),
            Row("+ FP16 + checkpointing, batch 256", "3 GB, 13 s, 1.5×", "+ fp16 + checkpointing"),
            Row("+ FP16 + last layers, batch 256", "4 GB, 3 s, 6.7×", "+ fp16 + last layers"),
        ),
    ),
    DocumentTable(
        "TracIn analysis: expected",
        "b",
        "a training triple",
        (
            Row("baseline, 10,000 training triples", "2.7 it/s, 37 s", "baseline"),
            Row("+ FP16 + compile", "5.4 it/s, 18 s", "+ fp16 + compile"),
            Row("+ filtering, 1,000 triples", "5.4 it/s, 1.8 s", "+ fp16 + compile + filtering"),
            Row("+ four GPUs", "20 it/s, 0.5 s", why="4 GPUs"),
        ),
    ),
    DocumentTable(
        "Loss guide: labels in memory",
        "c",
        "a whole step",
        (
            _loss_row(256, 10_000, "9.77", "1.00"),
            _loss_row(256, 50_000, "48.83", "1.00"),
            _loss_row(512, 50_000, "97.66", "2.00"),
            _loss_row(1024, 50_000, "195.31", "4.00"),
        ),
    ),
    DocumentTable(
        "Regression guide: 50 epochs, T4",
        "d",
        "a window",
        (
            Row("original", "out of memory", "original"),
            Row("small, batch 16", "3.2 h, 7.8 GB, 7.2 free", "small, as documented"),
            Row(
                "full, batch 20",
                "2.4 h, 9.6 GB, 5.4 free, +33 %",
                "full, as documented",
                over="small, as documented",
            ),
            Row("error of small and full", "to be determined", why="unstated"),
        ),
    ),
)


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
    words = ["--losses", "--entities", str(entities), "--batch-size", str(batch), "--steps", "1"]
    repeats, variants = _repeats(quick, gpu), [*_LOSS]
    if quick and entities > 10_000:
        words, repeats, variants = [*words, "--dim", "32", "--labels-only"], _ONCE, [_LOSS[0], _LOSS[2]]
    name = f"claims c{label}: batch {batch} × {entities:,} entities"
    return _comparison(name, "training", words, variants, repeats, gpu)


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
