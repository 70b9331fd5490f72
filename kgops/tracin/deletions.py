"""Training triples that a validation deletes: those with the largest influence, and random controls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kgops.errors import BadInput
from kgops.tracin.scan import TopTriples

__all__ = ["BY_INFLUENCE", "CONTROLS", "Deletion", "Influences", "deletions"]

BY_INFLUENCE = ("proponents", "opponents")
CONTROLS = ("random", "neighbours")

Influences = torch.Tensor | TopTriples
"""All scores (tests, trains), or the highest and lowest as ranked by a scan."""


@dataclass(frozen=True)
class Deletion:
    """Training rows to delete, ascending, and the tests whose change is measured."""

    kind: str
    draw: int
    tests: tuple[int, ...]
    rows: tuple[int, ...]


def deletions(
    train: torch.Tensor,
    tests: torch.Tensor,
    influences: Influences,
    k: int,
    *,
    together: bool,
    draws: int,
    seed: int,
) -> Iterator[Deletion]:
    """Deletions of each test's proponents, of its opponents, and `draws` of each control.

    Control `random` draws from all training triples, `neighbours` from those with an entity of the test; each
    deletes as many as there are proponents, or all it has. With `together`, all tests share one deletion.
    """
    proponents, opponents = _strongest(influences, k, len(tests), len(train))
    everyone = tuple(range(len(tests)))
    for group in [everyone] if together else [(test,) for test in everyone]:
        rows = _union(proponents[test] for test in group)
        _leave_enough(len(rows), len(group), len(train))
        yield Deletion("proponents", 0, group, rows)
        yield Deletion("opponents", 0, group, _union(opponents[test] for test in group))
        for draw in range(draws):
            where = f"{seed} {draw} {group}"
            chosen = _shuffled(range(len(train)), f"random {where}")[: len(rows)]
            yield Deletion("random", draw, group, tuple(sorted(chosen)))
            pools = [_touching(train, tests[test]) for test in group]
            yield Deletion("neighbours", draw, group, _round_robin(pools, len(rows), f"neighbours {where}"))


def _strongest(
    influences: Influences, k: int, tests: int, trains: int
) -> tuple[list[list[int]], list[list[int]]]:
    ranked = influences.proponents[1].shape[1] if isinstance(influences, TopTriples) else trains
    if not 1 <= k <= ranked:
        raise BadInput(
            f"{k:,} triples cannot be deleted for each test triple: {ranked:,} are ranked.",
            hint="validate fewer, or rank more with --top-k.",
        )
    if isinstance(influences, TopTriples):
        ids = influences.proponents[1].cpu(), influences.opponents[1].cpu()
    else:
        top = TopTriples(k)
        top.add(0, torch.arange(trains, device=influences.device), influences)
        top.finish()
        ids = top.proponents[1].cpu(), top.opponents[1].cpu()
    if len(ids[0]) != tests:
        raise ValueError(f"the ranking is of {len(ids[0])} test triples, not of {tests}")
    return ids[0][:, :k].tolist(), ids[1][:, :k].tolist()


def _leave_enough(deleted: int, tests: int, trains: int) -> None:
    if 2 * deleted > trains:
        raise BadInput(
            f"{deleted:,} of {trains:,} training triples would be deleted for {tests:,} test triples.",
            hint="validate fewer triples or fewer tests, so that at least half remains to train on.",
        )


def _union(rows: Iterator[list[int]]) -> tuple[int, ...]:
    return tuple(sorted({row for one in rows for row in one}))


def _touching(train: torch.Tensor, test: torch.Tensor) -> list[int]:
    ends = test[[0, 2]]
    rows: list[int] = torch.isin(train[:, [0, 2]], ends).any(dim=1).nonzero()[:, 0].tolist()
    return rows


def _round_robin(pools: Sequence[Sequence[int]], count: int, where: str) -> tuple[int, ...]:
    """`count` rows, one from each pool in turn, so that an entity with many triples does not dominate."""
    waiting = [iter(_shuffled(pool, f"{where} {i}")) for i, pool in enumerate(pools)]
    taken: set[int] = set()
    while waiting and len(taken) < count:
        for pool in list(waiting):
            row = next((row for row in pool if row not in taken), None)
            if row is None:
                waiting.remove(pool)
            elif len(taken) < count:
                taken.add(row)
    return tuple(sorted(taken))


def _shuffled(rows: Sequence[int], what: str) -> list[int]:
    """In an order determined by `what`, so that a resumed run draws equal triples."""
    digest = hashlib.sha256(f"kgops deletion {what}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    return [rows[i] for i in torch.randperm(len(rows), generator=generator).tolist()]
