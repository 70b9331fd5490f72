"""Sequential TracIn, one backward pass per triple: what the factored method must agree with.

    influence(z, z') = Σ over checkpoints of η · ⟨∇ loss(w; z), ∇ loss(w; z')⟩

Shares only the targets of the loss with the factored method.
"""

from collections.abc import Collection, Sequence

import torch
from torch.nn import functional as F

from kgops.maths.models.entity_model import EntityModel
from kgops.maths.tracin.loss import TracinLoss


def row_loss(scores: torch.Tensor, row: torch.Tensor, loss: TracinLoss) -> torch.Tensor:
    """The loss of one (head, relation row, tail), given its scores of all entities."""
    if loss.kind == "target":
        return F.softplus(-scores[row[2]])
    if loss.kind == "logit":
        return -scores[row[2]]
    n, s = len(scores), loss.smoothing
    positives = row[2:] if loss.known is None else loss.known.positives(row[None])[1]
    labels = torch.zeros_like(scores)
    if loss.kind == "bce":
        negative, positive = loss.targets(n)
        labels += negative
        labels[positives] = positive
        return F.binary_cross_entropy_with_logits(scores, labels)
    labels += s / n
    labels[positives] += (1 - s) / len(positives)
    return F.cross_entropy(scores, labels)


def loss_gradient(
    model: EntityModel, loss: TracinLoss, row: torch.Tensor, names: Collection[str] | None = None
) -> tuple[torch.Tensor, ...]:
    """Gradient at one row, of all or the named parameters. The model must be in evaluation mode."""
    chosen = [p for name, p in model.named_parameters() if names is None or name in names]
    scores = model(row[:1], row[1:2])[0]
    grads = torch.autograd.grad(row_loss(scores, row, loss), chosen, allow_unused=True)
    return tuple(torch.zeros_like(p) if g is None else g for p, g in zip(chosen, grads, strict=True))


def influence(
    checkpoints: Sequence[tuple[EntityModel, float]],
    loss: TracinLoss,
    train_rows: torch.Tensor,
    test_rows: torch.Tensor,
    names: Collection[str] | None = None,
) -> torch.Tensor:
    """(tests, trains) over pairs (model, learning rate); the gradients of the tests are kept."""
    total = checkpoints[0][0].entities.new_zeros(len(test_rows), len(train_rows))
    for model, learning_rate in checkpoints:
        kept = [loss_gradient(model, loss, row, names) for row in test_rows]
        for j, row in enumerate(train_rows):
            own = loss_gradient(model, loss, row, names)
            for i, other in enumerate(kept):
                total[i, j] += learning_rate * _inner(own, other)
    return total


def self_influence(
    checkpoints: Sequence[tuple[EntityModel, float]],
    loss: TracinLoss,
    rows: torch.Tensor,
    names: Collection[str] | None = None,
) -> torch.Tensor:
    """influence(z, z) of each row."""
    return torch.stack([influence(checkpoints, loss, row[None], row[None], names)[0, 0] for row in rows])


def _inner(own: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([torch.sum(a * b) for a, b in zip(own, other, strict=True)]).sum()
