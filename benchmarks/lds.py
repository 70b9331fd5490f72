"""Linear datamodeling score (Park et al. 2023) of each score of training triples: `python -m benchmarks.explain --lds`.

Models are trained on random halves of the training triples. For each test triple, the sum of a score over a half
predicts the output of that half's model. The number is the rank correlation of predicted and measured outputs over
the halves: 1 is a perfect order, 0 none. All scores are compared on the outcomes of the same trainings.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.explain_methods import generator_of
from benchmarks.measure import Silent
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.checkpoint_set import find_checkpoints, load_checkpoint
from kgops.maths.tracin.curvature import training_of
from kgops.maths.tracin.loss import ONE_TO_N, TARGET, TracinLoss, trained_loss
from kgops.maths.tracin.retraining import FitAgain, Journal, Retraining
from kgops.maths.tracin.scan import AllScores, Scoring
from kgops.maths.train.batches import inverse_triples, query_rows
from kgops.maths.train.loop import fit
from kgops.maths.train.losses import ALL, SMOOTHED_OVER
from kgops.maths.train.settings import TrainSettings
from kgops.workloads.train.models import ConvEConfig

LDS_HEADS = f"{'score':26} {'models':>6} {'CPU s':>8} {'x tracin':>8}   LDS of the logit\n" + "-" * 76
_KEPT = 4  # checkpoints of the training that several are summed over
_BOOTSTRAPS = 200


@dataclass(frozen=True)
class Correlation:
    """Mean rank correlation over the test triples; `interval`: 95 %, by drawing tests and halves again."""

    mean: float | None
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        mean = "  n/a" if self.mean is None else f"{self.mean:+.3f}"
        return mean + (" n/a" if self.interval is None else " [{:+.3f}, {:+.3f}]".format(*self.interval))


@dataclass(frozen=True)
class Compared:
    """One score; `seconds` of CPU; its linear datamodeling score."""

    score: str
    checkpoints: int
    seconds: float
    times_tracin: float
    lds: Correlation

    def line(self) -> str:
        return (
            f"{self.score:26} {self.checkpoints:6} {self.seconds:8.2f} {self.times_tracin:8.2f}   {self.lds}"
        )


class _Counting(Silent):
    """Says how many trainings are done."""

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        if phase == "retrain" and done == int(done):
            print(f"{done:.0f} of {total:.0f} {unit}", file=sys.stderr, flush=True)


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
    journal = Journal(folder / "halves.jsonl", graph.train, drawn, again, report=_Counting())
    chosen = halves(len(graph.train), subsets, settings.seed + 1)
    measured = _outputs(journal, chosen, range(settings.seed + 1, settings.seed + 1 + seeds))
    plain: dict[int, float] = {}
    for name, some, loss, how in _scores(graph, config, settings, folder):
        begin = time.process_time()
        sink = AllScores(len(drawn), len(graph.train))
        Scoring(some, loss, how)(graph.train, drawn, sink)
        seconds = time.process_time() - begin
        beside = plain.setdefault(len(some), seconds)  # the first is TracIn
        predicted = sink.scores.detach().cpu().double() @ chosen.double().t()
        yield Compared(name, len(some), seconds, seconds / beside, _correlate(predicted, measured))


def _outputs(journal: Journal, chosen: torch.Tensor, seeds: range) -> torch.Tensor:
    """Logits (tests, halves) of models trained on each half: the mean over seeds."""
    wanted = [
        Retraining(tuple((~inside).nonzero()[:, 0].tolist()), seed, f"subset {m}")
        for seed in seeds
        for m, inside in enumerate(chosen)
    ]
    values = [[outcome.logit for outcome in one] for one in journal.outcomes(wanted)]
    return torch.tensor(values, dtype=torch.float64).view(len(seeds), len(chosen), -1).mean(0).t()


def _scores(
    graph: Graph, config: ConvEConfig, settings: TrainSettings, folder: Path
) -> Iterator[tuple[str, Sequence[TracinCheckpoint], TracinLoss, Settings]]:
    """Name, checkpoints, loss and settings of each score, of the last checkpoint and of all."""
    paths = _trained(graph, config, settings, folder)
    checkpoints = [load_checkpoint(path, graph, device=torch.device("cpu")).checkpoint for path in paths]
    rows = query_rows(graph.train, config.inverse)
    if config.inverse:
        rows = torch.cat([rows, inverse_triples(graph.train)])
    recorded = {"name": settings.loss, "label_smoothing": settings.label_smoothing, SMOOTHED_OVER: ALL}
    trained = trained_loss(recorded, rows, config.relation_rows)
    losses = {"train": trained, "one-to-n": ONE_TO_N, "target": TARGET}
    fisher = Settings(score="fisher", training=training_of(graph.train, {"name": settings.loss}))
    for some in (checkpoints[-1:], checkpoints):
        for score in ("tracin", "cosine"):
            for name, loss in losses.items():
                how = Settings(both_directions=config.inverse, score=score)
                yield f"{score}, {name}", some, loss, how
        yield "fisher", some, TARGET, fisher


def _trained(graph: Graph, config: ConvEConfig, settings: TrainSettings, folder: Path) -> list[Path]:
    """Checkpoints of the model, oldest first; trained unless the folder has them."""
    kept = folder / f"model-{settings.seed}"
    if not (kept / "final_model.pt").exists():
        torch.manual_seed(settings.seed)
        often = max(1, settings.num_epochs // _KEPT)
        fit(ConvE(config), graph, replace(settings, checkpoint_frequency=often), kept, Silent())
    return find_checkpoints(None, kept / "checkpoints", _KEPT)


def halves(trains: int, subsets: int, seed: int) -> torch.Tensor:
    """(subsets, trains) of bool, determined by the seed."""
    generator = generator_of(f"subsets {seed}")
    chosen = torch.zeros(subsets, trains, dtype=torch.bool)
    for row in chosen:
        row[torch.randperm(trains, generator=generator)[: round(trains / 2)]] = True
    return chosen


def spearman(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rank correlation of the rows of `a` and `b`, equal values sharing a rank; NaN for a constant row."""
    rho: torch.Tensor = (_unit_ranks(a) * _unit_ranks(b)).sum(-1)
    return rho


def _correlate(predicted: torch.Tensor, measured: torch.Tensor) -> Correlation:
    tests, subsets = predicted.shape
    generator = torch.Generator().manual_seed(0)
    means = []
    for _ in range(_BOOTSTRAPS):
        at = torch.randint(tests, (tests, 1), generator=generator)
        of = torch.randint(subsets, (1, subsets), generator=generator)
        means.append(spearman(predicted[at, of], measured[at, of]).nanmean())
    low, high = torch.stack(means).nanquantile(torch.tensor([0.025, 0.975]).double()).tolist()
    mean = float(spearman(predicted, measured).nanmean())
    return Correlation(None if math.isnan(mean) else mean, None if math.isnan(low) else (low, high))


def _unit_ranks(values: torch.Tensor) -> torch.Tensor:
    """Ranks, centred and scaled to length 1."""
    smaller = (values[..., :, None] > values[..., None, :]).sum(-1)
    equal = (values[..., :, None] == values[..., None, :]).sum(-1)
    ranks = smaller.double() + (equal.double() - 1) / 2
    centred = ranks - ranks.mean(-1, keepdim=True)
    unit: torch.Tensor = centred / centred.norm(dim=-1, keepdim=True)
    return unit
