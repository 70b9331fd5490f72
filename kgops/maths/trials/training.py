"""Benchmark of ConvE training: the group's script with each of its options, and kgops' step.

    python -m kgops.maths.trials.training --entities 5000 --round 1
    python -m kgops.maths.trials.training --losses --entities 10000 --batch-size 256 --steps 1 --round 1

The group's loop is rewritten from its description: PyKEEN's ConvE, one dense row of labels per query, Adam. PyKEEN's
scores are patched to a matrix product, as before release 1.8: as shipped it needs batch x entities x dim numbers.

`--losses` compares the loss over all entities instead: with dense labels, the group's efficient loss, and kgops'. All
train kgops' ConvE on equal batches; the first two by autograd, kgops' by its training step. Memory of a step is the
peak of torch's allocator above weights, gradients and optimizer.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.train.batches import Batch, Batches
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings, cpu_has_bf16
from kgops.maths.train.step import TrainStep
from kgops.maths.trials import train_step
from kgops.maths.trials.interleaved import read_arguments, run_trials
from kgops.maths.trials.train_step import synthetic
from kgops.maths.trials.variants import (
    LIVE_OF_A_STEP,
    Trial,
    TrialResult,
    Variant,
    device,
    leave_out_compile,
    needs_a_gpu,
    run,
)
from kgops.workloads.train.models import ConvEConfig

WARM_UP = 3  # steps
Loss = Callable[[ConvE, Batch], torch.Tensor]


class PykeenTraining(train_step.Wrapped):
    """The group's training step: PyKEEN's ConvE, dense labels, Adam. With `scaled`, a gradient scaler."""

    def __init__(
        self, graph: Graph, config: ConvEConfig, batch_size: int, on: torch.device, *, scaled: bool = False
    ) -> None:
        from pykeen.losses import BCEWithLogitsLoss
        from pykeen.models import ConvE as PykeenConvE

        self.model: Any = PykeenConvE(
            triples_factory=train_step.factory(graph),
            embedding_dim=config.embedding_dim,
            loss=BCEWithLogitsLoss(),
            random_seed=0,
        )
        self.model.to(on).train()
        self.scaler = torch.amp.GradScaler(on.type, enabled=scaled)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.entities = graph.num_entities
        self.source = few_batches(graph, batch_size, on)
        self.losses: list[float] = []

    def step(self, autocast: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        batch = next(self.source)
        labels = torch.zeros(len(batch.heads), self.entities, device=batch.heads.device)
        labels[batch.positives.rows, batch.positives.entities] = 1
        self.optimizer.zero_grad()
        with train_step.matrix_product(), autocast():
            scores = self.model.score_t(torch.stack([batch.heads, batch.relations], dim=1))
            loss = F.binary_cross_entropy_with_logits(scores.float(), labels)
        torch.autograd.backward(self.scaler.scale(loss))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.losses.append(float(loss.detach()))
        self.clean_up(len(self.losses))


class KgopsTraining:
    """kgops' step on equal batches, built with its first step: it allocates gradients when built, the others in
    their first step."""

    def __init__(self, graph: Graph, config: ConvEConfig, batch_size: int, on: torch.device) -> None:
        self.settings = TrainSettings(batch_size=batch_size, label_smoothing=0.0)
        self.device = on
        torch.manual_seed(0)
        self.model = ConvE(config).to(on).train()
        self.source = few_batches(graph, batch_size, on)
        self.loss = 0.0

    @cached_property
    def step(self) -> TrainStep:
        loss = self.settings.build_loss(torch.float32, self.settings.chunk_for(self.device))
        return TrainStep(self.model, loss, build_optimizer("adam", self.model, 1e-3))

    def steps(self, count: int) -> None:
        for _ in range(count):
            value = self.step(next(self.source))
            assert value is not None
            self.loss = float(value)


class AutogradTraining:
    """kgops' ConvE, trained by autograd with another loss."""

    def __init__(
        self, graph: Graph, config: ConvEConfig, batch_size: int, on: torch.device, loss_of: Loss
    ) -> None:
        torch.manual_seed(0)
        self.model = ConvE(config).to(on).train()
        self.source = few_batches(graph, batch_size, on)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.loss_of, self.loss = loss_of, 0.0

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.optimizer.zero_grad()
            value = self.loss_of(self.model, next(self.source))
            torch.autograd.backward(value)
            self.optimizer.step()
            self.loss = float(value.detach())


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


def few_batches(graph: Graph, batch_size: int, on: torch.device | str = "cpu") -> Iterator[Batch]:
    batches = Batches(graph.train, inverse=True, one_positive=False, batch_size=batch_size, seed=0, device=on)
    return itertools.cycle(list(itertools.islice(batches.epoch(0), 8)))


