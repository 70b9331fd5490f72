"""`--build-index` and `--use-index`: the training side of TracIn on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from kgops.errors import Usage
from kgops.tracin.attribution import Scorer, Scoring
from kgops.tracin.index import Index, build_index, open_index
from kgops.tracin.scan import Sink
from kgops.training.reporter import Report

__all__ = ["built", "from_index"]


def built(
    scoring: Scoring, train: torch.Tensor, folder: Path, report: Report, stop: Callable[[], bool]
) -> dict[str, float]:
    begin = time.monotonic()
    size = build_index(
        scoring.points,
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
    report.note(f"the index is in {folder}: {size / 2**20:,.0f} MiB. Ask it with --use-index {folder}.")
    return {"index_mib": size / 2**20, "index_s": seconds, "train_triples": len(train)}


def from_index(scoring: Scoring, train: torch.Tensor, folder: Path, filtered: bool) -> Scorer:
    if filtered:
        raise Usage(
            "an index answers for all training triples, not for a neighbourhood.",
            "leave --use-index away: a neighbourhood is scored in a moment. Or give --skip-filtering",
        )
    index = open_index(
        folder,
        scoring.points,
        scoring.loss,
        train,
        settings=scoring.settings,
        names=scoring.names,
        cleanup=scoring.cleanup,
    )
    return _FromIndex(index)


class _FromIndex:
    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(
        self,
        train: torch.Tensor,
        tests: torch.Tensor,
        sink: Sink,
        report: Report | None,
        stop: Callable[[], bool],
    ) -> None:
        self._index.scan(tests, sink, report=report, stop_requested=stop)
