"""TracIn against other methods and against a plain forward and backward pass, in one process.

    python -m benchmarks.tracin --data DIR [--quick]

The methods are interleaved; each round gives every method a ratio to the floor of that round, and the median over
rounds is shown. The floor is one batched forward and backward pass over these training triples with this loss: the
least that a method pays that computes every triple's gradient once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.entry import run
from benchmarks.measure import Line, quietness, store
from benchmarks.measure import table as show
from benchmarks.tracin_floor import bare_products
from benchmarks.tracin_methods import factored, plain_pass, repeated
from benchmarks.tracin_peers import captum_scores, dattri_scores, installed
from benchmarks.tracin_scale import curves, filtered_batch, whole
from kgops.graphs.triples import Graph, read_graph
from kgops.graphs.vocabulary import Vocabulary
from kgops.jobs.numbers import finite_number
from kgops.models.conve import ConvE
from kgops.tracin.blocks import Settings
from kgops.tracin.loss import ONE_TO_N, TARGET, TracinLoss
from kgops.trials.resident import peak_live_bytes
from kgops.trials.tracin_variants import model_of, one_by_one, pykeen_model, vectorised

MIB = 2**20
LOSSES = {"one-to-n": ONE_TO_N, "target": TARGET}
OURS, FLOOR = "kgops, factored", "floor: plain forward + backward"


@dataclass
class Contender:
    """`work(triples)` scores these training triples; `takes` of them are enough for its value. One that
    computes the tests' gradients in every call is `marginal`: what a call with a single triple takes counts
    for nothing, so that it pays for training triples alone, as the others do."""

    name: str
    work: Callable[[torch.Tensor], object]
    takes: int
    peak_mib: float | None = None
    marginal: bool = False

    def seconds_each(self, triples: torch.Tensor) -> float:
        if not self.marginal:
            return _seconds(self.work, triples[: self.takes]) / self.takes
        more = _seconds(self.work, triples[: self.takes]) - _seconds(self.work, triples[:1])
        return more / (self.takes - 1)


@dataclass(frozen=True)
class Row:
    """Milliseconds per training triple, and that over the floor's of the same round."""

    loss: str
    tests: int
    name: str
    best_ms: float
    ratios: tuple[float, ...]  # of each round
    peak_mib: float | None

    @property
    def times_floor(self) -> float:
        return statistics.median(self.ratios)


def _seconds(work: Callable[[torch.Tensor], object], triples: torch.Tensor) -> float:
    started = time.perf_counter()
    work(triples)
    return time.perf_counter() - started


def measure(
    contenders: list[Contender], triples: torch.Tensor, rounds: int, loss: str, tests: int
) -> list[Row]:
    """The first contender is the floor; each round starts with another."""
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    for contender in contenders:
        contender.work(triples[: min(contender.takes, 16)])
    for number in range(rounds):
        shift = number % len(contenders)
        for c in contenders[shift:] + contenders[:shift]:
            times[c.name].append(c.seconds_each(triples))
    rows = []
    for c in contenders:
        ratios = tuple(a / b for a, b in zip(times[c.name], times[contenders[0].name], strict=True))
        rows.append(Row(loss, tests, c.name, 1e3 * min(times[c.name]), ratios, c.peak_mib))
    return rows


def compare(graph: Graph, name: str, tests: int, args: argparse.Namespace) -> list[Row]:
    loss, model = LOSSES[name], model_of(graph, args.dim)
    # A stretch of the training set as `scan` streams it: by head and relation.
    order = (graph.train[:, 0] * graph.num_relations + graph.train[:, 1]).argsort(stable=True)
    first = len(order) // 3
    triples = graph.train[order[first : first + args.triples]]
    test_triples = graph.train[torch.randperm(len(graph.train))[:tests]]
    plain = Settings(block=args.block)
    contenders = [Contender(FLOOR, plain_pass(model, loss, args.block), len(triples))]
    bare = bare_products(model, loss, test_triples, plain.block, plain.chunk)
    contenders.append(Contender("bare products of kgops, factored", bare, len(triples)))
    for what, settings in (("", plain), (", Gram in bf16", replace(plain, gram_dtype=torch.bfloat16))):
        if what and not args.gram_bf16:
            continue
        peak = peak_live_bytes(partial(_all_of_ours, model, loss, test_triples, settings, triples))
        ours = factored(model, loss, test_triples, settings)
        contenders.append(Contender(f"kgops, factored{what}", ours, len(triples), peak / MIB))
    if not args.ours_only:
        contenders += others(graph, model, loss, test_triples, args)
    return measure(contenders, triples, args.rounds, name, tests)


def _all_of_ours(
    model: ConvE, loss: TracinLoss, test_triples: torch.Tensor, settings: Settings, triples: torch.Tensor
) -> None:
    """With what is computed of the tests once, which is part of the peak."""
    factored(model, loss, test_triples, settings)(triples)


