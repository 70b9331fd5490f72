"""Explanations by the protocol of Kelpie (Rossi et al. 2022): do predictions fall without what explains them?

    python -m benchmarks.explain --dataset umls [--epochs 150] [--tests 100] [--seeds 3] [--json FILE]

Draws test triples whose tail the model ranks first. Each method gives each of them a set of training triples of the
head; all sets of a method are removed at once, the model is trained again from the start, and hits@1 and MRR of the
drawn triples are taken again. Before, both are 1. Triples about the same two entities as the prediction are counted
apart, since they are easy to find.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

import torch

from benchmarks.entry import run
from benchmarks.quality import Silent
from kgops.errors import BadInput
from kgops.explanations.explanation_files import pair_of
from kgops.explanations.head_encoder import HeadEncoder
from kgops.explanations.head_row import HeadRow, Surroundings
from kgops.explanations.necessary import explain, gradient_order
from kgops.explanations.prediction import Prediction
from kgops.explanations.targets import targets_of
from kgops.explanations.training_queries import Background, TrainingQueries
from kgops.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.models.conve import ConvE, ConvEConfig
from kgops.tracin.retraining import FitAgain
from kgops.training.evaluate import Evaluator, KnownAnswers
from kgops.training.loop import fit
from kgops.training.settings import TrainSettings

__all__ = ["Found", "Method", "main", "measured"]

# For one prediction: rows of the training triples in its set.
Method = Callable[[HeadRow, Prediction], Sequence[int]]


@dataclass(frozen=True)
class Found:
    """Hits@1 and MRR of the drawn predictions after training again, one value for each seed."""

    method: str
    removed: int
    mean_size: float
    same_pair: int
    seconds_each: float
    hits_at_1: list[float]
    mrr: list[float]

    def line(self) -> str:
        return (
            f"{self.method:24} {self.removed:7,} {self.mean_size:6.2f} {self.same_pair:9,} {self.seconds_each:8.3f} "
            f"{mean(self.hits_at_1) - 1:+8.3f} {mean(self.mrr) - 1:+8.3f}   "
            + " ".join(f"{value - 1:+.3f}" for value in self.hits_at_1)
        )


_HEADS = (
    "method                   removed   size same pair   s each   hits@1      MRR   hits@1 by seed\n"
    + "-" * 96
)


def methods(seed: int, most: int, overshoot: float) -> dict[str, Method]:
    """Each with one fact, and with as many as allowed."""
    draw = torch.Generator().manual_seed(seed)

    def random(many: int) -> Method:
        def chosen(head: HeadRow, prediction: Prediction) -> Sequence[int]:
            order: list[int] = torch.randperm(len(head.facts), generator=draw).tolist()
            return order[:many]

        return chosen

    def by_gradient(many: int) -> Method:
        return lambda head, prediction: gradient_order(head, prediction)[:many]

    def newton(many: int) -> Method:
        beyond = overshoot if many > 1 else 0.0
        return lambda head, prediction: explain(head, prediction, most=many, overshoot=beyond).facts

    named = {"random of the head": random, "gradient": by_gradient, "newton": newton}
    found: dict[str, Method] = {"none, another seed": lambda head, prediction: ()}
    for many in dict.fromkeys((1, most)):
        found |= {f"{name}, {many}": make(many) for name, make in named.items()}
    return found


def measured(
    graph: Graph,
    config: ConvEConfig,
    settings: TrainSettings,
    *,
    tests: int,
    seeds: int,
    most: int,
    overshoot: float,
    damping: float,
    on_line: Callable[[str], None] = lambda line: None,
) -> list[Found]:
    """One row for each method; all are trained again with the same seeds, which are not that of the model."""
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(settings.seed)
        model = ConvE(config)
        fit(model, graph, settings, Path(folder) / "base", Silent())
        model.eval()
        drawn = _ranked_first(model, graph, tests, settings.seed)
        on_line(f"{len(drawn)} test triples ranked first")
        again = FitAgain(graph, drawn, config, settings, Path(folder), Silent())
        found = []
        for name, method in methods(settings.seed, most, overshoot).items():
            found.append(_one(name, method, graph, model, settings, drawn, again, seeds, damping))
            on_line(found[-1].line())
    return found


def _ranked_first(model: ConvE, graph: Graph, tests: int, seed: int) -> torch.Tensor:
    known = torch.cat([graph.train, graph.valid, graph.test])
    evaluation = Evaluator(known, graph.num_entities)(model, graph.test)
    assert evaluation is not None
    first = (evaluation.tail_ranks == 1).nonzero()[:, 0]
    if not len(first):
        raise BadInput("the model ranks no test triple first.", hint="train it for more --epochs.")
    order = torch.randperm(len(first), generator=torch.Generator().manual_seed(seed))
    return graph.test[first[order[:tests]]]


def _one(
    name: str,
    method: Method,
    graph: Graph,
    model: ConvE,
    settings: TrainSettings,
    drawn: torch.Tensor,
    again: FitAgain,
    seeds: int,
    damping: float,
) -> Found:
    begin = time.perf_counter()
    sets = _sets(method, graph, model, settings, drawn, damping)
    seconds = (time.perf_counter() - begin) / len(drawn)
    triples = {tuple(fact) for facts in sets for fact in facts}
    kept = torch.tensor([tuple(row) not in triples for row in graph.train.tolist()])
    hits, mrr = [], []
    for seed in range(settings.seed + 1, settings.seed + 1 + seeds):
        outcomes = again(graph.train[kept], seed, lambda share: None)
        hits.append(mean(float(one.rank <= 1) for one in outcomes))
        mrr.append(mean(one.reciprocal_rank for one in outcomes))
    pairs = sum(
        bool(pair_of((fact[0], fact[1], fact[2]), (h, r, t)))
        for (h, r, t), facts in zip(drawn.tolist(), sets, strict=True)
        for fact in facts
    )
    size = mean(map(len, sets))
    return Found(name, int((~kept).sum()), size, pairs, seconds, hits, mrr)


def _sets(
    method: Method,
    graph: Graph,
    model: ConvE,
    settings: TrainSettings,
    drawn: torch.Tensor,
    damping: float,
) -> list[list[list[int]]]:
    encoder, c = HeadEncoder(model), model.config
    recorded = {"name": settings.loss, "label_smoothing": settings.label_smoothing}
    targets = targets_of(recorded, c.num_entities)
    queries = TrainingQueries(graph.train, relation_rows=c.relation_rows, inverse=c.inverse)
    background = Background(queries, encoder, model, targets, seed=settings.seed)
    around = Surroundings(model, targets, queries, encoder, background, damping)
    known = KnownAnswers(torch.cat([graph.train, graph.valid, graph.test]))
    found = []
    for h, r, t in drawn.tolist():
        head = HeadRow(around, h)
        answers = known.of(torch.tensor([h]), torch.tensor([2 * r]))[1]
        facts = list(method(head, Prediction(model, encoder, (h, r, t), answers))) if len(head.facts) else []
        found.append(head.facts.triples[facts].tolist())
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="umls", help="a PyKEEN dataset by name")
    parser.add_argument("--data", type=Path, help="folder with train.txt, valid.txt and test.txt, instead")
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each method")
    parser.add_argument("--seed", type=int, default=0, help="of the model and the draws")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--embedding-dim", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--loss", default="kvsall-bce")
    parser.add_argument("--max-facts", type=int, default=4)
    parser.add_argument("--overshoot", type=float, default=1.0)
    parser.add_argument("--damping", type=float, default=0.1)
    parser.add_argument("--json", type=Path, help="write all values there")
    args = parser.parse_args(argv)
    graph = _graph(args.data, args.dataset)
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=args.embedding_dim)
    settings = TrainSettings(
        num_epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        label_smoothing=0.1,
        loss=args.loss,
        schedule="cosine",
        warmup_epochs=min(2, args.epochs - 1),
        seed=args.seed,
        validate_every=0,
    )
    print(_HEADS)
    found = measured(
        *(graph, config, settings),
        tests=args.tests,
        seeds=args.seeds,
        most=args.max_facts,
        on_line=lambda line: print(line, flush=True),
        overshoot=args.overshoot,
        damping=args.damping,
    )
    if args.json:
        args.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 0


def _graph(data: Path | None, dataset: str) -> Graph:
    if data is None:
        return read_pykeen_dataset(dataset)
    return read_graph(*(data / f"{split}.txt" for split in ("train", "valid", "test")))


if __name__ == "__main__":
    run(main)
