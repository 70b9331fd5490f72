"""Rows of the pane beside a list: one run at a glance."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kgops.jobs.text import one_line
from kgops.planning.fit import fit_of_run
from kgops.present.formats import amount, fitted
from kgops.present.rows import BLANK, Column, Columns, Piece, Row, stacked, text_row
from kgops.present.wording import metric_of, progress_of, sign_of, since, speed_of, state_of, took
from screens.widgets.curve_panels import main_panel

if TYPE_CHECKING:
    from kgops.present.glance import Glance
    from storage.runs import Run

_MOST_WHY, _MOST_OPTIONS = 4, 8  # lines
_LEAST_LOG, _MOST_OF_LINE = 3, 3
_AROUND = 8  # lines of panels, of blanks between them, and of a chart that are neither rows nor curve
_WIDEST = 100  # columns; wider tables are hard to follow


def rows(glance: Glance, width: int, height: int) -> list[Row]:
    """The end of the log, or else the curve, fills what the other sections leave."""
    state, options = _state(glance, width), _options(glance, width)
    left = height // 5 if glance.log else height - len(state) - len(options) - _AROUND
    out = stacked((state, main_panel(glance.detail, width, min(max(left, 5), 40)), options))
    room = max(height - len(out) - 2, _LEAST_LOG)
    return [*out, *([BLANK, *_log(glance, width, room)] if glance.log else [])][:height]


def _state(glance: Glance, width: int) -> list[Row]:
    run = glance.detail.run
    sign = sign_of(run)
    when = took(run) if run.ended else since(run)
    out = [
        text_row(f"{run.id} {run.workload} {run.label}", width, "head"),
        Row(
            (
                sign,
                Piece(f" {state_of(run)}", "text" if sign.tone == "accent" else sign.tone),
                Piece(f"  {when}", "dim"),
            )
        ),
    ]
    fit = fit_of_run(run, glance.detail.forecast)
    why = fit.words if fit is not None else run.reason
    if why:
        tone = "dim" if run.state in ("queued", "cancelled", "succeeded") else "bad"
        lines = textwrap.wrap(one_line(why, 2000), width)
        out += [text_row(line, width, tone) for line in lines[:_MOST_WHY]]
    out += [text_row("  ".join(part for part in _facts(run) if part), width)] if any(_facts(run)) else []
    memory = _memory(run)
    out += [text_row(line, width, "dim") for line in textwrap.wrap(memory, width)]
    tags = " ".join(glance.detail.tags)
    return [*out, text_row(tags, width, "accent")] if tags else out


def _facts(run: Run) -> list[str]:
    going = [] if run.ended else [progress_of(run), speed_of(run)]
    return [metric_of(run), *going]


def _memory(run: Run) -> str:
    parts = [
        f"{what} {amount(mib, 'MiB')}"
        for what, mib in (
            ("GPU peak", run.peak_gpu_mib),
            ("predicted", run.predicted_mib),
            ("host peak", run.peak_host_mib),
        )
        if mib is not None
    ]
    return " · ".join(parts)


def _options(glance: Glance, width: int) -> list[Row]:
    profile = glance.detail.run.profile
    of = f"profile {profile}" if profile else "the defaults"
    head = text_row(f"OPTIONS that differ from {of}", width, "head")
    if not glance.options:
        return [head, text_row("none", width, "dim")]
    columns = Columns((Column("", 18), Column("", 24, grows=True), Column("", 12)), min(width, _WIDEST))
    shown = [
        columns.row((Piece(one.name, "dim"), Piece(one.value), Piece(one.by, "dim")))
        for one in glance.options[:_MOST_OPTIONS]
    ]
    more = len(glance.options) - len(shown)
    return [head, *shown, *([text_row(f"and {more} more", width, "dim")] if more else [])]


def _log(glance: Glance, width: int, room: int) -> list[Row]:
    """The newest lines; a long one takes a few, as the end of an error's line says most."""
    shown: list[str] = []
    for line in reversed(glance.log):
        if len(shown) >= room:
            break
        parts = textwrap.wrap(line, width)
        if len(parts) > _MOST_OF_LINE:
            parts[_MOST_OF_LINE - 1] = fitted(f"{parts[_MOST_OF_LINE - 1]} …", width)
        shown = [*parts[:_MOST_OF_LINE], *shown]
    return [text_row("LOG", width, "head"), *(text_row(line, width) for line in shown[-room:])]
