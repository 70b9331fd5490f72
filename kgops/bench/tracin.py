"""TracIn beside what others do, and beside one plain forward and backward pass, in one process.

    python -m kgops.bench.tracin --data DIR [--quick]

The contenders take turns; each round gives every contender a ratio to the floor of that round, and the
median over rounds is shown. The floor is one batched forward and backward pass over the same training
triples, with the same loss: what any method would pay that looks at every triple's gradient once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call, grad, vmap

from kgops.bench.entry import run
from kgops.bench.live_bytes import peak_live_bytes
from kgops.bench.measure import Line, quietness, store
from kgops.bench.measure import table as show
from kgops.bench.rivals import factory
from kgops.bench.tracin_rivals import captum_scores, dattri_scores, installed
from kgops.bench.tracin_scale import curves, filtered_batch, whole
from kgops.graphs.triples import Graph, read_graph
from kgops.graphs.vocabulary import Vocabulary
from kgops.models.conve import ConvE, ConvEConfig
from kgops.models.pykeen_bridge import to_pykeen_state
from kgops.tracin import sequential
from kgops.tracin.blocks import Engine, Point, Settings
from kgops.tracin.loss import ONE_TO_N, TARGET, TracinLoss
from kgops.training.batches import query_rows

__all__ = ["Row", "main", "measure"]

MIB = 2**20
LOSSES = {"one-to-n": ONE_TO_N, "target": TARGET}
OURS = "kgops, factored"


@dataclass
class Contender:
    """`work(triples)` scores these training triples; `takes` of them are enough for its figure. One that
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
    times_floor: float
    least: float
    most: float
    peak_mib: float | None


def plain_pass(model: ConvE, loss: TracinLoss, batch: int) -> Callable[[torch.Tensor], object]:
    def work(triples: torch.Tensor) -> None:
        for part in torch.split(triples, batch):
            rows = query_rows(part, model.config.inverse)
            model.zero_grad(set_to_none=True)
            if loss.kind == "target":
                mean = torch.nn.functional.softplus(-model.score_triples(rows)).mean()
                torch.autograd.backward(mean)
                continue
            labels = torch.zeros(len(rows), model.config.num_entities)
            labels[torch.arange(len(rows)), rows[:, 2]] = 1
            scores = model(rows[:, 0], rows[:, 1])
            torch.autograd.backward(torch.nn.functional.binary_cross_entropy_with_logits(scores, labels))

    return work


def factored(
    model: ConvE, loss: TracinLoss, tests: torch.Tensor, settings: Settings
) -> Callable[[torch.Tensor], object]:
    engine = Engine(Point(model, 1.0), loss, settings)
    kept = engine.keep(tests)

    def work(triples: torch.Tensor) -> None:
        for part in torch.split(triples, settings.block):
            engine.scores(kept, part)

    return work


