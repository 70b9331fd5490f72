"""An explanation as a small graph: the prediction on top, below it a lane for each triple that carries it.

Head left, tail right. The path from head to tail through a triple runs along the triple's lane; lanes with a path in
common lie next to each other, so a node that several paths share stands in the first one's lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kgops.jobs.text import one_line
from kgops.present.explanations import ExplainedPrediction, triple_of
from kgops.present.influences import Step

MOST_FACTS = 8  # drawn of one explanation
_LAST = 4  # columns right of the head, at most: paths have four edges
_Key = tuple[str, int]  # a label; the number tells a loop's second end from the head
_LOOP_END = -1  # of the tail, where it is the head


@dataclass(frozen=True, slots=True)
class ExplanationNode:
    name: str
    column: int
    lane: int


@dataclass(frozen=True, slots=True)
class ExplanationEdge:
    """Between nodes by their places in the graph, the left one first; `forward`: its arrow is at the right one."""

    left: int
    right: int
    forward: bool
    relation: str
    lane: int
    kind: Literal["prediction", "triple", "path"]
    effect: float | None = None
    strength: float = 0.0  # of its effect, beside the strongest of the explanation


@dataclass(frozen=True, slots=True)
class ExplanationGraph:
    """Nodes 0 and 1 are the prediction's head and tail; `left_out` triples are not drawn."""

    nodes: tuple[ExplanationNode, ...]
    edges: tuple[ExplanationEdge, ...]
    columns: int
    lanes: int
    left_out: int

    @property
    def relations(self) -> tuple[str, ...]:
        """In the order of their edges; a relation's place is the number of its colour."""
        return tuple(dict.fromkeys(edge.relation for edge in self.edges))


def graph_of(one: ExplainedPrediction, paths: Sequence[Sequence[Step]] = ()) -> ExplanationGraph:
    """`paths` through its triples, in their order: empty where there is none."""
    named = one.names
    facts = one.facts[:MOST_FACTS]
    largest = max((abs(fact.effect or 0.0) for fact in facts), default=0.0) or 1.0
    head = (one.labels[0], 0)
    tail = (one.labels[2], _LOOP_END if one.labels[0] == one.labels[2] else 0)
    chains = []
    for i, fact in enumerate(facts):
        path = paths[i] if i < len(paths) and paths[i] else [_alone(fact.labels, one.labels)]
        own = next((n for n, step in enumerate(path) if triple_of(step) == fact.labels), 0)
        strength = abs(fact.effect or 0.0) / largest
        chains.append(
            _Chain(
                _keys(path, i, head, tail, own == 0 and path[0].start == one.labels[0]),
                tuple(path),
                own,
                fact.effect,
                strength,
            )
        )
    column = _columns(chains, head, tail)
    drawing = _Drawing(column, named)
    drawing.edge(head, tail, Step(one.labels[0], one.labels[1], one.labels[2], True), 0, "prediction")
    for lane, chain in enumerate(_ordered(chains, tail), 1):
        drawing.chain(chain, lane)
    last = column[tail]
    return ExplanationGraph(
        tuple(
            ExplanationNode(one_line(named.get(key[0], key[0])), column[key], lane)
            for key, lane in drawing.nodes.items()
        ),
        tuple(drawing.edges),
        last + 1,
        len(chains) + 1,
        len(one.facts) - len(facts),
    )


@dataclass(frozen=True, slots=True)
class _Chain:
    """Keys of the nodes of one path, from the prediction's head on, its steps, and which of them is the triple."""

    keys: tuple[_Key, ...]
    steps: tuple[Step, ...]
    own: int
    effect: float | None
    strength: float


def _alone(fact: tuple[str, str, str], prediction: tuple[str, str, str]) -> Step:
    """The triple from the prediction's head, or to its tail, without a path."""
    is_forward = fact[0] == prediction[0] or (fact[2] == prediction[2] and fact[2] != prediction[0])
    return Step(*fact, True) if is_forward else Step(fact[2], fact[1], fact[0], False)


def _keys(path: Sequence[Step], number: int, head: _Key, tail: _Key, shares: bool) -> tuple[_Key, ...]:
    """Only a path that `shares` runs through nodes of other lanes: a triple of the tail keeps to its own."""
    start = path[0].start

    def key(label: str) -> _Key:
        return label, 0 if shares or label in (head[0], tail[0]) else number + 1

    def end(label: str) -> _Key:
        if label == tail[0] and tail[1] == _LOOP_END:
            return tail
        return (label, number + 1) if label == start else key(label)

    return key(start), *(end(step.end) for step in path)


