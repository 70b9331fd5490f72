"""Rows of the run screen, without the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from kgops.jobs.text import one_line
from kgops.present import run_sections
from kgops.present.formats import duration, fitted, local_time, padded, width_of
from kgops.present.overview import eta_s
from kgops.present.rows import BLANK, Piece, Row, drawn, drawn_facts, stacked, text_row, text_rows
from kgops.present.wording import metric_of, progress_of, speed_of
from screens.widgets.bar import share_bar
from screens.widgets.curve_panels import panels

if TYPE_CHECKING:
    from kgops.present.rows import Section
    from kgops.present.run_detail import RunDetail
    from storage.runs import Run

Tab = Literal["curves", "memory", "options", "log", "record"]
TABS: tuple[Tab, ...] = get_args(Tab)
Step = tuple[str, str, str]  # key, words and action
MEMORY = "_mib"  # ends the names of curves of memory

_BAR, _SHORT_BAR = 24, 16
_WIDE = 100  # columns from which the long bar fits
_FILES_SHOWN = 12
_WIDEST = 150  # columns; wider tables are hard to follow


def tabs(detail: RunDetail, now: Tab) -> Row:
    pieces: list[Piece] = []
    for tab in TABS:
        act = f"screen.tab({tab!r})"
        pieces += [Piece(f" {tab.capitalize()} ", "tab" if tab == now else "dim", act)]
        changed = sum(one.is_changed for one in detail.options) if tab == "options" else 0
        pieces += [Piece(f"{changed} changed ", "tab" if tab == now else "warn", act)] if changed else []
        pieces.append(Piece(" "))
    return Row(tuple(pieces))


def rows(
    detail: RunDetail,
    width: int,
    room: int,
    tab: Tab,
    marked: str | None = None,
    steps: Sequence[Step] = (),
) -> list[Row]:
    """`marked`: the curve that Enter zooms. Curves fill `room` lines."""
    table = min(width, _WIDEST)
    retries = drawn(run_sections.attempts(detail), table) if run_sections.has_retries(detail) else []
    if tab == "curves":
        above = [[*_state(detail, width), *_next(steps, width)], retries]
        below = [
            _metrics(run_sections.metrics(detail), width),
            drawn(run_sections.quality(detail), width),
            _notes(detail, width),
        ]
        left = room - sum(len(section) + 1 for section in (*above, *below) if section)
        return stacked([*above, panels(detail, width, left, marked=marked), *below])
    if tab == "memory":
        parts = drawn(run_sections.memory(detail), width)
        nothing = [
            text_row("ESTIMATE", width, "head"),
            text_row("nothing was predicted by part", width, "dim"),
        ]
        others = [drawn_facts(run_sections.memory_facts(detail), width), retries, parts or nothing]
        left = room - sum(len(section) + 1 for section in others if section)
        return stacked([*others[:2], panels(detail, width, left, marked=marked, ending=MEMORY), *others[2:]])
    if tab == "options":
        shown = run_sections.options(detail, table)
        heads = (shown.columns[0]._replace(head="OPTIONS"), *shown.columns[1:])
        whole = shown._replace(
            columns=heads, lines=tuple(line._replace(is_marked=True) for line in shown.lines)
        )
        return drawn(whole, table) or [text_row("OPTIONS", width, "head"), text_row("none", width, "dim")]
    return stacked(
        (
            drawn(run_sections.messages(detail), width),
            drawn(run_sections.named_values("JOB", detail.job), width),
            _artifacts(detail, width),
            drawn(run_sections.named_values("ENVIRONMENT", detail.environment), width),
        )
    )


def _next(steps: Sequence[Step], width: int) -> list[Row]:
    """Can be clicked. On as many lines as needed."""
    lines: list[list[Piece]] = [[Piece("next", "dim")]] if steps else []
    for key, words, act in steps:
        pieces = [Piece(f"   {key}", "accent", act), Piece(f" {words}", "text", act)]
        if sum(width_of(piece.text) for piece in (*lines[-1], *pieces)) > width:
            lines.append([Piece("    ")])
        lines[-1] += pieces
    return [Row(tuple(line)) for line in lines]


def _state(detail: RunDetail, width: int) -> list[Row]:
    run, why = detail.run, run_sections.reason(detail)
    out = []
    if why:
        out.append(text_row(why, width, "dim" if run.state in ("queued", "cancelled") else "bad"))
    if run.done is not None:
        out.append(Row(tuple(_progress(run, _BAR if width >= _WIDE else _SHORT_BAR))))
    return [*out, *drawn_facts(run_sections.facts(detail), width)]


def _progress(run: Run, bar: int) -> Iterator[Piece]:
    if run.total and not run.ended:  # of its last phase, which may be a validation
        yield from share_bar(run.done or 0.0, run.total, bar)
        yield Piece("  ")
    yield Piece(progress_of(run))
    if speed_of(run):
        yield Piece("  ")
        yield Piece(speed_of(run))
    left = eta_s(run)
    if left is not None and not run.ended:
        yield Piece("  ETA ", "dim")
        yield Piece(duration(left))
    if run.metric is not None:
        yield Piece("  ")
        yield Piece(metric_of(run), "strong")


def _metrics(shown: Section, width: int) -> list[Row]:
    """In as many columns as fit, read downwards."""
    if not shown.lines:
        return []
    pairs = [(one_line(line.cells[0].text), line.cells[1].text) for line in shown.lines]
    name_width = min(max(width_of(name) for name, _ in pairs), 28)
    cell = name_width + 2 + 10
    across = max((width + 4) // (cell + 4), 1)
    down = -(-len(pairs) // across)
    out = [text_row("METRICS", width, "head")]
    for y in range(down):
        pieces: list[Piece] = []
        for name, value in pairs[y::down]:
            if pieces:
                pieces.append(Piece("    "))
            pieces.append(Piece(f"{padded(fitted(name, name_width), name_width)}  ", "dim"))
            pieces.append(Piece(f"{value:>10}"))
        out.append(Row(tuple(pieces)))
    return [*out, *(row for one in shown.below for row in text_rows(one, width, "dim"))]


def _notes(detail: RunDetail, width: int) -> list[Row]:
    out: list[Row] = []
    for note in detail.notes:
        out += [BLANK] if out else []
        out.append(text_row(f"NOTE of {local_time(note.at)}", width, "head"))
        out += [text_row(line, width) for line in note.text.split("\n")]
    return out


def _artifacts(detail: RunDetail, width: int) -> list[Row]:
    listed = drawn(run_sections.artifacts(detail, _FILES_SHOWN), width)
    return [*(listed or [text_row("ARTIFACTS", width, "head")]), text_row(f"in {detail.path}", width, "dim")]
