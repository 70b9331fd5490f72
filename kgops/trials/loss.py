"""The loss over all entities: dense labels, the group's efficient loss, and kgops', in the tensors and in a whole step.

    python -m kgops.trials.loss --entities 10000 --batch-size 256 --round 1

All three train the same ConvE on the same batches; the first two by autograd, kgops' as it trains. A whole step is what
torch's CPU allocator had handed out at its peak above weights, gradients and optimizer, by its profiler's record.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch.nn import functional as F

from kgops.models.conve import ConvE, ConvEConfig
from kgops.training.batches import Batch
from kgops.training.optimizers import build_optimizer
from kgops.training.settings import TrainSettings
from kgops.training.step import TrainStep
from kgops.trials import peers
from kgops.trials.entry import run
from kgops.trials.interleaved import take_turns
from kgops.trials.train_step import synthetic
from kgops.trials.training import few_batches
from kgops.trials.variants import LIVE_OF_A_STEP, Done, Turn

__all__ = ["main"]

MIB = 2**20
Loss = Callable[[ConvE, Batch], torch.Tensor]


def dense(model: ConvE, batch: Batch) -> torch.Tensor:
    """A row of labels for each query, a column for each entity."""
    labels = torch.zeros(len(batch), model.config.num_entities)
    labels[batch.positives.rows, batch.positives.entities] = 1
    scores: torch.Tensor = model(batch.heads, batch.relations)
    return F.binary_cross_entropy_with_logits(scores, labels)


def efficient(model: ConvE, batch: Batch) -> torch.Tensor:
    """The group's: without labels, from the scores alone; autograd keeps the scores."""
    scores: torch.Tensor = model(batch.heads, batch.relations)
    true = scores[batch.positives.rows, batch.positives.entities]
    return (F.softplus(scores).sum() - true.sum()) / scores.numel()


def by_autograd(turn: Turn, loss: Loss, graph_entities: int, batch_size: int, steps: int) -> Done:
    graph = synthetic(graph_entities)
    torch.manual_seed(0)
    model = ConvE(ConvEConfig(graph.num_entities, graph.num_relations)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    source = few_batches(graph, batch_size)
    last = [0.0]

    def step() -> None:
        optimizer.zero_grad()
        value = loss(model, next(source))
        torch.autograd.backward(value)
        optimizer.step()
        last[0] = float(value.detach())

    return _done(turn, model, step, steps, last, _labels_mib(loss is dense, next(source), graph_entities))


def ours(turn: Turn, graph_entities: int, batch_size: int, steps: int) -> Done:
    graph = synthetic(graph_entities)
    torch.manual_seed(0)
    settings = TrainSettings(batch_size=batch_size, label_smoothing=0.0)
    model = ConvE(ConvEConfig(graph.num_entities, graph.num_relations)).train()
    loss = settings.build_loss(torch.float32, settings.chunk_for(torch.device("cpu")))
    source = few_batches(graph, batch_size)
    made: list[TrainStep] = []  # with its first step: it has its gradients from then on, as the others have
    last = [0.0]

    def step() -> None:
        if not made:
            made.append(TrainStep(model, loss, build_optimizer("adam", model, 1e-3)))
        value = made[0](next(source))
        assert value is not None
        last[0] = float(value)

    return _done(turn, model, step, steps, last, _labels_mib(False, next(source), graph_entities))


def _done(
    turn: Turn, model: ConvE, step: Callable[[], None], steps: int, last: list[float], labels_mib: float
) -> Done:
    def all_of_them() -> None:
        for _ in range(steps):
            step()

    taken = turn.take(lambda _: all_of_them(), step, apart_bytes=peers.state_bytes(model))
    metrics = {"loss": last[0], "labels_mib": labels_mib}
    return Done(taken.each(steps), taken.resident_mib, metrics, memory_of=LIVE_OF_A_STEP)


def _labels_mib(is_dense: bool, batch: Batch, entities: int) -> float:
    """What says which answers are true: a number for each entity, or two indices for each true answer."""
    if is_dense:
        return 4 * len(batch) * entities / MIB
    places = (batch.positives.rows, batch.positives.entities)
    return sum(one.numel() * one.element_size() for one in places) / MIB


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.trials.loss", description=__doc__)
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1, help="of a part")
    parser.add_argument("--turns", type=int, default=2, help="how often each way is taken")
    parser.add_argument("--parts", type=int, default=4, help="of a turn; ways take turns at parts")
    parser.add_argument("--round", type=int, default=0, help="which way begins")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # a child of a process that had threads would wait for them for ever
    size = (args.entities, args.batch_size, args.steps)
    take_turns(
        {
            "dense labels": lambda turn: by_autograd(turn, dense, *size),
            "dense labels again": lambda turn: by_autograd(turn, dense, *size),
            "their efficient loss": lambda turn: by_autograd(turn, efficient, *size),
            "kgops": lambda turn: ours(turn, *size),
        },
        args.round,
        turns=args.turns,
        parts=args.parts,
    )
    return 0


if __name__ == "__main__":
    run(main)
