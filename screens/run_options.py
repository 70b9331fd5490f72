"""A run's options and attempts as tables, each with the reason why it went as it did."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kgops.cli.output import UNKNOWN, duration
from kgops.jobs.text import one_line
from screens.rows import Column, Columns, Piece, Row

if TYPE_CHECKING:
    from kgops.views.run_detail import OptionRow, RunDetail
    from storage.attempts import Attempt

__all__ = ["attempt_table", "option_table"]

_WHY = "why"
_WIDE = 100  # columns from which values stand in full
_VALUE, _SHORT_VALUE = 15, 12
_WIDEST = 150  # of a table that the eye still follows


def option_table(known: RunDetail, width: int) -> list[Row]:
    """Nothing where a run has none, as one of a person's own command."""
    if not known.options:
        return []
    values = _VALUE if width >= _WIDE else _SHORT_VALUE
    columns = Columns(
        (
            Column("OPTION", 22),
            Column("asked", values),
            Column("applied", values),
            Column(_WHY, 20, grows=True),
            Column("by", 14),
            Column("effect", 15),
        ),
        min(width, _WIDEST),
    )
    return [columns.heading(), *(row for option in known.options for row in _option(option, columns))]


def _option(option: OptionRow, columns: Columns) -> list[Row]:
    """Why it is not as it was asked for is said to the end."""
    changed = option.requested not in (None, "auto") and option.applied not in (None, option.requested)
    before = (
        Piece(option.name),
        Piece(option.requested or UNKNOWN),
        Piece(option.applied or UNKNOWN, "warn" if changed else "text"),
    )
    after = Piece(option.by, "dim"), Piece(option.effect, "dim")
    if changed:
        return _to_its_end(option.why, columns, before, after)
    return [columns.row((*before, Piece(option.why, "dim"), *after))]


def _to_its_end(
    why: str, columns: Columns, before: Sequence[Piece], after: Sequence[Piece] = ()
) -> list[Row]:
    """A row with its reason, which goes on below where there is no room beside."""
    room = columns.width_of(_WHY)
    first, *more = (textwrap.wrap(one_line(why), room) if room else []) or [""]
    indent = [Piece("")] * len(before)
    below = (columns.row((*indent, Piece(line))) for line in more)
    return [columns.row((*before, Piece(first), *after)), *below]


def attempt_table(known: RunDetail, width: int) -> list[Row]:
    """With one attempt there is nothing to tell that the title does not."""
    if len(known.attempts) < 2 and not any(made.adoptions for made in known.attempts):
        return []
    columns = Columns(
        (
            Column("ATTEMPT", 7, right=True),
            Column("outcome", 14),
            Column("took", 8, right=True),
            Column("host MiB", 8, right=True),
            Column(_WHY, 24, grows=True),
        ),
        width,
    )
    after = {step.attempt: step.body for step in known.steps}
    rows = (row for made in known.attempts for row in _attempt(made, after.get(made.number), columns))
    return [columns.heading(), *rows]


def _attempt(made: Attempt, step: Mapping[str, Any] | None, columns: Columns) -> list[Row]:
    outcome = (made.outcome or "going on").replace("_", " ")
    bad = made.outcome not in (None, "succeeded", "cancelled")
    parts = [made.reason, _changed(step)]
    if made.adoptions:
        parts.append(f"its supervisor was replaced {made.adoptions}×")
    before = (
        Piece(str(made.number)),
        Piece(outcome, "bad" if bad else "text"),
        Piece(duration(made.ended_at - made.started_at) if made.ended_at else ""),
        Piece("" if made.peak_host_mib is None else f"{made.peak_host_mib:,.0f}"),
    )
    return _to_its_end("; ".join(part for part in parts if part), columns, before)


def _changed(step: Mapping[str, Any] | None) -> str | None:
    fallback = (step or {}).get("fallback")
    if isinstance(fallback, dict):
        from kgops.planning.oom_fallbacks import fallback_line  # with all the rules, for a run in a hundred

        return f"→ {fallback_line(fallback)}"
    settings = (step or {}).get("settings")
    if not isinstance(settings, dict) or not settings:
        return None
    return "→ " + ", ".join(f"{name}={value}" for name, value in settings.items())