def one_by_one(
    parameters: list[torch.nn.Parameter],
    scores_of: Callable[[torch.Tensor], torch.Tensor],
    loss: TracinLoss,
    tests: torch.Tensor,
) -> Callable[[torch.Tensor], object]:
    """One backward pass a triple, the gradients of the tests kept."""

    def gradient(row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        value = sequential.row_loss(scores_of(row), row, loss)
        grads = torch.autograd.grad(value, parameters, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    kept = [gradient(row) for row in query_rows(tests, True)]

    def work(triples: torch.Tensor) -> torch.Tensor:
        found = torch.empty(len(kept), len(triples))
        for j, row in enumerate(query_rows(triples, True)):
            own = gradient(row)
            for i, other in enumerate(kept):
                found[i, j] = sum(float((a * b).sum()) for a, b in zip(own, other, strict=True))
        return found

    return work


def repeated(
    parameters: list[torch.nn.Parameter],
    scores_of: Callable[[torch.Tensor], torch.Tensor],
    loss: TracinLoss,
    tests: torch.Tensor,
) -> Callable[[torch.Tensor], object]:
    """The same loop run anew for every test triple, as scripts do that take one at a time."""
    alone = [one_by_one(parameters, scores_of, loss, tests[i : i + 1]) for i in range(len(tests))]

    def work(triples: torch.Tensor) -> None:
        for loop in alone:
            loop(triples)

    return work


def vectorised(model: ConvE, loss: TracinLoss, tests: torch.Tensor) -> Callable[[torch.Tensor], object]:
    """torch.func: per-sample gradients as tensors, eight triples at once."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def value(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = functional_call(model, weights, (row[:1], row[1:2]))[0]
        at_tail = scores.gather(0, row[2:])[0]
        if loss.kind == "target":
            return torch.nn.functional.softplus(-at_tail)
        mean: torch.Tensor = (torch.nn.functional.softplus(scores).sum() - at_tail) / len(scores)
        return mean

    gradients = vmap(grad(value), in_dims=(None, 0))

    def flat(rows: torch.Tensor) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = gradients(parameters, rows)
        return {name: g.flatten(1) for name, g in found.items()}

    parts: tuple[torch.Tensor, ...] = torch.split(query_rows(tests, True), 8)
    kept = [flat(part) for part in parts]

    def work(triples: torch.Tensor) -> torch.Tensor:
        columns = []
        for part in torch.split(query_rows(triples, True), 8):
            own = flat(part)
            tiles = [torch.stack([other[name] @ own[name].t() for name in own]).sum(0) for other in kept]
            columns.append(torch.cat(tiles))
        return torch.cat(columns, dim=1)

    return work


def pykeen_model(graph: Graph, model: ConvE) -> Any:
    from pykeen.losses import BCEWithLogitsLoss
    from pykeen.models import ConvE as Theirs

    c = model.config
    theirs = Theirs(
        triples_factory=factory(graph),
        embedding_dim=c.embedding_dim,
        embedding_height=c.height,
        embedding_width=c.width,
        loss=BCEWithLogitsLoss(),
    )
    theirs.load_state_dict(to_pykeen_state(model))
    return theirs.eval()


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
        ratios = [a / b for a, b in zip(times[c.name], times[contenders[0].name], strict=True)]
        middle, best = statistics.median(ratios), 1e3 * min(times[c.name])
        rows.append(Row(loss, tests, c.name, best, middle, min(ratios), max(ratios), c.peak_mib))
    return rows


def model_of(graph: Graph, dim: int) -> ConvE:
    """Untrained: what a score costs does not depend on the weights."""
    torch.manual_seed(0)
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=dim)
    if dim == 32:  # the group's own shape
        config = replace(config, embedding_height=8, embedding_width=4)
    return ConvE(config).eval()


def compare(graph: Graph, name: str, tests: int, args: argparse.Namespace) -> list[Row]:
    loss, model = LOSSES[name], model_of(graph, args.dim)
    # A stretch of the training set as `scan` streams it: by head and relation.
    order = (graph.train[:, 0] * graph.num_relations + graph.train[:, 1]).argsort(stable=True)
    first = len(order) // 3
    triples = graph.train[order[first : first + args.triples]]
    asked = graph.train[torch.randperm(len(graph.train))[:tests]]
    plain = Settings(block=args.block)
    contenders = [
        Contender("floor: plain forward + backward", plain_pass(model, loss, args.block), len(triples))
    ]
    for what, settings in (("", plain), (", Gram in bf16", replace(plain, gram_dtype=torch.bfloat16))):
        if what and not args.gram_bf16:
            continue
        peak = peak_live_bytes(lambda s=settings: factored(model, loss, asked, s)(triples))  # type: ignore[misc]
        ours = factored(model, loss, asked, settings)
        contenders.append(Contender(f"kgops, factored{what}", ours, len(triples), peak / MIB))
    if not args.ours_only:
        contenders += others(graph, model, loss, asked, args)
    return measure(contenders, triples, args.rounds, name, tests)


def others(
    graph: Graph, model: ConvE, loss: TracinLoss, asked: torch.Tensor, args: argparse.Namespace
) -> list[Contender]:
    few = 2 if args.quick or len(asked) > 1 else 4
    theirs, native = pykeen_model(graph, model), list(model.parameters())

    def far(row: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = theirs.score_t(row[None, :2])[0]
        return scores

    mine = one_by_one(native, lambda r: model(r[:1], r[1:2])[0], loss, asked)
    pykeens = list(theirs.parameters())
    found = [
        Contender("sequential, native model, tests cached", mine, few),
        Contender("sequential, PyKEEN's model, tests cached", one_by_one(pykeens, far, loss, asked), few),
        Contender("torch.func vmap(grad), native model", vectorised(model, loss, asked), 8),
    ]
    if len(asked) > 1:
        again = repeated(pykeens, far, loss, asked)
        found.append(Contender("sequential, PyKEEN's model, for each test", again, 1))
    for library in ("captum", "dattri"):
        if not installed(library):
            print(f"n/a: {library} is not installed (`pip install 'kgops[bench]'`)", file=sys.stderr)
    if installed("captum"):
        found.append(
            Contender("captum TracInCP, native model", captum_scores(model, loss, asked), 17, marginal=True)
        )
    if installed("dattri"):
        whole = dattri_scores(model, loss, asked, projected=False)
        found.append(Contender("dattri TracIn, not projected, native", whole, 9, marginal=True))
        if len(asked) == 1:
            short = dattri_scores(model, loss, asked, projected=True)
            found.append(Contender("dattri TracIn as it ships, native", short, 9, marginal=True))
    return found


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
            f"{r.least:7.3f} {r.most:7.3f} {r.times_floor / ours:8.1f} {peak:>6}"
        )
    return "\n".join(lines)


def as_lines(rows: list[Row]) -> list[Line]:
    return [
        Line(
            "tracin_times_floor",
            f"{r.name}, {r.loss}, {r.tests} tests",
            "x",
            (r.least, r.times_floor, r.most),
        )
        for r in rows
        if r.times_floor != 1
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.bench.tracin", description=__doc__)
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
    parser.add_argument("--full", type=float, metavar="SHARE", help="this share of all tests x all training")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--store", action="store_true", help="keep the figures in the database")
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
        lines = curves(graph, model) if args.curves else []
        lines += [
            line for name in args.losses for line in filtered_batch(graph, model, name, LOSSES[name])
        ] * args.batch
        lines += whole(graph, model, args.full) if args.full else []
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
        store(lines, f"kgops bench tracin {' '.join(argv or sys.argv[1:])}")
    return 0


if __name__ == "__main__":
    run(main)
