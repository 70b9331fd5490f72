"""Methods to score training triples by TracIn: kgops', scripts', and the plain backward pass that all need."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kgops.models.conve import ConvE
from kgops.tracin.blocks import Engine, Settings, TracinCheckpoint
from kgops.tracin.loss import TracinLoss
from kgops.training.batches import query_rows
from kgops.trials.tracin_variants import one_by_one


def plain_pass(model: ConvE, loss: TracinLoss, batch: int) -> Callable[[torch.Tensor], object]:
    def work(triples: torch.Tensor) -> None:
        for block in torch.split(triples, batch):
            rows = query_rows(block, model.config.inverse)
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
    engine = Engine(TracinCheckpoint(model, 1.0), loss, settings)
    kept = engine.keep(tests)

    def work(triples: torch.Tensor) -> None:
        for block in torch.split(triples, settings.block):
            engine.scores(kept, block)

    return work


def repeated(
    parameters: list[torch.nn.Parameter],
    scores_of: Callable[[torch.Tensor], torch.Tensor],
    loss: TracinLoss,
    tests: torch.Tensor,
) -> Callable[[torch.Tensor], object]:
    """The loop of `one_by_one` repeated for every test triple, as in scripts that take one test triple at a time."""
    alone = [one_by_one(parameters, scores_of, loss, tests[i : i + 1]) for i in range(len(tests))]

    def work(triples: torch.Tensor) -> None:
        for loop in alone:
            loop(triples)

    return work
