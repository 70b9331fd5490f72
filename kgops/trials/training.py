"""Training ConvE as the group's script does, with each of its options, beside kgops' step.

    python -m kgops.trials.training --entities 5000 --round 1

Their loop is written here from its description: PyKEEN's ConvE, one dense row of labels a query, Adam. PyKEEN's
scores are a matrix product here, as they were before release 1.8: as it ships it needs batch x entities x dim numbers.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kgops.graphs.triples import Graph, read_graph
from kgops.models.conve import ConvE, ConvEConfig
from kgops.training.batches import Batch, Batches
from kgops.training.optimizers import build_optimizer
from kgops.training.precision import cpu_has_bf16
from kgops.training.settings import TrainSettings
from kgops.training.step import TrainStep
from kgops.trials import peers
from kgops.trials.entry import run
from kgops.trials.interleaved import take_turns
from kgops.trials.train_step import synthetic
from kgops.trials.variants import Done, Turn, Untestable, Way, needs_a_gpu

__all__ = ["main"]

WARM_UP = 3  # steps
MIXED = "their mixed precision and its gradient scaler are CUDA's"


class Theirs:
    """One model and one optimizer, and a step with the options that are asked for."""

    def __init__(self, graph: Graph, config: ConvEConfig, batch_size: int) -> None:
        from pykeen.losses import BCEWithLogitsLoss
        from pykeen.models import ConvE as PykeenConvE

        self.model: Any = PykeenConvE(
            triples_factory=peers.factory(graph),
            embedding_dim=config.embedding_dim,
            loss=BCEWithLogitsLoss(),
            random_seed=0,
        )
        self.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.entities = graph.num_entities
        self.source = few_batches(graph, batch_size)
        self.losses: list[float] = []

    def step(self, autocast: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        batch = next(self.source)
        labels = torch.zeros(len(batch.heads), self.entities)
        labels[batch.positives.rows, batch.positives.entities] = 1
        self.optimizer.zero_grad()
        with peers.matrix_product(), autocast():
            scores = self.model.score_t(torch.stack([batch.heads, batch.relations], dim=1))
            loss = F.binary_cross_entropy_with_logits(scores.float(), labels)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.losses.append(float(loss.detach()))

    def with_checkpointing(self) -> None:
        """The convolution's activations are computed again in the backward pass."""
        part = self.model.interaction.hr2d
        plain = part.forward
        part.forward = lambda x: checkpoint(plain, x, use_reentrant=False)

    def compiled(self) -> None:
        self.model.interaction.hr2d = torch.compile(self.model.interaction.hr2d)
        self.model.interaction.hr1d = torch.compile(self.model.interaction.hr1d)


class Ours:
    """kgops' step, on the same batches. It has its gradients from when it is made, the others from their first step: so
    it is made with its first."""

    def __init__(self, graph: Graph, config: ConvEConfig, batch_size: int) -> None:
        self.settings = TrainSettings(batch_size=batch_size, label_smoothing=0.0)
        torch.manual_seed(0)
        self.model = ConvE(config).train()
        self.source = few_batches(graph, batch_size)
        self.last = float("nan")

    @cached_property
    def step(self) -> TrainStep:
        loss = self.settings.build_loss(torch.float32, self.settings.chunk_for(torch.device("cpu")))
        return TrainStep(self.model, loss, build_optimizer("adam", self.model, 1e-3))

    def steps(self, count: int) -> None:
        for _ in range(count):
            value = self.step(next(self.source))
            assert value is not None
            self.last = float(value)


def few_batches(graph: Graph, batch_size: int) -> Iterator[Batch]:
    batches = Batches(graph.train, inverse=True, one_positive=False, batch_size=batch_size, seed=0)
    return itertools.cycle(list(itertools.islice(batches.epoch(0), 8)))


def ways(graph: Graph, config: ConvEConfig, batch: int, steps: int, compiling: bool) -> dict[str, Way]:
    def theirs(
        turn: Turn,
        prepare: Callable[[Theirs], None] = lambda _: None,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
        remark: str | None = None,
    ) -> Done:
        made = Theirs(graph, config, batch)
        prepare(made)

        def work(count: int) -> None:
            for _ in range(count):
                made.step(autocast)

        taken = turn.take(lambda _: work(steps), lambda: work(WARM_UP))
        return Done(taken.each(steps), taken.resident_mib, {"loss": made.losses[-1]}, remark)

    def bf16(turn: Turn) -> Done:
        emulated = None if cpu_has_bf16() else "this CPU has no bf16 instructions: they are emulated"
        return theirs(turn, autocast=lambda: torch.autocast("cpu", torch.bfloat16), remark=emulated)

    def compile_(turn: Turn) -> Done:
        if not compiling:
            raise Untestable("--quick leaves it out: compiling takes longer than all of it")
        return theirs(
            turn,
            Theirs.compiled,
            remark="the two stacks of the model, on the CPU; compiling is neither timed nor weighed",
        )

    def ours(turn: Turn) -> Done:
        made = Ours(graph, config, batch)
        taken = turn.take(lambda _: made.steps(steps), lambda: made.steps(WARM_UP))
        return Done(taken.each(steps), taken.resident_mib, {"loss": made.last})

    return {
        "fp32": theirs,
        "fp32 again": theirs,
        "+ fp16": lambda _: needs_a_gpu(MIXED),
        "+ bf16": bf16,
        "+ checkpointing": lambda turn: theirs(turn, Theirs.with_checkpointing),
        "+ fp16 + checkpointing": lambda _: needs_a_gpu(MIXED),
        "+ compile": compile_,
        "kgops": ours,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.trials.training", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with train.txt; otherwise a made graph")
    parser.add_argument("--entities", type=int, default=14_541, help="of the made graph")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4, help="of a part")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a minute")
    parser.add_argument("--turns", type=int, default=2, help="how often each way is taken")
    parser.add_argument("--parts", type=int, default=4, help="of a turn; ways take turns at parts")
    parser.add_argument("--round", type=int, default=0, help="which way begins")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # a child of a process that had threads would wait for them for ever
    graph = read_graph(args.data / "train.txt") if args.data else synthetic(args.entities)
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=args.dim)
    # PyKEEN loads the most of itself here: once, before any way begins. No step: what it freed would be theirs to use.
    Theirs(graph, config, args.batch_size)
    taken = ways(graph, config, args.batch_size, args.steps, args.compile)
    take_turns(taken, args.round, turns=args.turns, parts=args.parts)
    return 0


if __name__ == "__main__":
    run(main)