def variants(
    graph: Graph, config: ConvEConfig, batch: int, steps: int, compiling: bool
) -> dict[str, Variant]:
    """The documents measure FP16 at twice the batch, and with checkpointing at four times: seconds are per sample."""
    half = partial(torch.autocast, device().type, torch.float16)

    def pykeen_trial(
        trial: Trial,
        *prepare: Callable[[PykeenTraining], None],
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
        times: int = 1,
        remark: str | None = None,
    ) -> TrialResult:
        loop = PykeenTraining(graph, config, times * batch, device(), scaled=autocast is half)
        for change in prepare:
            change(loop)

        def work(count: int) -> None:
            for _ in range(count):
                loop.step(autocast)

        measured = trial.measure(lambda _: work(steps), lambda: work(WARM_UP))
        metrics = {"loss": loop.losses[-1]} if times == 1 else {}
        return TrialResult(measured.each(steps * times * batch), measured.resident_mib, metrics, remark)

    def fp16(trial: Trial, *prepare: Callable[[PykeenTraining], None], times: int = 1) -> TrialResult:
        needs_a_gpu(train_step.MIXED)
        return pykeen_trial(trial, *prepare, autocast=half, times=times)

    def bf16(trial: Trial) -> TrialResult:
        emulated = device().type == "cpu" and not cpu_has_bf16()
        remark = "this CPU has no bf16 instructions: they are emulated" if emulated else None
        low = partial(torch.autocast, device().type, torch.bfloat16)
        return pykeen_trial(trial, autocast=low, remark=remark)

    def cleanup(trial: Trial) -> TrialResult:
        needs_a_gpu("it gives back cached GPU memory")
        return pykeen_trial(trial, PykeenTraining.with_cleanup)

    def compile_(trial: Trial) -> TrialResult:
        if not compiling:
            leave_out_compile()
        return pykeen_trial(trial, PykeenTraining.compiled, remark=train_step.COMPILED)

    def kgops_trial(trial: Trial) -> TrialResult:
        loop = KgopsTraining(graph, config, batch, device())
        measured = trial.measure(lambda _: loop.steps(steps), lambda: loop.steps(WARM_UP))
        remark = "from initial weights of its own: its loss is not compared"
        return TrialResult(measured.each(steps * batch), measured.resident_mib, {}, remark)

    checkpointing = PykeenTraining.with_checkpointing
    return {
        "fp32": pykeen_trial,
        "fp32 again": pykeen_trial,
        "+ cleanup": cleanup,
        "+ fp16": fp16,
        "+ bf16": bf16,
        "+ checkpointing": lambda trial: pykeen_trial(trial, checkpointing),
        "+ fp16 + checkpointing": lambda trial: fp16(trial, checkpointing),
        "+ compile": compile_,
        "fp16, twice the batch": lambda trial: fp16(trial, times=2),
        "fp16, checkpointing, four times the batch": lambda trial: fp16(trial, checkpointing, times=4),
        "kgops": kgops_trial,
    }


def losses(
    graph: Graph, config: ConvEConfig, batch: int, steps: int, *, labels_only: bool
) -> dict[str, Variant]:
    def trial_of(loss: Loss | None, trial: Trial) -> TrialResult:
        """`loss` by autograd; None: kgops' step."""
        own = (graph, config, batch, device())
        loop = KgopsTraining(*own) if loss is None else AutogradTraining(*own, loss)
        labels_mib = _labels_mib(loss is dense, next(loop.source), config.num_entities)
        measured = trial.measure(
            lambda _: loop.steps(steps), lambda: loop.steps(1), apart_bytes=train_step.state_bytes(loop.model)
        )
        metrics = {"loss": loop.loss, "labels_mib": labels_mib}
        return TrialResult(measured.each(steps), measured.resident_mib, metrics, memory_of=LIVE_OF_A_STEP)

    by_autograd: dict[str, Variant] = {
        "dense labels": partial(trial_of, dense),
        "their efficient loss": partial(trial_of, efficient),
    }
    if labels_only:
        return by_autograd
    return {**by_autograd, "dense labels again": partial(trial_of, dense), "kgops": partial(trial_of, None)}


def _labels_mib(is_dense: bool, batch: Batch, entities: int) -> float:
    """Size of the labels: a number for each entity, or two indices for each true answer."""
    if is_dense:
        return 4 * len(batch) * entities / 2**20
    index_tensors = (batch.positives.rows, batch.positives.entities)
    return sum(tensor.numel() * tensor.element_size() for tensor in index_tensors) / 2**20


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.maths.trials.training", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with train.txt; default: a synthetic graph")
    parser.add_argument("--entities", type=int, default=14_541, help="entities of the synthetic graph")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4, help="steps in each repetition")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a minute")
    parser.add_argument("--losses", action="store_true", help="compare losses over all entities instead")
    parser.add_argument("--labels-only", action="store_true", help="of losses, only those with labels")
    args = read_arguments(parser, argv)
    graph = read_graph(args.data / "train.txt") if args.data else synthetic(args.entities)
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=args.dim)
    if args.losses:
        chosen = losses(graph, config, args.batch_size, args.steps, labels_only=args.labels_only)
    else:
        # PyKEEN imports most of itself here, once, before any fork. No step is run: variants could reuse freed memory.
        PykeenTraining(graph, config, args.batch_size, torch.device("cpu"))
        chosen = variants(graph, config, args.batch_size, args.steps, args.compile)
    run_trials(chosen, args.round, trials=args.trials, repetitions=args.repetitions)
    return 0


if __name__ == "__main__":
    run(main)
