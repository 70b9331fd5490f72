"""Accuracy of the planner's roofline model in ordering settings by speed, on this machine's CPU or GPU.

    python -m benchmarks.speed_order [--settings 24] [--seed 1] [--store]

Random trainings are timed step by step and compared with what was modelled: Kendall's tau over all pairs, the spread of
measured / modelled, and the time lost if the model chooses the options of a training.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby

import torch

from benchmarks.entry import run
from benchmarks.measure import Line, quietness, store, table
from kgops.graphs.triples import Graph
from kgops.jobs.job import Job, read_job
from kgops.models.conve import ConvE
from kgops.planning.graph_counts import Counts, count_triples
from kgops.planning.speed import rates_of, seconds
from kgops.planning.targets import Target, cpu_target, gpus_here
from kgops.planning.train_sizes import TrainShape, train_shape
from kgops.training.batches import Batches
from kgops.training.optimizers import build_optimizer
from kgops.training.settings import TrainSettings
from kgops.training.step import TrainStep
from kgops.trials import peers
from kgops.trials.train_step import synthetic

__all__ = ["kendall_tau", "main"]

COMMAND = "python -m benchmarks.speed_order"
ROUNDS = 4
OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {"entity_chunk": 512},
    {"entity_chunk": 8192},
    {"gradient_checkpointing": True},
)


@dataclass(frozen=True)
class Timed:
    training: int  # settings of one training differ only in options
    options: str
    modelled_s: float
    measured_s: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--settings", type=int, default=24, help="trainings, each with four sets of options")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", action="store_true", help="keep the values in the home's database")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # the model is of one core
    here = gpus_here() if torch.cuda.is_available() else []
    timed = list(_timed(here[0] if here else cpu_target(), args.settings, args.seed))
    lines = summary(timed)
    command = f"{COMMAND} --settings {args.settings} --seed {args.seed}"
    print(f"{here[0].title if here else 'one core of the CPU'}; {quietness()}")
    print(*table(lines), sep="\n")
    if args.store:
        store(lines, command)
    return 0


def summary(timed: list[Timed]) -> list[Line]:
    tau = kendall_tau([(one.modelled_s, one.measured_s) for one in timed])
    off = [one.measured_s / one.modelled_s for one in timed]
    regrets = [_regret(list(group)) for _, group in groupby(timed, lambda one: one.training)]
    return [
        Line("speed_tau", f"Kendall's tau of modelled and measured steps, {len(timed)} settings", "", (tau,)),
        Line("speed_off", "a step, measured over modelled", "×", tuple(off)),
        Line("speed_regret", "options chosen by the model, over the fastest of four", "×", tuple(regrets)),
    ]


def kendall_tau(pairs: Sequence[tuple[float, float]]) -> float:
    """Kendall's tau; 1 is perfect order."""
    signs = [_sign(a[0] - b[0]) * _sign(a[1] - b[1]) for a, b in combinations(pairs, 2)]
    return sum(signs) / len(signs)


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)


def _regret(group: list[Timed]) -> float:
    """The planner's rule: leaves the first options only for a gain of 5 %."""
    fastest = min(group, key=lambda one: one.modelled_s)
    chosen = fastest if fastest.modelled_s < 0.95 * group[0].modelled_s else group[0]
    return chosen.measured_s / min(one.measured_s for one in group)


def _timed(target: Target, settings: int, seed: int) -> Iterator[Timed]:
    draw = random.Random(seed)
    for training in range(settings):
        graph = synthetic(draw.choice((1000, 4000, 15000, 40000)))
        counts = count_triples(
            [tuple(row) for row in graph.train.tolist()], [], [], graph.num_entities, graph.num_relations
        )
        settings_table = {
            "dataset": "nations",
            "embedding_dim": draw.choice((32, 100, 200)),
            "output_channels": draw.choice((8, 32)),
        }
        batch = draw.choice((64, 256, 1024))
        jobs = [
            read_job(
                {"workload": "train", "train": settings_table, "options": {"batch_size": batch, **options}},
                COMMAND,
            )
            for options in OPTIONS
        ]
        for job, measured in zip(jobs, _steps(jobs, graph, counts, target), strict=True):
            shape = _shape(job, counts, target)
            epoch = seconds(shape, rates_of(target))
            steps = max(1, -(-shape.queries.queries // shape.batch_size))
            yield Timed(training, str(job.options), epoch / steps, measured)


def _shape(job: Job, counts: Counts, target: Target) -> TrainShape:
    shape = train_shape(job, counts, target.facts)
    assert shape is not None
    return shape


def _steps(jobs: list[Job], graph: Graph, counts: Counts, target: Target) -> list[float]:
    """Best seconds of a step of each setting, over interleaved rounds."""
    takers = [_taker(_shape(job, counts, target), graph) for job in jobs]
    best = [float("inf")] * len(jobs)
    for _ in range(ROUNDS):
        for i, take in enumerate(takers):
            best[i] = min(best[i], next(take))
    return best


def _taker(shape: TrainShape, graph: Graph) -> Iterator[float]:
    device = torch.device("cuda" if shape.on_gpu else "cpu")
    settings = TrainSettings(batch_size=shape.batch_size, entity_chunk=shape.chunk)
    batches = Batches(
        graph.train.to(device), inverse=True, one_positive=False, batch_size=shape.batch_size, seed=0
    )
    model = ConvE(shape.model).to(device).train()
    loss = settings.build_loss(torch.float32, settings.chunk_for(device))
    step = TrainStep(model, loss, build_optimizer("adam", model, 1e-3), recompute=shape.checkpointing)
    source = peers.forever(batches.epoch)
    step(next(source))
    # One thread's own time on a CPU that others use too; a GPU's is known to the process that waits.
    clock = time.perf_counter if shape.on_gpu else time.process_time
    while True:
        begun = clock()
        step(next(source), want_value=False)
        if shape.on_gpu:
            torch.cuda.synchronize()
        yield clock() - begun


if __name__ == "__main__":
    run(main)
