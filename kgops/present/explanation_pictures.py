"""Drawings of an explanation's graph: a picture for files and pages, and lines of text for terminals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kgops.jobs.text import one_line
from kgops.present.curve_chart import Line, Picture, Point, Shape, Text, arrowhead, rounded_box
from kgops.present.explanation_graph import ExplanationEdge, ExplanationGraph, Place, route
from kgops.present.formats import fitted, width_of
from kgops.present.html_page import HUES

# Of a picture, in its units.
_BOX, _BOX_HEIGHT, _GAP, _LANE, _MARGIN = 132, 46, 128, 72, 14
_SIZE, _SMALL = 13, 11  # of letters
_LETTER = 0.58  # a letter's width beside its size, rather more than less
_BOLD_LETTER = 0.66
_NAME_LINES = 3
_CORNER = 10.0

_DASH = (7.0, 5.0)
_THINNEST, _THICKEST = 1.5, 5.5

Part = Line | Shape | Text


def picture_of(graph: ExplanationGraph, title: str) -> Picture:
    width = 2 * _MARGIN + graph.columns * _BOX + (graph.columns - 1) * _GAP
    places = [_box(node.column, node.lane) for node in graph.nodes]
    parts: list[Part] = []
    for edge in graph.edges:
        parts += _edge(graph, edge, places)
    for i, node in enumerate(graph.nodes):
        parts += _node(node.name, places[i], is_end=i < 2)
    legend, height = _legend(graph, width, round(_lane_at(graph.lanes - 1) + _BOX_HEIGHT / 2) + 2 * _MARGIN)
    return Picture(width, height, one_line(title), [*parts, *legend])


def _lane_at(lane: int) -> float:
    return _MARGIN + _BOX_HEIGHT / 2 + lane * _LANE


def _box(column: int, lane: int) -> Place:
    left, middle = _MARGIN + column * (_BOX + _GAP), _lane_at(lane)
    return Place(left, left + _BOX, middle + _BOX_HEIGHT / 2, middle)


def _edge(graph: ExplanationGraph, edge: ExplanationEdge, places: Sequence[Place]) -> Iterator[Part]:
    points: list[Point] = route(graph, edge, places, _lane_at(edge.lane))
    hue = graph.relations.index(edge.relation) % HUES
    width = _THINNEST if edge.kind == "path" else _THINNEST + (_THICKEST - _THINNEST) * edge.strength
    if edge.kind == "prediction":
        width = 2.5
    size = 7 + 1.5 * width
    ordered = points if edge.forward else points[::-1]
    tip, before = ordered[-1], ordered[-2]
    ordered = [*ordered[:-1], _short_of(before, tip, size * 0.8)]
    dash = _DASH if edge.kind == "prediction" else ()
    yield Line(_rounded(ordered), width=width, dash=dash, hue=hue)
    yield arrowhead(before, tip, size, hue)
    start, end = _level(points, _lane_at(edge.lane))
    room = int((end - start - 2 * size) / (_SMALL * _LETTER))
    middle, y = (start + end) / 2, _lane_at(edge.lane)
    yield Text((middle, y - 6), fitted(edge.relation, max(room, 4)), "middle", _SMALL)
    if edge.effect is not None:
        yield Text((middle, y + 15), f"{edge.effect:+.2g}", "middle", _SMALL)


def _level(points: Sequence[Point], y: float) -> tuple[float, float]:
    """From where to where the edge runs along its lane."""
    along = [x for x, at in points if at == y]
    return min(along), max(along)


def _short_of(before: Point, tip: Point, by: float) -> Point:
    """The line ends inside its arrowhead."""
    if before[0] == tip[0]:
        return tip[0], tip[1] + (by if before[1] > tip[1] else -by)
    return tip[0] + (by if before[0] > tip[0] else -by), tip[1]


def _rounded(points: Sequence[Point]) -> list[Point]:
    """Each corner as a short curve."""
    out = [points[0]]
    for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
        start = _short_of((x0, y0), (x1, y1), min(_CORNER, abs(x1 - x0) + abs(y1 - y0)))
        end = _short_of((x2, y2), (x1, y1), min(_CORNER, abs(x2 - x1) + abs(y2 - y1)))
        for n in range(6):
            t = n / 5
            a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
            out.append((a * start[0] + b * x1 + c * end[0], a * start[1] + b * y1 + c * end[1]))
    return [*out, points[-1]]


def _node(name: str, place: Place, *, is_end: bool) -> Iterator[Part]:
    top = 2 * place.middle - place.bottom
    outline = rounded_box(place.left, top, place.right, place.bottom)
    yield Shape(outline, "grid" if is_end else "paper", faint=True)
    yield Line([*outline, outline[0]], "ink" if is_end else "dim", 1.8 if is_end else 1.0)
    room = (_BOX - 10) / (_BOLD_LETTER if is_end else _LETTER)
    size = _SIZE if len(wrapped_name(name, int(room / _SIZE))) < _NAME_LINES else _SMALL
    lines = wrapped_name(name, int(room / size))
    first = place.middle - (len(lines) - 1) * (size + 2) / 2 + size * 0.35
    for n, line in enumerate(lines):
        middle = (place.left + place.right) / 2
        yield Text((middle, first + n * (size + 2)), line, "middle", size, bold=is_end)


def wrapped_name(name: str, columns: int) -> list[str]:
    """At most three lines, broken after spaces, `_` and `-`; the last one is cut."""
    lines = [""]
    for word in re.findall(r"[^\s_-]*[\s_-]*", name):
        if lines[-1] and width_of((lines[-1] + word).rstrip()) > columns:
            lines.append("")
        lines[-1] += word
    if len(lines) > _NAME_LINES:
        lines = [*lines[: _NAME_LINES - 1], "".join(lines[_NAME_LINES - 1 :])]
    return [fitted(line.rstrip(), columns) for line in lines]


def _legend(graph: ExplanationGraph, width: int, top: int) -> tuple[list[Part], int]:
    """Colours of relations, and what lines and numbers mean; the height of the picture with it."""
    out: list[Part] = []
    x, y = _MARGIN, top
    entries = [(Line((), width=4.0, hue=i % HUES), one) for i, one in enumerate(graph.relations)]
    entries += [
        (Line((), width=2.0, dash=_DASH), "prediction"),
        (Line((), "dim", 1.5), "path from head to tail"),
        (Line((), "dim", 5.0), "triple that carries it; its number: change of the margin without it alone"),
    ]
    for line, name in entries:
        name = fitted(name, int((width - 2 * _MARGIN - 34) / (_SMALL * _LETTER)))
        long = round(34 + width_of(name) * _SMALL * _LETTER + 14)
        if x > _MARGIN and x + long > width - _MARGIN:
            x, y = _MARGIN, y + 18
        out.append(Line([(x, y), (x + 26, y)], line.tone, line.width, line.dash, line.hue))
        out.append(Text((x + 32, y + 4), name, size=_SMALL))
        x += long
    if graph.left_out:
        y += 18
        out.append(Text((_MARGIN, y + 4), f"and {graph.left_out:,} more triples", size=_SMALL))
    return out, y + _MARGIN + 4


# --- as text ---

_LONGEST_NAME, _SHORTEST_NAME = 40, 8
_TEXT_GAP = 15  # columns between nodes, where names can be cut for them
_STRONG = 0.5  # of the strongest effect: from here on a triple's line is heavy
_LINES = {"prediction": "╌", "path": "─"}


def text_lines(graph: ExplanationGraph, width: int) -> list[str]:
    """The drawing in so many columns: a line for each lane, and one between."""
    canvas = _Canvas(width, 2 * graph.lanes - 1)
    starts, widths = _text_columns(graph, width)
    places = []
    for i, node in enumerate(graph.nodes):
        name, left, row = fitted(node.name, widths[node.column]), starts[node.column], 2 * node.lane
        room = widths[node.column] if i < 2 else width_of(name)
        places.append(Place(left, left + room, row + 1, row))
        canvas.write(left, row, name)
    for edge in graph.edges:
        _text_edge(canvas, graph, edge, places)
    return canvas.lines


def _text_columns(graph: ExplanationGraph, width: int) -> tuple[list[int], list[int]]:
    """Where columns of nodes start, and how wide they are: names are cut only as far as relations need room."""
    gaps = graph.columns - 1
    longest = [
        max((width_of(node.name) for node in graph.nodes if node.column == column), default=1)
        for column in range(graph.columns)
    ]
    least = graph.lanes + 1  # of head and tail, which edges enter below
    for most in range(_LONGEST_NAME, _SHORTEST_NAME - 1, -1):
        widths = [min(one, most) for one in longest]
        widths[0], widths[-1] = max(widths[0], least), max(widths[-1], least)
        gap = (width - sum(widths)) // gaps
        if gap >= min(_TEXT_GAP, most):
            break
    starts = [sum(widths[:column]) + column * gap for column in range(graph.columns)]
    starts[-1] = width - widths[-1]
    return starts, widths


class _Canvas:
    def __init__(self, width: int, height: int) -> None:
        self._cells = [[" "] * width for _ in range(height)]

    def write(self, x: int, y: int, text: str) -> None:
        """A wide character takes two cells, a combining one none."""
        row = self._cells[y]
        for char in text:
            cells = width_of(char)
            if x + cells > len(row):
                return
            if cells:
                row[x : x + cells] = [char, *[""] * (cells - 1)]
            elif x:
                row[x - 1] += char
            x += cells

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]


def _text_edge(
    canvas: _Canvas, graph: ExplanationGraph, edge: ExplanationEdge, places: Sequence[Place]
) -> None:
    lane = 2 * edge.lane
    points = [(int(x), int(y)) for x, y in route(graph, edge, places, lane)]
    char = _LINES.get(edge.kind, "━" if edge.strength >= _STRONG else "─")
    goes_down, goes_up = points[0][1] != lane, points[-1][1] != lane
    start = points[0][0] + (0 if goes_down else 1)
    end = points[-1][0] + (0 if goes_up else -2)
    for (x, y0), (x1, y1) in pairwise(points):
        if x == x1:
            for y in range(min(y0, y1), max(y0, y1) + 1):
                canvas.write(x, y, "│")
    canvas.write(start, lane, char * (end - start + 1))
    if goes_down:
        canvas.write(start, lane, "└")
    if goes_up:
        canvas.write(end, lane, "┘")
    room = end - start - 5
    label = fitted(edge.relation, room) if room > 2 else ""
    if label:
        canvas.write(start + (end - start + 1 - width_of(label) - 2) // 2, lane, f" {label} ")
    if edge.forward:
        canvas.write(end, 2 * graph.nodes[edge.right].lane + 1 if goes_up else lane, "▲" if goes_up else "▶")
    else:
        canvas.write(
            start, 2 * graph.nodes[edge.left].lane + 1 if goes_down else lane, "▲" if goes_down else "◀"
        )
