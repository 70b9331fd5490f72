"""An explanation is drawn so that it can be read: nothing overlaps, nothing is cut without need, and it fits 80x24."""

import random
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from kgops.present.curve_chart import as_inline_svg
from kgops.present.explanation_graph import MOST_FACTS, ExplanationGraph, Place, graph_of, route
from kgops.present.explanation_pictures import picture_of, text_lines
from kgops.present.explanations import ExplainedPrediction, ExplainingFact
from kgops.present.formats import width_of
from kgops.present.influences import Step
from kgops.present.terminals import in_ascii

ODD = "<b>x</b> & \x1b[31m蛋白质 \u202eسلام"
Triple = tuple[str, str, str]


def explained(*facts: Triple, of: Triple = ("drug", "treats", "disease")) -> ExplainedPrediction:
    """The first of them has the largest effect."""
    found = tuple(ExplainingFact(fact, fact, -1.0 / n, "") for n, fact in enumerate(facts, 1))
    return ExplainedPrediction("1", of, of, "tail", "new", "", True, {}, found)


def paths_of(one: ExplainedPrediction, triples: list[Triple]) -> list[tuple[Step, ...]]:
    """Of each triple that has one: from the prediction's head through the triple and at most one other to its tail."""
    head, _, tail = one.labels
    both = [Step(*triple, True) for triple in triples] + [Step(t, r, h, False) for h, r, t in triples]
    paths: list[tuple[Step, ...]] = [(step,) for step in both if (step.start, step.end) == (head, tail)]
    paths += [
        (first, then)
        for first in both
        for then in both
        if (first.start, then.start, then.end) == (head, first.end, tail) and first.end not in (head, tail)
    ]
    of_facts = [(Step(*fact.labels, True), Step(*fact.labels[::-1], False)) for fact in one.facts]
    return [next((path for path in paths if set(path) & set(ways)), ()) for ways in of_facts]


def named_edges(graph: ExplanationGraph) -> list[tuple[str, str, str, bool, str]]:
    return [
        (graph.nodes[edge.left].name, edge.relation, graph.nodes[edge.right].name, edge.forward, edge.kind)
        for edge in graph.edges
    ]


def some_graph(seed: int) -> ExplanationGraph:
    """Of random triples: paths that share nodes, triples of the same two entities, loops, and dead ends."""
    draw = random.Random(seed)
    entities = ["drug", "disease", *(f"entity {n}" for n in range(draw.choice((4, 8, 20))))]
    triples = [(draw.choice(entities), f"r{draw.randrange(4)}", draw.choice(entities)) for _ in range(50)]
    of = ("drug", "treats", "drug" if seed % 5 == 4 else "disease")
    own = list(dict.fromkeys(one for one in triples if {of[0], of[2]} & {one[0], one[2]}))[: MOST_FACTS + 2]
    one = explained(*own, of=of)
    return graph_of(one, paths_of(one, triples))


def test_edges_are_the_prediction_its_triples_and_paths_through_them() -> None:
    triples = [("drug", "binds", "gene"), ("disease", "involves", "gene"), ("drug", "isa", "drug class")]
    one = explained(triples[0], triples[2])
    graph = graph_of(one, paths_of(one, triples))
    assert named_edges(graph) == [
        ("drug", "treats", "disease", True, "prediction"),
        ("drug", "binds", "gene", True, "triple"),
        ("gene", "involves", "disease", False, "path"),
        ("drug", "isa", "drug class", True, "triple"),
    ]
    assert [edge.strength for edge in graph.edges] == [0.0, 1.0, 0.0, 0.5]


@pytest.mark.parametrize("seed", range(60))
def test_boxes_lie_apart_and_no_edge_runs_through_another_node(seed: int) -> None:
    graph = some_graph(seed)
    spots = [(node.column, node.lane) for node in graph.nodes]
    assert len(set(spots)) == len(spots)
    # Boxes of 10 by 6, with 10 between columns and lanes.
    places = [Place(20 * column, 20 * column + 10, 16 * lane + 3, 16 * lane) for column, lane in spots]
    for edge in graph.edges:
        assert graph.nodes[edge.left].column < graph.nodes[edge.right].column
        points = route(graph, edge, places, 16 * edge.lane)
        for (x0, y0), (x1, y1) in pairwise(points):
            assert x0 == x1 or y0 == y1
            for n, place in enumerate(places):
                if n not in (edge.left, edge.right):
                    apart = (
                        max(x0, x1) < place.left
                        or min(x0, x1) > place.right
                        or max(y0, y1) < place.middle - 3
                        or min(y0, y1) > place.bottom
                    )
                    assert apart, (graph.nodes[n], edge)


@pytest.mark.parametrize("seed", range(20))
def test_as_text_it_fits_a_small_terminal_and_has_twins_in_ascii(seed: int) -> None:
    lines = text_lines(some_graph(seed), 78)
    assert len(lines) <= 2 * MOST_FACTS + 1 and max(map(width_of, lines)) <= 78
    assert in_ascii("".join(lines)).isascii() and "?" not in in_ascii("".join(lines))


def test_text_from_outside_is_escaped_in_pictures_and_cleaned_in_lines() -> None:
    one = explained((ODD, ODD, "drug"), of=("drug", "treats", ODD))
    graph = graph_of(one)
    picture = picture_of(graph, ODD)
    svg = as_inline_svg(picture)
    text = "".join(ElementTree.fromstring(svg).itertext())
    assert "<b>x</b> &" in text or "<b>x</b>" in text
    assert "\x1b" not in svg and "\u202e" not in svg and "<b>" not in svg
    lines = text_lines(graph, 78)
    assert "\x1b" not in "".join(lines) and "\u202e" not in "".join(lines)
    assert max(map(width_of, lines)) <= 78


def test_more_triples_than_can_be_drawn_are_counted() -> None:
    one = explained(*(("drug", "binds", f"gene {n}") for n in range(MOST_FACTS + 3)))
    graph = graph_of(one)
    assert graph.left_out == 3 and graph.lanes == MOST_FACTS + 1
    assert "and 3 more triples" in as_inline_svg(picture_of(graph, "x"))
