"""The pass over all entities: the loss's gradient at every score, chunk by chunk, never in memory as a whole.

Gradients at scores are in units of the loss's scale (1/entities under `bce`, see `scale_of`), so that float32 keeps
their precision with many entities.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kgops.maths.models.encoder import Buffers
from kgops.maths.models.products import add_product, addmm, product
from kgops.maths.tracin.loss import TracinLoss


def scale_of(loss: TracinLoss, num_entities: int) -> float:
    return 1 / num_entities if loss.kind == "bce" else 1.0


def own_weight(loss: TracinLoss, num_entities: int) -> float:
    """A triple's own part of the gradient at its tail's score, which is added to the part that its group shares."""
    if loss.kind == "softmax":
        return loss.smoothing - 1
    negative, positive = loss.targets(num_entities)
    return negative - positive


class Places:
    """(group, entity) pairs, or only entities, sorted by chunk of entities."""

    def __init__(self, entities: torch.Tensor, groups: torch.Tensor | None, chunk: int, total: int) -> None:
        self.order = entities.argsort(stable=True)
        self.entities = entities[self.order]
        self.groups = None if groups is None else groups[self.order]
        edges = torch.arange(0, total + chunk, chunk, device=entities.device)
        self.bounds: list[int] = torch.searchsorted(self.entities, edges).tolist()

    def inside(self, number: int) -> slice:
        return slice(self.bounds[number], self.bounds[number + 1])


@dataclass(frozen=True)
class Positives:
    """True entities in a group's shared part, and what softmax subtracts at each."""

    places: Places
    share: torch.Tensor


@dataclass
class OutputPass:
    """`delta`: (entities, groups). `d_x`: (groups, d). `gram`: product with the others' delta. `at`: at the wanted
    entities. `norms`: of a softmax, a pair for each group."""

    d_x: torch.Tensor
    delta: torch.Tensor | None
    gram: torch.Tensor | None
    at: torch.Tensor | None
    norms: torch.Tensor | None = None


@torch.no_grad()
def output_pass(
    loss: TracinLoss,
    x: torch.Tensor,
    entities: torch.Tensor,
    biases: torch.Tensor,
    positives: Positives,
    *,
    chunk: int,
    buffers: Buffers,
    keep: bool = False,
    against: torch.Tensor | None = None,
    wanted: Places | None = None,
    entities_low: torch.Tensor | None = None,
) -> OutputPass:
    """The shared part of the groups with query vectors `x`; a softmax passes over the entities twice.

    `entities_low`: rounded entities; all products but the one with `against` are in that format. Sums over chunks stay
    in x's dtype.
    """
    low = None if entities_low is None else entities_low.dtype
    rounded = entities if entities_low is None else entities_low
    groups, total = len(x), len(entities)
    result = OutputPass(
        torch.zeros_like(x),
        x.new_empty(total, groups) if keep else None,
        None if against is None else x.new_zeros(groups, against.shape[1]),
        None if wanted is None else x.new_empty(groups, len(wanted.entities)),
    )
    norms = _softmax_norms(x, rounded, biases, chunk, buffers, low) if loss.kind == "softmax" else None
    result.norms = None if norms is None else torch.cat(norms, dim=1)
    for number, start in enumerate(range(0, total, chunk)):
        stop = min(start + chunk, total)
        plane = _scores(x, rounded, biases, start, stop, buffers, low)
        _to_gradient(loss, plane, norms, positives, number, start, total)
        if low is None:
            add_product(result.d_x, plane, entities[start:stop])
        else:
            result.d_x += product(plane, rounded[start:stop], low)
        if result.delta is not None:
            result.delta[start:stop] = plane.t()
        if result.gram is not None and against is not None:
            add_product(result.gram, plane, against[start:stop])
        if result.at is not None and wanted is not None:
            inside = wanted.inside(number)
            result.at[:, inside] = plane.index_select(1, wanted.entities[inside] - start)
    if result.at is not None and wanted is not None:
        back = torch.empty_like(wanted.order)
        back[wanted.order] = torch.arange(len(back), device=back.device)
        result.at = result.at.index_select(1, back)
    return result


def _scores(
    x: torch.Tensor,
    entities: torch.Tensor,
    biases: torch.Tensor,
    start: int,
    stop: int,
    buffers: Buffers,
    low: torch.dtype | None,
) -> torch.Tensor:
    plane = buffers.take("plane", (len(x), stop - start), x.dtype)
    if low is not None:
        return torch.add(product(x, entities[start:stop].t(), low), biases[start:stop], out=plane)
    return addmm(biases[start:stop], x, entities[start:stop].t(), out=plane)


def _to_gradient(
    loss: TracinLoss,
    plane: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor] | None,
    positives: Positives,
    number: int,
    start: int,
    total: int,
) -> None:
    """Replaces scores by the gradient at them, in place."""
    inside = positives.places.inside(number)
    assert positives.places.groups is not None
    where = (positives.places.groups[inside], positives.places.entities[inside] - start)
    if norms is not None:
        highest, sums = norms
        plane.sub_(highest).exp_().div_(sums).sub_(loss.smoothing / total)
        plane[where] -= positives.share[inside]
        return
    # sigmoid(s) - 1 loses all digits where the model is sure of a tail; -sigmoid(-s) keeps them.
    negative, positive = loss.targets(total)
    exact = (1 - positive) - torch.sigmoid(-plane[where])
    plane.sigmoid_()
    if negative:
        plane.sub_(negative)
    plane[where] = exact


def _softmax_norms(
    x: torch.Tensor,
    entities: torch.Tensor,
    biases: torch.Tensor,
    chunk: int,
    buffers: Buffers,
    low: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each group its highest score and Σ exp(score - highest), as columns."""
    highest = x.new_full((len(x), 1), -torch.inf)
    total = torch.zeros_like(highest)
    for start in range(0, len(entities), chunk):
        plane = _scores(x, entities, biases, start, min(start + chunk, len(entities)), buffers, low)
        higher = torch.maximum(highest, plane.amax(1, keepdim=True))
        total *= (highest - higher).exp_()
        total += plane.sub_(higher).exp_().sum(1, keepdim=True)
        highest = higher
    return highest, total