def others(
    graph: Graph, model: ConvE, loss: TracinLoss, test_triples: torch.Tensor, args: argparse.Namespace
) -> list[Contender]:
    few = 2 if args.quick or len(test_triples) > 1 else 4
    theirs, native = pykeen_model(graph, model), list(model.parameters())

    def far(row: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = theirs.score_t(row[None, :2])[0]
        return scores

    mine = one_by_one(native, lambda r: model(r[:1], r[1:2])[0], loss, test_triples)
    pykeens = list(theirs.parameters())
    contenders = [
        Contender("sequential, native model, tests cached", mine, few),
        Contender(
            "sequential, PyKEEN's model, tests cached", one_by_one(pykeens, far, loss, test_triples), few
        ),
        Contender("torch.func vmap(grad), native model", vectorised(model, loss, test_triples), 8),
    ]
    if len(test_triples) > 1:
        again = repeated(pykeens, far, loss, test_triples)
        contenders.append(Contender("sequential, PyKEEN's model, for each test", again, 1))
    for library in ("captum", "dattri"):
        if not installed(library):
            print(f"n/a: {library} is not installed (`pip install 'kgops[bench]'`)", file=sys.stderr)
    if installed("captum"):
        contenders.append(
            Contender(
                "captum TracInCP, native model", captum_scores(model, loss, test_triples), 17, marginal=True
            )
        )
    if installed("dattri"):
        whole = dattri_scores(model, loss, test_triples, projected=False)
        contenders.append(Contender("dattri TracIn, not projected, native", whole, 9, marginal=True))
        if len(test_triples) == 1:
            short = dattri_scores(model, loss, test_triples, projected=True)
            contenders.append(Contender("dattri TracIn as it ships, native", short, 9, marginal=True))
    return contenders


def table(rows: list[Row]) -> str:
    lines = [
        f"{'loss':9} {'tests':>5} {'':42} {'best ms':>9} {'x floor':>8} {'least':>7} {'most':>7} {'x ours':>8}"
        f" {'MiB':>6}"
    ]
    for r in rows:
        peak = "n/a" if r.peak_mib is None else f"{r.peak_mib:,.0f}"
        ours = next(o.times_floor for o in rows if (o.loss, o.tests, o.name) == (r.loss, r.tests, OURS))
        lines.append(
            f"{r.loss:9} {r.tests:5} {r.name:42} {r.best_ms:9.3f} {r.times_floor:8.3f} "
            f"{min(r.ratios):7.3f} {max(r.ratios):7.3f} {r.times_floor / ours:8.1f} {peak:>6}"
        )
    return "\n".join(lines)


def as_lines(rows: list[Row]) -> list[Line]:
    return [
        Line(
            "tracin_times_floor",
            f"{r.name}, {r.loss}, {r.tests} test{'s' * (r.tests != 1)}",
            "x",
            r.ratios,
        )
        for r in rows
        if r.name != FLOOR
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracin", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt")
    parser.add_argument("--tests", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--losses", nargs="+", default=["one-to-n", "target"], choices=list(LOSSES))
    parser.add_argument("--triples", type=int, default=2048, help="training triples for floor and ours")
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--entities", type=int, help="as if the graph had so many")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="three rounds, fewer triples")
    parser.add_argument("--ours-only", action="store_true", help="without the other methods")
    parser.add_argument(
        "--gram-bf16", action="store_true", help="ours with its two large products in bf16, too"
    )
    parser.add_argument("--curves", action="store_true", help="cost against triples, tests and checkpoints")
    parser.add_argument("--batch", action="store_true", help="20 filtered test triples, as one batch")
    parser.add_argument(
        "--full", type=finite_number, metavar="SHARE", help="this share of all tests x all training"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--store", action="store_true", help="keep the values in the database")
    parser.add_argument("--json", action="store_true", help="the rows as JSON instead of a table")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.rounds, args.triples = 3, min(args.triples, 1024)
    test = args.data / "test.txt"
    graph = read_graph(args.data / "train.txt", None, test if test.exists() else None)
    if args.entities:
        graph = replace(graph, entities=Vocabulary.of(map(str, range(args.entities))))
    print(
        f"{graph.num_entities:,} entities, d = {args.dim}, {torch.get_num_threads()} thread(s); {quietness()}"
    )
    if args.curves or args.batch or args.full:
        model = model_of(graph, args.dim)
        lines = whole(graph, model, args.full) if args.full else []
        lines += curves(graph, model) if args.curves else []
        lines += [
            line for name in args.losses for line in filtered_batch(graph, model, name, LOSSES[name])
        ] * args.batch
        print("\n".join(show(lines)))
    else:
        rows = [r for name in args.losses for tests in args.tests for r in compare(graph, name, tests, args)]
        if args.json:
            print(json.dumps([asdict(row) for row in rows]))
            return 0
        print(table(rows))
        print("best ms: per training triple. x floor: over the floor's time, median of the rounds. MiB: peak")
        print("live bytes of torch's CPU allocator beyond the model, the tests' factors included.")
        lines = as_lines(rows)
    if args.store:
        store(lines, f"python -m benchmarks.tracin {' '.join(argv or sys.argv[1:])}")
    return 0


if __name__ == "__main__":
    run(main)
