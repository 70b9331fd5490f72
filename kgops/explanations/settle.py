"""The head's row trained again on what is left: the lowest point of its loss, by BFGS from the Newton step."""

from __future__ import annotations

import torch

from kgops.explanations.head_row import HeadRow, Row

__all__ = ["settled", "solved"]

_SMALLEST_STEP = 1 / 64


def solved(curvature: torch.Tensor) -> torch.Tensor:
    """Its inverse. The sum of positive parts and a held diagonal, so it has one."""
    return torch.cholesky_inverse(torch.linalg.cholesky(curvature))


@torch.no_grad()
def settled(
    head: HeadRow,
    start: Row,
    kept: torch.Tensor,
    inverse: torch.Tensor,
    *,
    tolerance: float = 1e-2,
    most: int = 20,
) -> Row:
    """The row that the facts in `kept` leave, from a row before some were removed and the inverse curvature there.

    Stops where a further step would lower the loss by less than `tolerance`² of what the first would.
    """
    inverse, at = inverse.clone(), head.at(start.vector, kept)
    enough = None
    for _ in range(most):
        step = -inverse @ at.gradient
        promised = float(-(step @ at.gradient))
        enough = tolerance**2 * promised if enough is None else enough
        if promised <= enough or promised <= 0:
            break
        length, then = _lower(head, at, kept, step, promised)
        if then is None:
            break
        moved, turned = length * step, then.gradient - at.gradient
        at = then
        inner = float(moved @ turned)
        if inner > 0:  # else rounding: the loss is convex
            across = inverse @ turned
            inverse += (inner + float(turned @ across)) / inner**2 * torch.outer(moved, moved)
            inverse -= (torch.outer(across, moved) + torch.outer(moved, across)) / inner
    return at


def _lower(
    head: HeadRow, at: Row, kept: torch.Tensor, step: torch.Tensor, promised: float
) -> tuple[float, Row | None]:
    """The first of ever shorter steps that lowers the loss by a fair part of what its slope promises."""
    length = 1.0
    while length >= _SMALLEST_STEP:
        then = head.at(at.vector + length * step, kept)
        if then.value < at.value - 1e-4 * length * promised:
            return length, then
        length /= 2
    return length, None
