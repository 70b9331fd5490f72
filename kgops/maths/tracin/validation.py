"""`--validate K`: validates influences by retraining without the triples they rank highest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs import events
from kgops.jobs.files import write_json
from kgops.maths.graphs.triples import Graph
from kgops.maths.tracin.attribution import Scoring
from kgops.maths.tracin.checkpoint_set import LoadedCheckpoint
from kgops.maths.tracin.retraining import FitAgain
from kgops.maths.tracin.scan import AllScores
from kgops.maths.tracin.validate import validate
from kgops.maths.train.settings import TrainSettings
from kgops.maths.worker.report import Reporter
from kgops.workloads.tracin.options import (
    TRACIN_VALIDATED_TESTS,
    TRACIN_VALIDATION_DRAWS,
    TRACIN_VALIDATION_NOISE,
)

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
