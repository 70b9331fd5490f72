"""TracIn against other methods and against a plain forward and backward pass, in one process.

    python -m benchmarks.tracin --data DIR [--quick] [--store]
    python -m benchmarks.tracin --data DIR --batch
    python -m benchmarks.tracin --data DIR --full 1 --threads 2

Each round runs every method once; its ratio is to the plain pass of that round. The plain pass is one batched forward
and backward over these training triples. --batch filters 20 test triples and scores them together. --full scores all
training triples against a share of the test triples.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch.func import functional_call, grad, vmap

from benchmarks.measure import Line, Silent, arguments, finish, quietness, run
from benchmarks.train_step import Contender, measure
from kgops.jobs.numbers import finite_number
from kgops.maths.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import Engine, Settings, TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N, TARGET, TracinLoss
from kgops.maths.tracin.scan import AllScores, Scoring, TopTriples
from kgops.maths.train.batches import query_rows
from kgops.maths.trials.tracin import model_of
from kgops.maths.trials.train_step import pykeen_model
from kgops.planning.resolve import TRACIN_KERNELS

LOSSES = {"one-to-n": ONE_TO_N, "target": TARGET}
TOP, BATCH, ROUNDS = 100, 20, 3
AT_ONCE = 3072  # tests of `whole`: more take more memory, and less time
Work = Callable[[torch.Tensor], object]


def main(argv: list[str] | None = None) -> int:
    parser = arguments("tracin", __doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt")
    parser.add_argument("--tests", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--losses", nargs="+", default=["one-to-n", "target"], choices=list(LOSSES))
    parser.add_argument("--triples", type=int, default=2048, help="training triples for plain pass and kgops")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="three rounds, at most 1,024 triples")
    parser.add_argument("--ours-only", action="store_true", help="without the other methods")
    parser.add_argument("--batch", action="store_true", help="20 filtered test triples, as one batch")
    parser.add_argument("--full", type=finite_number, metavar="SHARE", help="this share of all test triples")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    test = args.data / "test.txt"
    graph = read_graph(args.data / "train.txt", None, test if test.exists() else None)
    print(f"{graph.num_entities:,} entities, d = {args.dim}, {args.threads} thread(s); {quietness()}")
    model = model_of(graph, args.dim)
    if args.full:
        lines = whole(graph, model, args.full)
    elif args.batch:
        lines = [line for name in args.losses for line in filtered_batch(graph, model, name)]
    else:
        lines = [
            line for name in args.losses for tests in args.tests for line in compare(graph, name, tests, args)
        ]
    return finish(lines, keep=args.store)


# --- beside other methods -------------------------------------------------------------------------


def compare(graph: Graph, name: str, tests: int, args: argparse.Namespace) -> Iterator[Line]:
    loss, model = LOSSES[name], model_of(graph, args.dim)
    # A stretch of the training set as `scan` streams it: by head and relation.
    order = (graph.train[:, 0] * graph.num_relations + graph.train[:, 1]).argsort(stable=True)
    triples = graph.train[order[len(order) // 3 :]][: min(args.triples, 1024) if args.quick else args.triples]
    test_triples = graph.train[torch.randperm(len(graph.train))[:tests]]
    methods: list[tuple[str, Work, int]] = [
        ("plain forward + backward", plain_pass(model, loss), len(triples)),
        ("kgops, factored", factored(model, loss, test_triples), len(triples)),
    ]
    if not args.ours_only:
        methods += others(graph, model, loss, test_triples)
    contenders = [Contender(what, partial(work, triples[:n]), n) for what, work, n in methods]
    for row in measure(contenders, ROUNDS if args.quick else 7)[1:]:
        subject = f"{row.name}, {name}, {tests} test{'s' * (tests != 1)}"
        yield Line("tracin_times_floor", subject, "x", row.ratios)


def plain_pass(model: ConvE, loss: TracinLoss) -> Work:
    def work(triples: torch.Tensor) -> None:
        for block in torch.split(triples, Settings().block):
            rows = query_rows(block, model.config.inverse)
            model.zero_grad(set_to_none=True)
            if loss.kind == "target":
                queries, tails = model.encode(rows[:, 0], rows[:, 1]), rows[:, 2]
                own = (queries * model.entities[tails]).sum(-1) + model.biases[tails]
                mean = torch.nn.functional.softplus(-own).mean()
            else:
                labels = torch.zeros(len(rows), model.config.num_entities)
                labels[torch.arange(len(rows)), rows[:, 2]] = 1
                scores = model(rows[:, 0], rows[:, 1])
                mean = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels)
            torch.autograd.backward(mean)

    return work


def factored(model: ConvE, loss: TracinLoss, tests: torch.Tensor) -> Work:
    engine = Engine(TracinCheckpoint(model, 1.0), loss, Settings())
    kept = engine.keep(tests)

    def work(triples: torch.Tensor) -> None:
        for block in torch.split(triples, Settings().block):
            engine.scores(kept, block)

    return work


def others(
    graph: Graph, model: ConvE, loss: TracinLoss, tests: torch.Tensor
) -> Iterator[tuple[str, Work, int]]:
    """Methods as in scripts, with the number of training triples that is enough to time each."""
    theirs = pykeen_model(graph, model)
    native, pykeens = list(model.parameters()), list(theirs.parameters())

    def far(row: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = theirs.score_t(row[None, :2])[0]
        return scores

    mine = one_by_one(native, lambda r: model(r[:1], r[1:2])[0], loss, tests)
    yield "sequential, native model, tests cached", mine, 2
    yield "sequential, PyKEEN's model, tests cached", one_by_one(pykeens, far, loss, tests), 2
    yield "torch.func vmap(grad), native model", vectorised(model, loss, tests), 8
    if len(tests) > 1:
        alone = [one_by_one(pykeens, far, loss, test[None]) for test in tests]
        yield (
            "sequential, PyKEEN's model, for each test",
            lambda triples: [loop(triples) for loop in alone],
            1,
        )


def one_by_one(
    parameters: list[torch.nn.Parameter],
    scores_of: Callable[[torch.Tensor], torch.Tensor],
    loss: TracinLoss,
    tests: torch.Tensor,
) -> Work:
    """One backward pass per triple; the gradients of the test triples are kept."""

    def gradient(row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        value = _value(scores_of(row), row, loss)
        grads = torch.autograd.grad(value, parameters, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    kept = [gradient(row) for row in query_rows(tests, True)]

    def work(triples: torch.Tensor) -> torch.Tensor:
        scores = torch.empty(len(kept), len(triples))
        for j, row in enumerate(query_rows(triples, True)):
            row_gradients = gradient(row)
            for i, other in enumerate(kept):
                scores[i, j] = sum(float((a * b).sum()) for a, b in zip(row_gradients, other, strict=True))
        return scores

    return work


def vectorised(model: ConvE, loss: TracinLoss, tests: torch.Tensor) -> Work:
    """Per-sample gradients by torch.func.vmap, eight triples at once."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def value(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return _value(functional_call(model, weights, (row[:1], row[1:2]))[0], row, loss)

    gradients = vmap(grad(value), in_dims=(None, 0))

    def flat(rows: torch.Tensor) -> dict[str, torch.Tensor]:
        per_row: dict[str, torch.Tensor] = gradients(parameters, rows)
        return {name: g.flatten(1) for name, g in per_row.items()}

    blocks: tuple[torch.Tensor, ...] = torch.split(query_rows(tests, True), 8)
    kept = [flat(block) for block in blocks]

    def work(triples: torch.Tensor) -> torch.Tensor:
        columns = []
        for block in torch.split(query_rows(triples, True), 8):
            row_gradients = flat(block)
            tiles = [
                torch.stack([other[name] @ row_gradients[name].t() for name in row_gradients]).sum(0)
                for other in kept
            ]
            columns.append(torch.cat(tiles))
        return torch.cat(columns, dim=1)

    return work


