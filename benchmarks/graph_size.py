"""Memory and time of a training step, an evaluation and a TracIn run against the number of entities.

    python -m benchmarks.graph_size [--entities 10000,100000,1000000] [--dim 200] [--batch-size 256] [--store]

Graphs are made: five triples an entity, degrees by a power law, 50 relations. Each size runs in a new process. Memory
is the peak of a stage above the process before the model was made. An exponent between two sizes is 1 where a cost is
in proportion to the entities and 0 where they do not matter. The last lines say what Wikidata5M would take (4,594,149
entities, 20,614,279 training triples; Wang et al. 2021), by the line through the two largest sizes; it was not run.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import subprocess
import sys
from itertools import pairwise

import torch

from benchmarks.entry import run
from benchmarks.measure import PYTHON, Line, forget_peak, peak_mib, quietness, seconds, store, table
from kgops.errors import KgopsError
from kgops.graphs.triples import Graph
from kgops.graphs.vocabulary import Vocabulary
from kgops.jobs.chunk_sizes import loss_chunk
from kgops.models.conve import ConvE, ConvEConfig
from kgops.tracin.blocks import TracinCheckpoint
from kgops.tracin.loss import ONE_TO_N
from kgops.tracin.scan import TopTriples, scan
from kgops.training.batches import Batches
from kgops.training.evaluate import Evaluator
from kgops.training.losses import EntityLoss
from kgops.training.optimizers import build_optimizer
from kgops.training.step import TrainStep

__all__ = ["made_graph", "main", "measure"]

COMMAND = "python -m benchmarks.graph_size"
RELATIONS, TRIPLES_EACH = 50, 5
EVALUATED, TESTS, ROWS = 256, 100, (64, 512)
WIKIDATA5M = 4_594_149, 20_614_279  # entities, training triples

# Metric → what it says, unit.
STAGES = {
    "step_s": ("a training step", "s"),
    "step_mib": ("a training step, with weights, gradients and Adam", "MiB"),
    "evaluation_s": ("evaluation, 1,000 ranks", "s"),
    "evaluation_mib": ("evaluation, above the training", "MiB"),
    "tracin_s": (f"TracIn one-to-n, {TESTS} tests, 1,000 training triples", "s"),
    "tracin_mib": ("TracIn, with the weights", "MiB"),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entities", default="10000,30000,100000,300000,1000000")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # of the sizes, in this process
    args = parser.parse_args(argv)
    if args.one:
        print(json.dumps(measure(args.one, args.dim, args.batch_size)))
        return 0
    print(quietness(), flush=True)
    sizes = sorted(int(size) for size in args.entities.split(","))
    costs = {size: _in_a_process(size, args.dim, args.batch_size) for size in sizes}
    lines = [*_measured(costs), *_exponents(costs), *_wikidata5m(costs, args.batch_size)]
    print(*table(lines), sep="\n")
    if args.store:
        store(lines, shlex.join([*COMMAND.split(), *(sys.argv[1:] if argv is None else argv)]))
    return 0


def _in_a_process(size: int, dim: int, batch_size: int) -> dict[str, float]:
    given = ["--one", str(size), "--dim", str(dim), "--batch-size", str(batch_size)]
    done = subprocess.run([PYTHON, "-m", "benchmarks.graph_size", *given], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise KgopsError(f"{size:,} entities ended with {done.returncode}")
    costs: dict[str, float] = json.loads(done.stdout)
    print(f"{size:,} entities: {costs}", file=sys.stderr, flush=True)
    return costs


def made_graph(entities: int) -> Graph:
    """The k-th entity has about k^(-1/2) times the degree of the first; every entity is a head or a tail."""
    draw = torch.Generator().manual_seed(entities)
    count = TRIPLES_EACH * entities

    def ends() -> torch.Tensor:
        return (entities * torch.rand(count, generator=draw, dtype=torch.float64) ** 2).long()

    heads, tails = ends(), ends()
    heads[:entities] = torch.arange(entities)
    relations = torch.randint(RELATIONS, (count,), generator=draw)
    train = torch.stack([heads, relations, tails], dim=1)
    entity_names, relation_names = (Vocabulary.of(map(str, range(n))) for n in (entities, RELATIONS))
    return Graph(train, train[:0], train[:EVALUATED], entity_names, relation_names)


def measure(entities: int, dim: int, batch_size: int) -> dict[str, float]:
    """Seconds and peak MiB of each stage, by this process' cores."""
    graph = made_graph(entities)
    torch.manual_seed(0)
    before = peak_mib()
    model = ConvE(ConvEConfig(entities, RELATIONS, embedding_dim=dim))
    costs = _training(model, graph, batch_size)
    costs["step_mib"] = peak_mib() - before
    trained = peak_mib()
    evaluator = Evaluator(graph.train, entities)
    ranks = 2 * EVALUATED
    costs["evaluation_s"] = 1000 / ranks * seconds(lambda: evaluator(model, graph.test))
    costs["evaluation_mib"] = max(0.0, peak_mib() - trained)
    for parameter in model.parameters():
        parameter.grad = None
    forget_peak()
    small, large = (seconds(lambda rows=rows: _trace(model, graph, rows), 1) for rows in ROWS)  # type: ignore[misc]  # mypy infers no lambda with a default
    costs["tracin_s"] = 1000 / (ROWS[1] - ROWS[0]) * (large - small)
    costs["tracin_mib"] = peak_mib() - before
    return costs


