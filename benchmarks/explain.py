"""Explanations by the protocol of Kelpie (Rossi et al. 2022): do predictions fall without what explains them?

    python -m benchmarks.explain --dataset umls [--epochs 150] [--tests 100] [--seeds 3] [--json FILE]
    python -m benchmarks.explain --lds --dataset umls --folder FOLDER [--subsets 100] [--tests 60]

Draws test triples whose tail the model ranks first. Each method gives each of them a set of training triples; all sets
of a method are removed at once, the model is trained again from the start, and hits@1 and MRR of the drawn triples are
taken again. Before, both are 1. Triples about the same two entities as the prediction are counted apart, since they
are easy to find. Of the last method the sets are also removed with one fact of each put back.

With --lds, the linear datamodeling score of each score of training triples, on the outcomes of one set of trainings.
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
from benchmarks.explain_methods import Explained, methods
from benchmarks.lds import LDS_HEADS, compared
from benchmarks.quality import Silent
from kgops.errors import BadInput
from kgops.explanations.explanation_files import pair_of
from kgops.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.models.conve import ConvE, ConvEConfig
from kgops.tracin.retraining import FitAgain, Outcome
from kgops.training.evaluate import Evaluator
from kgops.training.loop import fit
from kgops.training.settings import TrainSettings

__all__ = ["Removed", "main", "measured"]


@dataclass(frozen=True)
class Removed:
    """The drawn predictions after training again without a method's sets.

    `hits_at_1` and `mrr`: one value for each seed. `hits_of_pairs` and `hits_of_others`: hits@1 of the predictions
    whose set has a fact about the same two entities, and of the others; None where there are none.
    """

    method: str
    removed: int
    mean_size: float
    with_pair: int
    seconds_each: float
    hits_at_1: list[float]
    mrr: list[float]
    hits_of_pairs: float | None
    hits_of_others: float | None

    def line(self) -> str:
        return (
            f"{self.method:26} {self.removed:7,} {self.mean_size:5.2f} {self.seconds_each:7.3f} "
            f"{mean(self.hits_at_1) - 1:+7.3f} {mean(self.mrr) - 1:+7.3f} {self.with_pair:6} "
            f"{_fall(self.hits_of_pairs)} {_fall(self.hits_of_others)}   "
            + " ".join(f"{value - 1:+.3f}" for value in self.hits_at_1)
        )


_HEADS = (
    f"{'':26} {'':7} {'':5} {'':7} {'':7} {'':7} {'hits@1 of sets':^24}\n"
    f"{'method':26} removed  size  s each  hits@1     MRR   with pair    without   hits@1 by seed\n"
    + "-"
    * 104
)


def measured(
    graph: Graph,
    config: ConvEConfig,
    settings: TrainSettings,
    *,
    tests: int,
    seeds: int,
    most: int,
    on_line: Callable[[str], None] = lambda line: None,
) -> list[Removed]:
    """One row for each method; all are trained again with the same seeds, which are not that of the model."""
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(settings.seed)
        model = ConvE(config)
        fit(model, graph, settings, Path(folder) / "base", Silent())
        model.eval()
        drawn = _ranked_first(model, graph, tests, settings.seed)
        on_line(f"{len(drawn)} test triples ranked first")
        explained = Explained(graph, model, settings, drawn)
        again = FitAgain(graph, drawn, config, settings, Path(folder), Silent())
        found, sets = [], [[0]]
        for name, method in methods(settings.seed, most).items():
            begin = time.perf_counter()
            sets = method(explained)
            seconds = (time.perf_counter() - begin) / len(drawn)
            found.append(_without(name, sets, seconds, graph, drawn, again, seeds))
            on_line(found[-1].line())
        fewer = _one_put_back(sets, settings.seed)
        found.append(_without(f"{name}, less one fact", fewer, 0.0, graph, drawn, again, seeds))
        on_line(found[-1].line())
        on_line(minimality(found[-2], found[-1]))
    return found


def minimality(whole: Removed, fewer: Removed) -> str:
    fall, then = 1 - mean(whole.hits_at_1), 1 - mean(fewer.hits_at_1)
    shrinks = "n/a" if not fall else f"{1 - then / fall:.0%}"
    return f"with one fact of each set put back, the fall of hits@1 shrinks by {shrinks}"


def _ranked_first(model: ConvE, graph: Graph, tests: int, seed: int) -> torch.Tensor:
    known = torch.cat([graph.train, graph.valid, graph.test])
    evaluation = Evaluator(known, graph.num_entities)(model, graph.test)
    assert evaluation is not None
    first = (evaluation.tail_ranks == 1).nonzero()[:, 0]
    if not len(first):
        raise BadInput("the model ranks no test triple first.", hint="train it for more --epochs.")
    order = torch.randperm(len(first), generator=torch.Generator().manual_seed(seed))
    return graph.test[first[order[:tests]]]


def _one_put_back(sets: Sequence[list[int]], seed: int) -> list[list[int]]:
    """Without one fact of each set, drawn at random."""
    draw = torch.Generator().manual_seed(seed)
    drops = [int(torch.randint(max(len(one), 1), (1,), generator=draw)) for one in sets]
    return [one[:drop] + one[drop + 1 :] for one, drop in zip(sets, drops, strict=True)]


def _without(
    name: str,
    sets: Sequence[Sequence[int]],
    seconds_each: float,
    graph: Graph,
    drawn: torch.Tensor,
    again: FitAgain,
    seeds: int,
) -> Removed:
    kept = torch.ones(len(graph.train), dtype=torch.bool)
    kept[[row for rows in sets for row in rows]] = False
    first = again.settings.seed + 1
    outcomes = [again(graph.train[kept], seed, lambda share: None) for seed in range(first, first + seeds)]
    pairs = [
        any(pair_of(_triple(graph.train[row]), _triple(test)) for row in rows)
        for test, rows in zip(drawn, sets, strict=True)
    ]
    return Removed(
        name,
        int((~kept).sum()),
        mean(map(len, sets)),
        sum(pairs),
        seconds_each,
        [mean(_hits(one)) for one in outcomes],
        [mean(outcome.reciprocal_rank for outcome in one) for one in outcomes],
        _hits_where(outcomes, pairs),
        _hits_where(outcomes, [not pair for pair in pairs]),
    )


def _hits(outcomes: Sequence[Outcome]) -> list[float]:
    return [float(outcome.rank <= 1) for outcome in outcomes]


def _hits_where(outcomes: Sequence[Sequence[Outcome]], chosen: Sequence[bool]) -> float | None:
    hits = [hit for one in outcomes for hit, here in zip(_hits(one), chosen, strict=True) if here]
    return mean(hits) if hits else None


def _triple(row: torch.Tensor) -> tuple[int, int, int]:
    h, r, t = row.tolist()
    return h, r, t


def _fall(hits: float | None) -> str:
    return "       n/a" if hits is None else f"{hits - 1:+10.3f}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="umls", help="a PyKEEN dataset by name")
    parser.add_argument("--data", type=Path, help="folder with train.txt, valid.txt and test.txt, instead")
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each method or subset")
    parser.add_argument("--seed", type=int, default=0, help="of the model and the draws")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--embedding-dim", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--loss", default="kvsall-bce")
    parser.add_argument("--max-facts", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all values there")
    parser.add_argument("--lds", action="store_true", help="linear datamodeling scores instead")
    parser.add_argument("--subsets", type=int, default=100, help="with --lds, random halves to train on")
    parser.add_argument("--folder", type=Path, help="with --lds, keeps the trainings, to go on from")
    args = parser.parse_args(argv)
    if args.lds and args.folder is None:
        parser.error("--lds needs a --folder for its trainings")
    torch.set_num_threads(args.threads)
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
    found = _lds(args, graph, config, settings) if args.lds else _explain(args, graph, config, settings)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 0


def _explain(
    args: argparse.Namespace, graph: Graph, config: ConvEConfig, settings: TrainSettings
) -> list[dict[str, object]]:
    print(_HEADS)
    found = measured(
        *(graph, config, settings),
        tests=args.tests,
        seeds=args.seeds,
        most=args.max_facts,
        on_line=lambda line: print(line, flush=True),
    )
    return [asdict(one) for one in found]


def _lds(
    args: argparse.Namespace, graph: Graph, config: ConvEConfig, settings: TrainSettings
) -> list[dict[str, object]]:
    args.folder.mkdir(parents=True, exist_ok=True)
    print(LDS_HEADS)
    found = []
    how = {"tests": args.tests, "subsets": args.subsets, "seeds": args.seeds}
    for one in compared(graph, config, settings, args.folder, **how):
        print(one.line(), flush=True)
        found.append(asdict(one))
    return found


def _graph(data: Path | None, dataset: str) -> Graph:
    if data is None:
        return read_pykeen_dataset(dataset)
    return read_graph(*(data / f"{split}.txt" for split in ("train", "valid", "test")))


if __name__ == "__main__":
    run(main)
