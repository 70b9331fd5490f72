"""kgops' loss over all entities against dense labels, as the scripts' `test/test_efficient_loss.py` compares them.

    python -m kgops.maths.trials.efficient_loss

Random shapes, with and without label smoothing. The exit code is 1 where the values differ by more than 1e-6.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from kgops.maths.train.losses import EntityLoss, Positives
from kgops.maths.trials.variants import run

SHAPES = ((16, 100), (64, 1_000), (256, 1_000), (128, 5_000))  # queries, entities
DIM, MOST = 32, 1e-6  # relative difference that the loss guide allows


def difference(queries: int, entities: int, smoothing: float, draw: torch.Generator) -> tuple[float, float]:
    """Absolute and relative difference of the two losses."""
    q, e = (0.5 * torch.randn(n, DIM, generator=draw) for n in (queries, entities))
    rows, true = torch.arange(queries), torch.randint(entities, (queries,), generator=draw)
    biases = torch.zeros(entities)
    ours = EntityLoss("bce", smoothing)(
        q, e, biases, Positives(rows, true), torch.empty_like(e), torch.empty_like(biases)
    ).value
    labels = torch.full((queries, entities), smoothing / entities)
    labels[rows, true] += 1 - smoothing
    dense = float(F.binary_cross_entropy_with_logits(q @ e.t(), labels))
    assert ours is not None
    return abs(float(ours) - dense), abs(float(ours) - dense) / dense


def main() -> int:
    draw, passed = torch.Generator().manual_seed(0), True
    for smoothing in (0.0, 0.1):
        for queries, entities in SHAPES:
            absolute, relative = difference(queries, entities, smoothing, draw)
            passed &= relative < MOST
            size = f"{queries} queries, {entities:,} entities, label smoothing {smoothing:g}"
            print(f"{size}: absolute difference {absolute:.1e}, relative {relative:.1e}")
    print("✓ All tests passed" if passed else f"✗ A relative difference is above {MOST:g}")
    return 0 if passed else 1


if __name__ == "__main__":
    run(main)
