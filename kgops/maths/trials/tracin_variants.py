"""Methods to score training triples by TracIn that kgops is compared with, and the models they score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.func import functional_call, grad, vmap

from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import to_pykeen_state
from kgops.maths.tracin.loss import TracinLoss, row_loss
from kgops.maths.train.batches import query_rows
from kgops.maths.trials.train_step import factory
from kgops.workloads.train.models import ConvEConfig


def model_of(graph: Graph, dim: int) -> ConvE:
    """Untrained: a score's cost does not depend on the weights."""
    torch.manual_seed(0)
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=dim)
    if dim == 32:  # the group's image size
        config = replace(config, embedding_height=8, embedding_width=4)
    return ConvE(config).eval()


def one_by_one(
    parameters: list[torch.nn.Parameter],
    scores_of: Callable[[torch.Tensor], torch.Tensor],
    loss: TracinLoss,
    tests: torch.Tensor,
) -> Callable[[torch.Tensor], object]:
    """One backward pass per triple; the gradients of the test triples are kept."""

    def gradient(row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        value = row_loss(scores_of(row), row, loss)
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


def vectorised(model: ConvE, loss: TracinLoss, tests: torch.Tensor) -> Callable[[torch.Tensor], object]:
    """Per-sample gradients by torch.func.vmap, eight triples at once."""
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
