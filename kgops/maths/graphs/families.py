"""Representative families of paths from a root to every vertex, as sets of inner vertices.

Whether some path of a given length avoids a few vertices follows from a small *representative family*
of them (Monien 1985): pick any path; for each of its inner vertices pick one that avoids it; and so on, as
deep as there are vertices to avoid. If any path avoids those vertices, a path of the family does too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = -1
_SPARE = 4


@dataclass(frozen=True)
class Families:
    """`sets` (vertices, slots, inner vertices) of paths of one length; a slot may be empty."""

    sets: Ints
    filled: Bools


def representatives(
    size: int, arcs: tuple[Ints, Ints], first: Ints, wanted: list[Bools], avoid: int
) -> list[Families]:
    """Families of the paths of length 1, 2, … from a root whose neighbours are `first`.

    The root and the other end are not among the `arcs` (from, to), which are sorted by where they lead. A
    family of length n keeps what can avoid `avoid` - n vertices; it is made where `wanted[n - 1]` says so.
    """
    direct = Families(np.empty((size, 1, 0), dtype=np.int64), np.zeros((size, 1), dtype=np.bool_))
    direct.filled[first, 0] = wanted[0][first]
    families = [direct]
    sources, targets = arcs
    for length, here in enumerate(wanted[1:], 2):
        used = here[targets] & np.asarray(families[-1].filled.any(axis=1))[sources]
        families.append(_longer(families[-1], size, sources[used], targets[used], avoid - length))
    return families


def _longer(before: Families, size: int, sources: Ints, targets: Ints, avoid: int) -> Families:
    """The families of paths one edge longer, along arcs sorted by their targets."""
    arcs = np.bincount(targets, minlength=size)
    rank = np.arange(len(targets)) - (np.cumsum(arcs) - arcs)[targets]
    # Paths over a few neighbours mostly avoid the given vertices. A family is complete if no pick failed, from
    # whichever neighbours it comes. All neighbours are searched only where a pick failed.
    few = avoid + _SPARE
    at, paths, failed = _family(before, size, sources[rank < few], targets[rank < few], avoid)
    doubtful = failed & (arcs > few)
    if doubtful.any():
        again = doubtful[targets]
        more_at, more_paths, _ = _family(before, size, sources[again], targets[again], avoid)
        sure = ~doubtful[at]
        at, paths = np.concatenate([at[sure], more_at]), np.concatenate([paths[sure], more_paths])
    return _packed(size, at, paths)


def _family(
    before: Families, size: int, sources: Ints, targets: Ints, avoid: int
) -> tuple[Ints, Ints, Bools]:
    """Members of families: their end vertex and inner vertices; and the vertices where a pick failed."""
    arc, slot = np.nonzero(before.filled[sources])
    source, target = sources[arc], targets[arc]
    inner = before.sets[source, slot]
    simple = (inner != target[:, None]).all(axis=1)
    at, paths = target[simple], np.column_stack([inner[simple], source[simple]])
    failed = np.zeros(size, dtype=np.bool_)
    picks = _pick(at, paths, np.arange(len(at)), np.arange(size), avoid, failed)
    chosen = np.unique(np.concatenate(picks))
    return at[chosen], paths[chosen], failed


def _pick(at: Ints, paths: Ints, remaining: Ints, queried: Ints, depth: int, failed: Bools) -> list[Ints]:
    """For every vertex the first path among `remaining`; then, for each of its vertices, of those without it.

    A vertex in `queried` without a path is marked as failed: no path to it avoids the vertices excluded so far.
    """
    there = at[remaining]
    begins = np.ones(len(remaining), dtype=np.bool_)
    begins[1:] = there[1:] != there[:-1]
    reached, first = there[begins], remaining[begins]
    missing = np.zeros(len(failed), dtype=np.bool_)
    missing[queried] = True
    missing[reached] = False
    failed |= missing
    picks = [first]
    if depth <= 0 or not len(reached):
        return picks
    members = np.repeat(first, np.diff(np.append(np.flatnonzero(begins), len(remaining))))
    for column in range(paths.shape[1]):
        spared = (paths[remaining] != paths[members, column, None]).all(axis=1)
        picks += _pick(at, paths, remaining[spared], reached, depth - 1, failed)
    return picks


def _packed(size: int, at: Ints, paths: Ints) -> Families:
    order = np.argsort(at, kind="stable")
    at, paths = at[order], paths[order]
    counts = np.bincount(at, minlength=size)
    slot = np.arange(len(at)) - (np.cumsum(counts) - counts)[at]
    filled = np.arange(counts.max(initial=0)) < counts[:, None]
    sets = np.full((*filled.shape, paths.shape[1]), NONE, dtype=np.int64)
    sets[at, slot] = paths
    return Families(sets, filled)
