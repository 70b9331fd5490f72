"""`--build-index` and `--use-index`: builds and queries a TracIn index on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from kgops.errors import Usage
from kgops.tracin.attribution import Scorer, Scoring
from kgops.tracin.index import build_index, open_index
from kgops.tracin.scan import Sink
from kgops.training.reporter import Report

__all__ = ["index_scorer", "write_index"]


def write_index(
    scoring: Scoring, train: torch.Tensor, folder: Path, report: Report, stop: Callable[[], bool]
) -> dict[str, float]:
    begin = time.monotonic()
    size = build_index(
        scoring.checkpoints,
        scoring.loss,
        train,
        folder,
        settings=scoring.settings,
        names=scoring.names,
        report=report,
        stop_requested=stop,
        cleanup=scoring.cleanup,
    )
    seconds = time.monotonic() - begin
    report.note(f"the index is in {folder}: {size / 2**20:,.0f} MiB. Query it with --use-index {folder}.")
    return {"index_mib": size / 2**20, "index_s": seconds, "train_triples": len(train)}


def index_scorer(scoring: Scoring, train: torch.Tensor, folder: Path, filtered: bool) -> Scorer:
    if filtered:
        raise Usage(
            "an index covers all training triples, not a neighbourhood.",
            "leave out --use-index, as a neighbourhood is scored quickly, or give --skip-filtering",
        )
    index = open_index(
        folder,
        scoring.checkpoints,
        scoring.loss,
        train,
        settings=scoring.settings,
        names=scoring.names,
        cleanup=scoring.cleanup,
    )

    def score(
        train: torch.Tensor, tests: torch.Tensor, sink: Sink, report: Report | None, stop: Callable[[], bool]
    ) -> None:
        index.scan(tests, sink, report=report, stop_requested=stop)

    return score