def _value(scores: torch.Tensor, row: torch.Tensor, loss: TracinLoss) -> torch.Tensor:
    """The loss of one triple, given its scores of all entities."""
    at_tail = scores.gather(0, row[2:])[0]
    if loss.kind == "target":
        return torch.nn.functional.softplus(-at_tail)
    mean: torch.Tensor = (torch.nn.functional.softplus(scores).sum() - at_tail) / len(scores)
    return mean


# --- batches and whole graphs ---------------------------------------------------------------------


def filtered_batch(graph: Graph, model: ConvE, name: str) -> list[Line]:
    """The group's kind of batch after loading: filter each, score the union, read each triple's part."""
    draw = torch.Generator().manual_seed(0)
    tests = graph.test[torch.randperm(len(graph.test), generator=draw)[:BATCH]]
    how = NeighbourhoodFilter(n_hops=2, path_filtering=True, max_total_path_length=3)
    near = Neighbourhood(graph.train, graph.num_entities)
    filtering, scoring, sizes = [], [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        rows = [near.select(int(h), int(t), how) for h, _, t in tests]
        union = torch.unique(torch.cat(rows))
        between = time.perf_counter()
        sink = AllScores(len(tests), len(union))
        Scoring([TracinCheckpoint(model, 1.0)], LOSSES[name])(graph.train[union], tests, sink)
        for i, own in enumerate(rows):
            sink.scores[i, torch.searchsorted(union, own)].abs().argsort(descending=True)
        filtering.append(between - begin)
        scoring.append(time.perf_counter() - between)
        sizes.append(float(len(union)))
    what = f"{BATCH} test triples, 2 hops, paths of at most 3, {name}"
    together = tuple(a + b for a, b in zip(filtering, scoring, strict=True))
    return [
        Line("tracin_batch_s", f"{what}: filtering", "s", tuple(filtering)),
        Line("tracin_batch_s", f"{what}: scoring and reading", "s", tuple(scoring)),
        Line("tracin_batch_s", f"{what}: all of it", "s", together, 1.0),
        Line("tracin_batch_union", f"{what}: training triples in the union", "triples", tuple(sizes)),
    ]


def whole(graph: Graph, model: ConvE, share: float) -> list[Line]:
    """All training triples against `share` of the test triples, the top 100 of each kept.

    Uses a worker's environment, which oneDNN reads at this process's first product.
    """
    os.environ.update(TRACIN_KERNELS)
    many = max(1, round(share * len(graph.test)))
    begin = time.perf_counter()
    Scoring([TracinCheckpoint(model, 1.0)], ONE_TO_N, Settings(block=512, tests_at_once=AT_ONCE))(
        graph.train, graph.test[:many], TopTriples(TOP), report=Silent()
    )
    seconds = time.perf_counter() - begin
    pairs = many * len(graph.train)
    what = f"{len(graph.train):,} training x {many:,} test triples, top {TOP} of each"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Line("tracin_whole_s", what, "s", (seconds,), 15 * 60.0),
        Line("tracin_whole_pairs_per_s", what, "pairs/s", (pairs / seconds,)),
        Line("tracin_whole_rss_mib", f"{what}: peak RSS of the process", "MiB", (peak,), 1.2 * 1024),
    ]


if __name__ == "__main__":
    run(main)