def _columns(chains: Sequence[_Chain], head: _Key, tail: _Key) -> dict[_Key, int]:
    """Each node as far right as its longest path; the tail right of all."""
    column = {head: 0}
    for _ in range(_LAST):
        for chain in chains:
            column.setdefault(chain.keys[0], 1)  # a triple of the tail that no path leads to
            for before, after in zip(chain.keys, chain.keys[1:], strict=False):
                if after not in (head, tail):
                    column[after] = min(max(column.get(after, 1), column[before] + 1), _LAST)
    column[tail] = max(column.values()) + 1
    return column


def _ordered(chains: Sequence[_Chain], tail: _Key) -> list[_Chain]:
    """The strongest first, but those whose paths end alike together."""

    def endings(chain: _Chain) -> list[tuple[_Key, ...]]:
        between = [key for key in reversed(chain.keys[1:]) if key != tail]
        return [tuple(between[: n + 1]) for n in range(len(between))]

    strongest: dict[tuple[_Key, ...], float] = {}
    for chain in chains:
        for ending in endings(chain):
            strongest[ending] = max(strongest.get(ending, 0.0), chain.strength)
    return sorted(
        chains,
        key=lambda chain: ([(-strongest[ending], ending) for ending in endings(chain)], -chain.strength),
    )


class _Drawing:
    """Nodes with their lanes, and edges, each once."""

    def __init__(self, column: Mapping[_Key, int], names: Mapping[str, str]) -> None:
        self._column, self._names = column, names
        self.nodes: dict[_Key, int] = {}
        self.edges: list[ExplanationEdge] = []
        self._drawn: set[tuple[_Key, _Key, Step]] = set()

    def chain(self, chain: _Chain, lane: int) -> None:
        for i, step in enumerate(chain.steps):
            left, right = chain.keys[i : i + 2]
            if self._column[left] >= self._column[right]:
                return  # two paths pass the same nodes in turn: the rest of this one is not drawn
            if i == chain.own:
                self.edge(left, right, step, lane, "triple", chain.effect, chain.strength)
            elif (left, right, step) not in self._drawn:
                self._drawn.add((left, right, step))
                self.edge(left, right, step, lane, "path")

    def edge(
        self,
        left: _Key,
        right: _Key,
        step: Step,
        lane: int,
        kind: Literal["prediction", "triple", "path"],
        effect: float | None = None,
        strength: float = 0.0,
    ) -> None:
        for key in (left, right):
            self.nodes.setdefault(key, lane)
        at = list(self.nodes)
        relation = one_line(self._names.get(step.relation, step.relation))
        self.edges.append(
            ExplanationEdge(
                at.index(left), at.index(right), step.forward, relation, lane, kind, effect, strength
            )
        )


class Place(NamedTuple):
    """Where a node is drawn: its box, and the height of its lane."""

    left: float
    right: float
    bottom: float
    middle: float


def route(
    graph: ExplanationGraph, edge: ExplanationEdge, places: Sequence[Place], lane_at: float
) -> list[tuple[float, float]]:
    """Corners of the edge: along its lane, and down from or up to a node that stands in another lane."""
    left, right = places[edge.left], places[edge.right]
    points = [(left.right, left.middle)]
    if graph.nodes[edge.left].lane != edge.lane:
        x = _trunk(graph, edge.left, edge, left)
        points = [(x, left.bottom), (x, lane_at)]
    if graph.nodes[edge.right].lane == edge.lane:
        return [*points, (right.left, right.middle)]
    x = _trunk(graph, edge.right, edge, right)
    return [*points, (x, lane_at), (x, right.bottom)]


def _trunk(graph: ExplanationGraph, node: int, edge: ExplanationEdge, place: Place) -> float:
    """Where the edge leaves or enters the node's lower side, so that no two cross: what comes from the left enters
    from upper lanes first, what goes right leaves for lower lanes first."""
    lane = graph.nodes[node].lane
    into = [one for one in graph.edges if one.right == node and one.lane != lane]
    out_of = [one for one in graph.edges if one.left == node and one.lane != lane]
    below = sorted(into, key=lambda one: one.lane) + sorted(out_of, key=lambda one: -one.lane)
    return place.left + (place.right - place.left) * (below.index(edge) + 1) / (len(below) + 1)
