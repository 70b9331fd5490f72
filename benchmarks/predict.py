"""`kgops predict` against PyKEEN's `predict_target` and against bare products: time, memory, ranks.

    python -m benchmarks.predict --data DIR [--entities 100000] [--store]

DIR holds train.txt, valid.txt and test.txt. The model is a ConvE with random weights: time does not depend on them.
Questions are answered with their 50 best, as the worker does after loading. All pairs of a relation run in a new
process on made entities: the peak above the model, and the time beside the encoding of all heads and the products of
the same blocks with nothing done to them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Line, arguments, finish, json_of, quietness, run
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.predict.pairs import best_pairs
from kgops.maths.predict.ranking import Probability, answers
from kgops.maths.predict.scores import scorer_of
from kgops.maths.train.evaluate import TailScores, split
from kgops.maths.trials import train_step
from kgops.maths.trials.variants import peak_mib, reset_peak
from kgops.workloads.predict.job import PREDICT_CHUNK, PREDICT_ENCODED
from kgops.workloads.train.models import ConvEConfig

_TOP, _MANY, _COMPARED, _BEST = 50, 1000, 200, 1000
_NONE = Probability(None)


def main(argv: list[str] | None = None) -> int:
    parser = arguments("predict", __doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt, valid.txt, test.txt")
    parser.add_argument("--entities", type=int, default=100_000, help="made entities, for all pairs")
    parser.add_argument("--dim", type=int, default=200, help="of the embeddings")
    parser.add_argument("--pairs", action="store_true", help=argparse.SUPPRESS)  # in this process
    args = parser.parse_args(argv)
    if args.pairs:
        print(json.dumps(_all_pairs(args.entities, args.dim)))
        return 0
    print(quietness(), flush=True)
    graph = read_graph(*(args.data / f"{split}.txt" for split in ("train", "valid", "test")))
    lines = [*_questions(graph, args.dim), *_pairs(args.data, args.entities, args.dim)]
    return finish(lines, keep=args.store)


def _questions(graph: Graph, dim: int) -> Iterator[Line]:
    model = _model(graph.num_entities, graph.num_relations, dim)
    scorer = scorer_of(model, PREDICT_CHUNK)
    asked = _drawn(graph, _MANY)

    def answer(rows: torch.Tensor) -> dict[int, Any]:
        return dict(answers(scorer, rows, _TOP, _NONE))

    answer(asked[:1])  # starts threads
    one = tuple(1000 * _seconds(answer, asked[row : row + 1]) for row in range(20))
    yield Line("predict_one_ms", "one question", "ms", one, target=50)
    many = tuple(_seconds(answer, asked) for _ in range(3))
    yield Line("predict_many_s", f"{_MANY:,} questions", "s", many, target=3)
    theirs, differ = _beside_pykeen(graph, model, asked[:_COMPARED])
    yield Line("predict_pykeen_ms", "one question, PyKEEN's predict_target", "ms", theirs)
    name = f"of {_COMPARED} questions, those whose {_TOP} best have other ranks in PyKEEN, in float64"
    yield Line("predict_ranks_that_differ", name, "", (float(differ),), target=0)


def _beside_pykeen(graph: Graph, model: ConvE, asked: torch.Tensor) -> tuple[tuple[float, ...], int]:
    """PyKEEN's milliseconds of some questions in float32, and the questions with other ranks in float64."""
    from pykeen.predict import predict_target

    factory = train_step.factory(graph)

    def ask(theirs: Any, row: list[int]) -> Any:
        known, relation, heads = row
        given = {"tail": known} if heads else {"head": known}
        return predict_target(theirs, relation=relation, triples_factory=factory, **given).df

    theirs = train_step.pykeen_model(graph, model)
    ask(theirs, asked[0].tolist())
    times = tuple(1000 * _seconds(ask, theirs, row) for row in asked[:20].tolist())
    model, theirs = model.double(), theirs.double()
    found = dict(answers(scorer_of(model, PREDICT_CHUNK), asked, _TOP, _NONE))
    differ = 0
    for number, row in enumerate(asked.tolist()):
        frame = ask(theirs, row)
        scores = frame["score"]
        ranks = scores.rank(ascending=False)  # the mean of equal scores' places
        of = dict(zip(frame[f"{'head' if row[2] else 'tail'}_id"].tolist(), ranks.tolist(), strict=True))
        own = found[number]
        differ += own.ranks.tolist() != [of[entity] for entity in own.entities.tolist()]
    return times, differ


def _pairs(data: Path, entities: int, dim: int) -> Iterator[Line]:
    given = ["--pairs", "--data", str(data), "--entities", str(entities), "--dim", str(dim)]
    found = json_of("benchmarks.predict", *given)
    of = f"all pairs of {entities:,} entities, {_BEST:,} best"
    yield Line("predict_pairs_mib", f"{of}: above the model", "MiB", (found["mib"],), target=512)
    yield Line("predict_pairs_s", f"{of}: time", "s", (found["s"],))
    yield Line("predict_pairs_ratio", f"{of}: of bare products' time", "x", (found["ratio"],), target=1.3)


def _all_pairs(entities: int, dim: int) -> dict[str, float]:
    """Ours, then the bare products."""
    model = _model(entities, 1, dim)
    scorer = scorer_of(model, PREDICT_CHUNK)
    known = torch.randint(entities * entities, (1000,)).sort().values
    _bare_products(model, min(entities, 4096))  # starts threads
    before = reset_peak()
    begin = time.perf_counter()
    best_pairs(scorer, 0, _BEST, _NONE, left_out=known, chunk=PREDICT_CHUNK)
    taken, peak = time.perf_counter() - begin, peak_mib()
    assert before is not None and peak is not None, "this kernel tells no peak"
    return {"mib": peak - before, "s": taken, "ratio": taken / _seconds(_bare_products, model, entities)}


@torch.no_grad()
def _bare_products(model: ConvE, heads: int) -> None:
    """Encodes the heads and multiplies them with all entities, block by block into one buffer."""
    n, chunk, at_once = model.config.num_entities, PREDICT_CHUNK, PREDICT_ENCODED
    buffer = torch.empty(chunk * at_once)
    for some in split(torch.arange(heads), at_once):
        scores = TailScores(model, model.encode(some, torch.zeros_like(some)))
        for start in range(0, n, chunk):
            size = min(chunk, n - start)
            scores.roughly(start, start + size, buffer[: size * len(some)].view(size, len(some)))


def _model(entities: int, relations: int, dim: int) -> ConvE:
    torch.manual_seed(0)
    return ConvE(ConvEConfig(entities, relations, embedding_dim=dim)).eval()


def _drawn(graph: Graph, count: int) -> torch.Tensor:
    """Random questions: (known entity, relation, 1 where heads are asked)."""
    draw = torch.Generator().manual_seed(0)
    sizes = (graph.num_entities, graph.num_relations, 2)
    return torch.stack([torch.randint(n, (count,), generator=draw) for n in sizes], dim=1)


def _seconds(act: Callable[..., object], *given: Any) -> float:
    begin = time.perf_counter()
    act(*given)
    return time.perf_counter() - begin


if __name__ == "__main__":
    run(main)
