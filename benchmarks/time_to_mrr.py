"""How long kgops and PyKEEN train until a test MRR is reached; evaluating is not counted.

    python -m benchmarks.time_to_mrr --data DIR [--recipe fb15k-237] [--mrr .30] [--epochs 6] [--pykeen-epochs 20]

kgops trains a recipe, PyKEEN the same model with the matrix product patched into its scores, which changes its speed
alone, and with what it offers of the recipe: softmax cross-entropy of all tails of a query (or binary with
--pykeen-loss bce), smoothing, dropouts but that of relations, Adam and a cosine without warmup. Its loop makes the
optimizer anew from its defaults, which torch's AdamW does not accept. Each follows a schedule over its own epochs,
which have to be found first: fewer end below the MRR, more take longer. Both are evaluated after each epoch,
filtered, by kgops, whose ranks equal PyKEEN's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.entry import run
from benchmarks.measure import Line, quietness, store
from benchmarks.measure import table as show
from benchmarks.quality import Silent, judged, pykeen_conve
from kgops.graphs.triples import Graph, read_graph
from kgops.jobs import recipes
from kgops.jobs.job import read_job_file
from kgops.jobs.numbers import finite_number
from kgops.models.conve import ConvE, ConvEConfig
from kgops.models.pykeen_bridge import from_pykeen_state
from kgops.training.loop import fit
from kgops.training.settings import TrainSettings, cpu_has_bf16
from kgops.trials import peers

__all__ = ["main"]

Options = TypeVar("Options")


class _Reached(Exception):
    """PyKEEN's loop is ended by an exception."""


@dataclass
class _Curve:
    name: str
    goal: float
    judge: Callable[[], float]
    seconds: float = 0.0
    mrr: list[float] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        return bool(self.mrr) and self.mrr[-1] >= self.goal

    def after_epoch(self, seconds: float) -> None:
        self.seconds += seconds
        self.mrr.append(self.judge())
        said = f"{self.name}: epoch {len(self.mrr)}, {self.seconds:.0f} s, test MRR {self.mrr[-1]:.4f}"
        print(said, file=sys.stderr, flush=True)

    def lines(self) -> list[Line]:
        curve, many = ", ".join(f"{mrr:.3f}" for mrr in self.mrr), len(self.mrr)
        said = "reached" if self.reached else "not reached"
        what = f"{self.name}: test MRR {self.goal:g} {said} after {many} epoch{'s' * (many != 1)} ({curve})"
        return [Line("time_to_mrr_s", what, "s", (self.seconds,))]


class _Reporter(Silent):
    def __init__(self, curve: _Curve) -> None:
        super().__init__()
        self.curve = curve

    def metric(self, name: str, value: float, step: int) -> None:
        if name == "epoch_seconds":
            self.curve.after_epoch(value)


def ours(graph: Graph, config: ConvEConfig, settings: TrainSettings, goal: float) -> _Curve:
    torch.manual_seed(settings.seed)
    model = ConvE(config)
    curve = _Curve("kgops", goal, lambda: judged(graph, model))
    with tempfile.TemporaryDirectory() as folder:
        fit(model, graph, settings, Path(folder), _Reporter(curve), lambda: curve.reached)
    return curve


def pykeens(graph: Graph, config: ConvEConfig, settings: TrainSettings, goal: float, loss: str) -> _Curve:
    from pykeen.losses import BCEWithLogitsLoss, CrossEntropyLoss
    from pykeen.training import LCWATrainingLoop
    from pykeen.training.callbacks import TrainingCallback

    factory = peers.factory(graph)
    model = pykeen_conve(
        factory, config, CrossEntropyLoss() if loss == "ce" else BCEWithLogitsLoss(), settings.seed
    )

    def judge() -> float:
        return judged(graph, from_pykeen_state(model.state_dict(), inverse=True))

    curve = _Curve("PyKEEN, patched", goal, judge)

    class OfEpochs(TrainingCallback):  # type: ignore[misc]  # PyKEEN has no types here
        """From an epoch's first batch on, as kgops counts: what is made once before is not an epoch's."""

        began: float | None = None

        def pre_batch(self, **how: Any) -> None:
            if self.began is None:
                self.began = time.perf_counter()

        def post_epoch(self, epoch: int, epoch_loss: float, **how: Any) -> None:
            assert self.began is not None
            curve.after_epoch(time.perf_counter() - self.began)
            self.began = None
            if curve.reached:
                raise _Reached

    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.num_epochs)
    loop = LCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=optimizer,
        lr_scheduler=rates,
        automatic_memory_optimization=False,  # it tries batches first
    )
    with peers.matrix_product():
        try:
            loop.train(
                factory,
                num_epochs=settings.num_epochs,
                batch_size=settings.batch_size,
                label_smoothing=settings.label_smoothing,
                callbacks=OfEpochs(),
                use_tqdm=False,
                use_tqdm_batch=False,
            )
        except _Reached:
            pass
    return curve


def _chosen(kind: type[Options], settings: dict[str, Any], **others: Any) -> Options:
    """Those of a recipe's settings that `kind` has and the recipe sets."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # both kinds are dataclasses
    return kind(
        **{name: value for name, value in settings.items() if name in names and value is not None} | others
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder named as the recipe")
    parser.add_argument("--recipe", default="fb15k-237")
    parser.add_argument("--mrr", type=finite_number, default=0.30)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--pykeen-epochs", type=int, default=20)
    parser.add_argument("--pykeen-loss", choices=["ce", "bce"], default="ce")
    parser.add_argument("--pykeen-learning-rate", type=finite_number, help="the recipe's if not given")
    parser.add_argument("--only", choices=["kgops", "pykeen"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--store", action="store_true", help="keep the values in the database")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    graph = read_graph(*(args.data / args.recipe / f"{split}.txt" for split in ("train", "valid", "test")))
    job = read_job_file(recipes.find(args.recipe))
    sizes = {"num_entities": graph.num_entities, "num_relations": graph.num_relations}
    config = _chosen(ConvEConfig, job.settings, **sizes, inverse=True)
    settings = _chosen(
        TrainSettings,
        {**job.settings, **job.options},
        num_epochs=args.epochs,
        seed=args.seed,
        validate_every=0,
        precision="bf16" if cpu_has_bf16() else "fp32",
    )
    print(f"{args.recipe}, {args.threads} thread(s), {settings.precision}; {quietness()}", file=sys.stderr)
    curves = []
    if args.only != "pykeen":
        curves.append(ours(graph, config, settings, args.mrr))
    if args.only != "kgops":
        rate = args.pykeen_learning_rate or settings.learning_rate
        theirs = replace(settings, num_epochs=args.pykeen_epochs, learning_rate=rate)
        curves.append(pykeens(graph, config, theirs, args.mrr, args.pykeen_loss))
    lines = [line for curve in curves for line in curve.lines()]
    if len(curves) == 2 and all(curve.reached for curve in curves):
        ratio = curves[1].seconds / curves[0].seconds
        lines.append(
            Line(
                "time_to_mrr", f"PyKEEN patched / kgops, until {args.mrr:g}", "×", (ratio,), 6, at_least=True
            )
        )
    print("\n".join(show(lines)))
    if args.store:
        store(lines, f"python -m benchmarks.time_to_mrr {' '.join(argv or sys.argv[1:])}")
    return 0


if __name__ == "__main__":
    run(main)
