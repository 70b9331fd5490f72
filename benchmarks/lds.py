"""Linear datamodeling score (Park et al. 2023) of each score of training triples: `python -m benchmarks.explain --lds`.

Models are trained on random halves of the training triples. For each test triple, the sum of a score over a half
predicts the logit that its model gives; the number is their rank correlation over the halves. All scores are compared
on the outcomes of the same trainings.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.datamodeling import Correlation, train_on_subsets
from benchmarks.quality import Silent
from kgops.graphs.triples import Graph
from kgops.jobs.train import ConvEConfig
from kgops.models.conve import ConvE
from kgops.tracin.blocks import Settings, TracinCheckpoint
from kgops.tracin.checkpoint_set import find_checkpoints, load_checkpoint
from kgops.tracin.curvature import training_of
from kgops.tracin.loss import ONE_TO_N, TARGET, TracinLoss, trained_loss
from kgops.tracin.retraining import FitAgain
from kgops.tracin.scan import AllScores, scan
from kgops.training.batches import inverse_triples, query_rows
from kgops.training.loop import fit
from kgops.training.losses import ALL, SMOOTHED_OVER
from kgops.training.settings import TrainSettings

Scores = Callable[[], torch.Tensor]
LDS_HEADS = (
    f"{'score':26} {'models':>6} {'CPU s':>8} {'x tracin':>8}   LDS of the logit         of the margin\n"
    + "-" * 100
)
_KEPT = 4  # checkpoints of the training that several are summed over


@dataclass(frozen=True)
class Compared:
    """One score; `seconds` of CPU; `interval`: 95 % by bootstrap over tests and halves."""

    score: str
    checkpoints: int
    seconds: float
    times_tracin: float
    lds: dict[str, float | None]
    interval: dict[str, tuple[float, float] | None]

    def line(self) -> str:
        values = (f"{_shown(self.lds[name])} {_between(self.interval[name])}" for name in self.lds)
        return (
            f"{self.score:26} {self.checkpoints:6} {self.seconds:8.2f} {self.times_tracin:8.2f}   "
            + "   ".join(values)
        )


class _Counting(Silent):
    """Says how many trainings are done."""

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        if phase == "retrain" and done == int(done):
            print(f"{done:.0f} of {total:.0f} {unit}", file=sys.stderr, flush=True)


def trained(graph: Graph, config: ConvEConfig, settings: TrainSettings, folder: Path) -> list[Path]:
    """Checkpoints of the model, oldest first; trained unless the folder has them."""
    kept = folder / f"model-{settings.seed}"
    if not (kept / "final_model.pt").exists():
        torch.manual_seed(settings.seed)
        often = max(1, settings.num_epochs // _KEPT)
        fit(ConvE(config), graph, replace(settings, checkpoint_frequency=often), kept, Silent())
    return find_checkpoints(None, kept / "checkpoints", _KEPT)


def losses_of(graph: Graph, settings: TrainSettings, config: ConvEConfig) -> dict[str, TracinLoss]:
    rows = query_rows(graph.train, config.inverse)
    if config.inverse:
        rows = torch.cat([rows, inverse_triples(graph.train)])
    recorded = {"name": settings.loss, "label_smoothing": settings.label_smoothing, SMOOTHED_OVER: ALL}
    return {
        "train": trained_loss(recorded, rows, config.relation_rows),
        "one-to-n": ONE_TO_N,
        "target": TARGET,
    }


def compared(
    graph: Graph,
    config: ConvEConfig,
    settings: TrainSettings,
    folder: Path,
    *,
    tests: int,
    subsets: int,
    seeds: int,
) -> Iterator[Compared]:
    """Trainings that are in `folder` are not done again."""
    order = torch.randperm(len(graph.test), generator=torch.Generator().manual_seed(settings.seed))
    drawn = graph.test[order[:tests]]
    again = FitAgain(graph, drawn, config, settings, folder, Silent())
    halves = train_on_subsets(
        *(graph, drawn, again, folder / "halves.jsonl"),
        seed=settings.seed + 1,
        subsets=subsets,
        seeds=seeds,
        report=_Counting(),
    )
    paths = trained(graph, config, settings, folder)
    checkpoints = [load_checkpoint(path, graph, device=torch.device("cpu")).checkpoint for path in paths]
    plain: dict[int, float] = {}
    for name, models, scores in _scores(graph, config, settings, checkpoints, drawn):
        begin = time.process_time()
        found = scores()
        seconds = time.process_time() - begin
        beside = plain.setdefault(models, seconds)  # the first is TracIn
        yield _compared(name, models, seconds, seconds / beside, halves.score(found))


def _scores(
    graph: Graph,
    config: ConvEConfig,
    settings: TrainSettings,
    checkpoints: Sequence[TracinCheckpoint],
    drawn: torch.Tensor,
) -> Iterator[tuple[str, int, Scores]]:
    training = training_of(graph.train, {"name": settings.loss})
    losses = losses_of(graph, settings, config)
    for some in (checkpoints[-1:], checkpoints):
        for score in ("tracin", "cosine"):
            for name, loss in losses.items():
                how = Settings(both_directions=config.inverse, score=score)
                yield f"{score}, {name}", len(some), _scan(some, loss, graph.train, drawn, how)
        how = Settings(score="fisher", training=training)
        yield "fisher", len(some), _scan(some, TARGET, graph.train, drawn, how)


def _scan(
    checkpoints: Sequence[TracinCheckpoint],
    loss: TracinLoss,
    train: torch.Tensor,
    drawn: torch.Tensor,
    how: Settings,
) -> Scores:
    def scores() -> torch.Tensor:
        sink = AllScores(len(drawn), len(train), like=checkpoints[0].model.entities)
        scan(checkpoints, loss, train, drawn, sink, settings=how)
        return sink.scores

    return scores


def _compared(
    name: str, models: int, seconds: float, times: float, found: dict[str, Correlation]
) -> Compared:
    means = {output: one.mean for output, one in found.items()}
    between = {output: one.interval for output, one in found.items()}
    return Compared(name, models, seconds, times, means, between)


def _shown(value: float | None) -> str:
    return "  n/a" if value is None else f"{value:+.3f}"


def _between(interval: tuple[float, float] | None) -> str:
    return "n/a" if interval is None else f"[{interval[0]:+.3f}, {interval[1]:+.3f}]"
