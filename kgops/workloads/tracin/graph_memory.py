"""Memory of neighbourhoods: the graph that filtering searches."""

from __future__ import annotations

from kgops.workloads.memory.ledger import Held, Ledger
from kgops.workloads.tracin.sizes import TracinShape

_ID_BYTES = 8


def walk_neighbourhood(ledger: Ledger, s: TracinShape) -> list[Held]:
    """The graph, which stays, and what a tile of tests is left with: each at most all triples.

    Which edges lie on short paths is searched in trees whose number only the graph decides: that is not counted
    beyond the arrays that every search begins with.
    """
    n, entities = s.counts.train, s.model.num_entities
    if s.on_gpu:
        return []
    held = walk_graph(ledger, n, n, entities)
    part = "graph"
    distances = [ledger.take(part, _ID_BYTES * entities) for _ in (1, 2)]
    rows = ledger.take(part, _ID_BYTES * n)
    ledger.flash(part, *[_ID_BYTES * n] * 8)  # both ends of each row, smaller and larger, the distinct edges
    ledger.give(*distances, rows)
    return held


def walk_graph(ledger: Ledger, triples: int, edges: int, entities: int) -> list[Held]:
    """`Neighbourhood.__init__` with so many distinct edges; what it keeps."""
    ledger.phase, part = "neighbourhood", "graph"
    ends = ledger.take(part, 2 * _ID_BYTES * triples)
    ordered = ledger.take(part, 2 * _ID_BYTES * triples)
    ledger.flash(
        part, _ID_BYTES * triples, triples, _ID_BYTES * edges, _ID_BYTES * edges
    )  # as one number, which are no loops, sorted
    distinct = ledger.take(part, _ID_BYTES * edges)
    both = ledger.take(part, 2 * _ID_BYTES * edges)
    arcs = ledger.take(part, 4 * _ID_BYTES * edges)
    order = ledger.take(part, 2 * _ID_BYTES * edges)
    counts = [ledger.take(part, _ID_BYTES * entities), ledger.take(part, _ID_BYTES * entities)]
    ledger.flash(part, _ID_BYTES * entities, _ID_BYTES * entities)
    neighbours = ledger.take(part, 2 * _ID_BYTES * edges)
    degree = ledger.take(part, _ID_BYTES * entities)
    ledger.flash(part, triples, _ID_BYTES * entities, _ID_BYTES * entities)
    starts = counts.pop()
    ledger.give(ordered, distinct, both, arcs, order, *counts)
    return [ends, starts, neighbours, degree]