def _training(model: ConvE, graph: Graph, batch_size: int) -> dict[str, float]:
    batches = Batches(graph.train, inverse=True, one_positive=True, batch_size=batch_size, seed=0)
    loss = EntityLoss("bce", 0.1, loss_chunk(None, batch_size, "cpu"))
    step = TrainStep(model.train(), loss, build_optimizer("adam", model, 1e-3))
    coming = batches.epoch(1)
    step(next(coming))  # allocates gradients and moments
    return {"step_s": seconds(lambda: step(next(coming), want_value=False))}


def _trace(model: ConvE, graph: Graph, rows: int) -> None:
    tests = graph.train[-TESTS:]
    scan([TracinCheckpoint(model.eval(), 1.0)], ONE_TO_N, graph.train[:rows], tests, TopTriples(10))


def _measured(costs: dict[int, dict[str, float]]) -> list[Line]:
    return [
        Line(f"graph_size_{name}", f"{size:,} entities: {what}", unit, (costs[size][name],))
        for name, (what, unit) in STAGES.items()
        for size in costs
    ]


def _exponents(costs: dict[int, dict[str, float]]) -> list[Line]:
    """How a cost grows from each size to the next."""
    lines = []
    for name, (what, _) in STAGES.items():
        for small, large in pairwise(costs):
            first, second = costs[small][name], costs[large][name]
            if first <= 0 or second <= 0:
                continue
            exponent = math.log(second / first) / math.log(large / small)
            subject = f"{what}: exponent from {small:,} to {large:,} entities"
            lines.append(Line(f"graph_size_{name}_exponent", subject, "", (exponent,)))
    return lines


def _wikidata5m(costs: dict[int, dict[str, float]], batch_size: int) -> list[Line]:
    if len(costs) < 2:
        return []
    entities, triples = WIKIDATA5M
    (small, before), (large, last) = list(costs.items())[-2:]

    def at(name: str) -> float:
        slope = (last[name] - before[name]) / (large - small)
        return last[name] + slope * (entities - large)

    steps = math.ceil(2 * triples / batch_size)
    epoch = "Wikidata5M, by the line through the two largest: an epoch of 1vsAll with inverse relations"
    return [
        Line("graph_size_wikidata5m_h", epoch, "h", (steps * at("step_s") / 3600,)),
        Line("graph_size_wikidata5m_mib", "Wikidata5M, by that line: memory of it", "MiB", (at("step_mib"),)),
    ]


if __name__ == "__main__":
    run(main)
