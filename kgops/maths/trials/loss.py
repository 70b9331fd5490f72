"""Benchmark of the loss over all entities: dense labels, the group's efficient loss, and kgops'.

    python -m kgops.maths.trials.loss --entities 10000 --batch-size 256 --round 1

All three train one ConvE on equal batches; the first two by autograd, kgops' by its training step. Memory of a step is
the peak of torch's allocator above weights, gradients and optimizer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from kgops.maths.models.conve import ConvE
from kgops.maths.train.batches import Batch
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep
from kgops.maths.trials import peers
from kgops.maths.trials.interleaved import read_arguments, run_trials
from kgops.maths.trials.train_step import synthetic
from kgops.maths.trials.training import few_batches
from kgops.maths.trials.variants import LIVE_OF_A_STEP, Trial, TrialResult, Variant, device, run
from kgops.workloads.train.models import ConvEConfig

MIB = 2**20
Loss = Callable[[ConvE, Batch], torch.Tensor]


def dense(model: ConvE, batch: Batch) -> torch.Tensor:
    """A row of labels for each query, a column for each entity."""
    labels = torch.zeros(len(batch), model.config.num_entities, device=batch.heads.device)
    labels[batch.positives.rows, batch.positives.entities] = 1
    scores: torch.Tensor = model(batch.heads, batch.relations)
    return F.binary_cross_entropy_with_logits(scores, labels)


def efficient(model: ConvE, batch: Batch) -> torch.Tensor:
    """The group's loss: from the scores, without labels; autograd keeps the scores."""
    scores: torch.Tensor = model(batch.heads, batch.relations)
    true = scores[batch.positives.rows, batch.positives.entities]
    return (F.softplus(scores).sum() - true.sum()) / scores.numel()


@dataclass(frozen=True)
class Size:
    entities: int
    dim: int
    batch: int
    steps: int

    def model_and_batches(self) -> tuple[ConvE, Iterator[Batch]]:
        graph = synthetic(self.entities)
        torch.manual_seed(0)
        config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=self.dim)
        return ConvE(config).to(device()).train(), few_batches(graph, self.batch, device())


def autograd_trial(trial: Trial, loss: Loss, size: Size) -> TrialResult:
    model, source = size.model_and_batches()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    last_loss = [0.0]

    def step() -> None:
        optimizer.zero_grad()
        value = loss(model, next(source))
        torch.autograd.backward(value)
        optimizer.step()
        last_loss[0] = float(value.detach())

    labels_mib = _labels_mib(loss is dense, next(source), size.entities)
    return _measured_result(trial, model, step, size.steps, last_loss, labels_mib)


def kgops_trial(trial: Trial, size: Size) -> TrialResult:
    settings = TrainSettings(batch_size=size.batch, label_smoothing=0.0)
    model, source = size.model_and_batches()
    loss = settings.build_loss(torch.float32, settings.chunk_for(device()))
    # Built with the first step, since it allocates gradients, which the others allocate in their first step.
    steps_built: list[TrainStep] = []
    last_loss = [0.0]

    def step() -> None:
        if not steps_built:
            steps_built.append(TrainStep(model, loss, build_optimizer("adam", model, 1e-3)))
        value = steps_built[0](next(source))
        assert value is not None
        last_loss[0] = float(value)

    labels_mib = _labels_mib(False, next(source), size.entities)
    return _measured_result(trial, model, step, size.steps, last_loss, labels_mib)


def _measured_result(
    trial: Trial,
    model: ConvE,
    step: Callable[[], None],
    steps: int,
    last_loss: list[float],
    labels_mib: float,
) -> TrialResult:
    def all_steps() -> None:
        for _ in range(steps):
            step()

    measured = trial.measure(lambda _: all_steps(), step, apart_bytes=peers.state_bytes(model))
    metrics = {"loss": last_loss[0], "labels_mib": labels_mib}
    return TrialResult(measured.each(steps), measured.resident_mib, metrics, memory_of=LIVE_OF_A_STEP)


def _labels_mib(is_dense: bool, batch: Batch, entities: int) -> float:
    """Size of the labels: a number for each entity, or two indices for each true answer."""
    if is_dense:
        return 4 * len(batch) * entities / MIB
    index_tensors = (batch.positives.rows, batch.positives.entities)
    return sum(tensor.numel() * tensor.element_size() for tensor in index_tensors) / MIB


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.maths.trials.loss", description=__doc__)
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--labels-only", action="store_true", help="without the control and kgops' own step")
    parser.add_argument("--steps", type=int, default=1, help="steps in each repetition")
    args = read_arguments(parser, argv)
    size = Size(args.entities, args.dim, args.batch_size, args.steps)
    variants: dict[str, Variant] = {
        "dense labels": lambda trial: autograd_trial(trial, dense, size),
        "their efficient loss": lambda trial: autograd_trial(trial, efficient, size),
    }
    if not args.labels_only:
        variants |= {
            "dense labels again": lambda trial: autograd_trial(trial, dense, size),
            "kgops": lambda trial: kgops_trial(trial, size),
        }
    run_trials(variants, args.round, trials=args.trials, repetitions=args.repetitions)
    return 0


if __name__ == "__main__":
    run(main)
