"""Few paths that stand for all: for every vertex the ways from a root, as sets of inner vertices.

Whether some path of a given length avoids a few vertices can be told from a small *representative family*
of them (Monien 1985): pick any path; for each of its inner vertices pick one that avoids it; and so on, as
deep as there are vertices to avoid. Whatever avoids those vertices among all paths, one of these does too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Families", "representatives"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = -1


@dataclass(frozen=True)
class Families:
    """`sets` (vertices, slots, inner vertices) of paths of one length; a slot may be empty."""

    sets: Ints
    filled: Bools


def representatives(
    size: int,
    arcs: tuple[Ints, Ints],
    first: Ints,
    levels: int,
    useful: Callable[[int], Bools],
    avoid: int,
) -> list[Families]:
    """Families of the paths of length 1, 2, … `levels` from a root whose neighbours are `first`.

    The root and the other end are not among the `arcs` (from, to). A family of length n keeps what can avoid
    `avoid` - n vertices. `useful(n)` says at which vertices paths of length n are asked for or go on.
    """
    one = Families(np.empty((size, 1, 0), dtype=np.int64), np.zeros((size, 1), dtype=np.bool_))
    one.filled[first] = True
    found = [one]
    sources, targets = arcs
    for length in range(2, levels + 1):
        reached: Bools = np.asarray(found[-1].filled.any(axis=1))
        wanted = useful(length)[targets] & reached[sources]
        found.append(_longer(found[-1], size, sources[wanted], targets[wanted], avoid - length))
    return found


def _longer(before: Families, size: int, sources: Ints, targets: Ints, avoid: int) -> Families:
    """The families of paths one edge longer, along arcs sorted by their targets."""
    arc, slot = np.nonzero(before.filled[sources])
    source, target = sources[arc], targets[arc]
    inner = before.sets[source, slot]
    simple = np.flatnonzero((inner != target[:, None]).all(axis=1))
    at, paths = target[simple], np.column_stack([inner[simple], source[simple]])
    chosen: list[Ints] = []
    _pick(at, paths, np.arange(len(at)), avoid, size, chosen)
    picked = np.column_stack(chosen)
    filled = picked != NONE
    if not len(paths):
        return Families(np.full((*picked.shape, paths.shape[1]), NONE, dtype=np.int64), filled)
    return Families(np.where(filled[:, :, None], paths[picked], NONE), filled)


def _pick(at: Ints, paths: Ints, left: Ints, depth: int, size: int, chosen: list[Ints]) -> None:
    """For every vertex the first path among `left`; then, for each of its vertices, of those without it."""
    first = np.full(size, NONE, dtype=np.int64)
    there = at[left]
    begins = np.ones(len(left), dtype=np.bool_)
    begins[1:] = there[1:] != there[:-1]
    first[there[begins]] = left[begins]
    chosen.append(first)
    if depth <= 0:
        return
    for column in range(paths.shape[1]):
        if len(left):
            barred = paths[first[there], column]
            left_now = left[(paths[left] != barred[:, None]).all(axis=1)]
        else:
            left_now = left
        _pick(at, paths, left_now, depth - 1, size, chosen)
