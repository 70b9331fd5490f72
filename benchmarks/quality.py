"""Test MRR of kgops and PyKEEN after training with equal model, loss, optimizer, epochs and seeds.

    python -m benchmarks.quality --dataset kinships [--epochs 20] [--seeds 3]

PyKEEN runs with the matrix product patched into its scores, which changes its speed and not its results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.entry import run
from kgops.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.jobs.numbers import finite_number
from kgops.jobs.train import ConvEConfig
from kgops.models.conve import ConvE
from kgops.models.pykeen_bridge import from_pykeen_state
from kgops.training.evaluate import Evaluator, Metrics
from kgops.training.loop import fit
from kgops.training.settings import TrainSettings
from kgops.trials import peers


@dataclass(frozen=True)
class Outcome:
    mrr: float
    hits_at_10: float
    train_s: float


def train_kgops(graph: Graph, config: ConvEConfig, settings: TrainSettings) -> Outcome:
    torch.manual_seed(settings.seed)
    model = ConvE(config)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        fit(model, graph, settings, Path(folder), Silent())
        took = time.perf_counter() - started
    return _judged(graph, model, took)


def train_pykeen(graph: Graph, config: ConvEConfig, settings: TrainSettings) -> Outcome:
    """PyKEEN's LCWA loop, evaluated by our evaluator, whose ranks equal PyKEEN's."""
    from pykeen.losses import BCEWithLogitsLoss
    from pykeen.training import LCWATrainingLoop

    factory = peers.factory(graph)
    model = pykeen_conve(factory, config, BCEWithLogitsLoss(), settings.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    loop = LCWATrainingLoop(model=model, triples_factory=factory, optimizer=optimizer)
    with peers.matrix_product():
        started = time.perf_counter()
        loop.train(
            factory,
            num_epochs=settings.num_epochs,
            batch_size=settings.batch_size,
            label_smoothing=settings.label_smoothing,
            use_tqdm=False,
            use_tqdm_batch=False,
        )
        took = time.perf_counter() - started
    return _judged(graph, from_pykeen_state(model.state_dict(), inverse=True), took)


def pykeen_conve(factory: Any, config: ConvEConfig, loss: Any, seed: int) -> Any:
    """PyKEEN's ConvE of the same sizes and dropouts; it has none of relations."""
    from pykeen.models import ConvE as PykeenConvE

    return PykeenConvE(
        triples_factory=factory,
        embedding_dim=config.embedding_dim,
        input_dropout=config.input_dropout,
        feature_map_dropout=config.feature_map_dropout,
        output_dropout=config.output_dropout,
        loss=loss,
        random_seed=seed,
    )


def _judged(graph: Graph, model: ConvE, took: float) -> Outcome:
    both = _evaluated(graph, model)
    return Outcome(both.mrr or 0.0, both.hits[10] or 0.0, took)


def judged(graph: Graph, model: ConvE) -> float:
    """Filtered test MRR of both directions."""
    return _evaluated(graph, model).mrr or 0.0


def _evaluated(graph: Graph, model: ConvE) -> Metrics:
    evaluation = Evaluator(torch.cat([graph.train, graph.valid, graph.test]), graph.num_entities)(
        model, graph.test
    )
    assert evaluation is not None
    return evaluation.both


class Silent:
    """A reporter that keeps only the applied options."""

    def __init__(self) -> None:
        self.options: dict[str, tuple[Any, str | None]] = {}

    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None:
        self.options[name] = applied, reason

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None: ...

    def metric(self, name: str, value: float, step: int) -> None: ...

    def memory(self, **mib: float) -> None: ...

    def artifact(self, path: Path, kind: str) -> None: ...

    def note(self, text: str) -> None: ...


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--dataset", help="one of PyKEEN's datasets")
    what.add_argument("--data", type=Path, help="folder with train.txt, valid.txt, test.txt")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=finite_number, default=0.003)
    parser.add_argument("--label-smoothing", type=finite_number, default=0.1)
    parser.add_argument("--embedding-dim", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="every outcome as JSON instead of lines")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.dataset:
        graph = read_pykeen_dataset(args.dataset)
    else:
        graph = read_graph(*(args.data / f"{split}.txt" for split in ("train", "valid", "test")))
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=args.embedding_dim)
    results: dict[str, list[Outcome]] = {"kgops": [], "PyKEEN, patched": []}
    for seed in range(args.seeds):
        settings = TrainSettings(
            num_epochs=args.epochs,
            batch_size=args.batch_size,
            learning_rate=args.learning_rate,
            label_smoothing=args.label_smoothing,
            validate_every=0,
            seed=seed,
        )
        for name, train in (("kgops", train_kgops), ("PyKEEN, patched", train_pykeen)):
            outcome = train(graph, config, settings)
            results[name].append(outcome)
            if not args.json:
                print(
                    f"{name:16} seed {seed}  MRR {outcome.mrr:.4f}  Hits@10 {outcome.hits_at_10:.4f}  "
                    f"{outcome.train_s:.1f} s",
                    flush=True,
                )
    if args.json:
        print(json.dumps({name: [asdict(o) for o in outcomes] for name, outcomes in results.items()}))
        return 0
    for name, outcomes in results.items():
        print(f"{name:16} mean    MRR {mean(o.mrr for o in outcomes):.4f}")
    return 0


if __name__ == "__main__":
    run(main)
