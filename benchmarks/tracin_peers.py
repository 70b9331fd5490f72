"""TracIn scores of captum and dattri, as functions from training triples to (tests, trains) scores.

captum and dattri are in the extra `bench`; without them their rows say so. Both see the model as a function
of one row (head, relation row, tail), with the loss of that row, and give exact scores when asked to.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from kgops.models.conve import ConvE
from kgops.tracin.loss import TracinLoss, row_loss
from kgops.training.batches import query_rows

Scores = Callable[[torch.Tensor], torch.Tensor]


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


class _RowScores(nn.Module):
    """All entities' scores of each row's head and relation."""

    def __init__(self, model: ConvE) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(rows[:, 0], rows[:, 1])
        return scores


def captum_scores(model: ConvE, loss: TracinLoss, tests: torch.Tensor, batch: int = 16) -> Scores:
    """TracInCP with per-sample gradients by autograd: its faster mode leaves out ConvE's embeddings."""
    from captum.influence import TracInCP

    def of_rows(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([row_loss(s, row, loss) for s, row in zip(scores, rows, strict=True)])

    of_rows.reduction = "none"  # type: ignore[attr-defined]  # captum reads it from the function
    wrapped, test_rows = _RowScores(model), query_rows(tests, model.config.inverse)

    def work(triples: torch.Tensor) -> torch.Tensor:
        rows = query_rows(triples, model.config.inverse)
        method = TracInCP(
            wrapped,
            torch.utils.data.TensorDataset(rows, rows),
            ["as it is"],
            checkpoints_load_func=lambda model, path: 1.0,
            loss_fn=of_rows,
            batch_size=batch,
            sample_wise_grads_per_batch=False,
        )
        scores: torch.Tensor = method.influence((test_rows, test_rows))
        return scores

    return work


def dattri_scores(
    model: ConvE, loss: TracinLoss, tests: torch.Tensor, *, projected: bool, batch: int = 8
) -> Scores:
    """TracInAttributor, with its projection as it ships or without any."""
    from dattri.algorithm.tracin import TracInAttributor
    from dattri.task import AttributionTask

    wrapped = _RowScores(model)

    def of_row(parameters: Any, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        (row,) = batch
        scores = torch.func.functional_call(wrapped, parameters, (row[None],))[0]
        at_tail = scores.gather(0, row[2:])[0]
        if loss.kind == "target":
            return torch.nn.functional.softplus(-at_tail)
        mean: torch.Tensor = (torch.nn.functional.softplus(scores).sum() - at_tail) / len(scores)
        return mean

    state = {name: p.detach() for name, p in wrapped.state_dict().items()}
    task = AttributionTask(of_row, wrapped, [state])
    test_rows = torch.utils.data.TensorDataset(query_rows(tests, model.config.inverse))
    theirs = torch.utils.data.DataLoader(test_rows, batch_size=batch)

    def work(triples: torch.Tensor) -> torch.Tensor:
        rows = torch.utils.data.TensorDataset(query_rows(triples, model.config.inverse))
        method = TracInAttributor(task, torch.ones(1), normalized_grad=False)
        if not projected:
            method.projector_kwargs = None
        scores: torch.Tensor = method.attribute(torch.utils.data.DataLoader(rows, batch_size=batch), theirs)
        return scores.t()

    return work
