"""Tables of a run's options and attempts, with reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kgops.jobs.text import one_line
from kgops.views.formats import UNKNOWN, duration
from screens.rows import Column, Columns, Piece, Row

if TYPE_CHECKING:
    from kgops.views.run_detail import OptionRow, RunDetail
    from storage.attempts import Attempt

__all__ = ["attempt_table", "option_table"]

_WHY = "why"
_WIDE = 100  # columns from which values are shown in full
_VALUE, _SHORT_VALUE = 15, 12
_WIDEST = 150  # columns; wider tables are hard to follow


def option_table(detail: RunDetail, width: int) -> list[Row]:
    """Empty for runs without options, as of `exec`."""
    if not detail.options:
        return []
    values = _VALUE if width >= _WIDE else _SHORT_VALUE
    columns = Columns(
        (
            Column("OPTION", 22),
            Column("requested", values),
            Column("applied", values),
            Column(_WHY, 20, grows=True),
            Column("by", 14),
            Column("effect", 15),
        ),
        min(width, _WIDEST),
    )
    return [columns.heading(), *(row for option in detail.options for row in _option(option, columns))]


def _option(option: OptionRow, columns: Columns) -> list[Row]:
    """If the applied value differs from the requested one, the reason is shown in full."""
    changed = option.requested not in (None, "auto") and option.applied not in (None, option.requested)
    before = (
        Piece(option.name),
        Piece(option.requested or UNKNOWN),
        Piece(option.applied or UNKNOWN, "warn" if changed else "text"),
    )
    after = Piece(option.by, "dim"), Piece(option.effect, "dim")
    if changed:
        return _wrapped_reason(option.why, columns, before, after)
    return [columns.row((*before, Piece(option.why, "dim"), *after))]


def _wrapped_reason(
    why: str, columns: Columns, before: Sequence[Piece], after: Sequence[Piece] = ()
) -> list[Row]:
    """A row with its reason, wrapped onto further lines."""
    room = columns.width_of(_WHY)
    first, *more = (textwrap.wrap(one_line(why), room) if room else []) or [""]
    indent = [Piece("")] * len(before)
    below = (columns.row((*indent, Piece(line))) for line in more)
    return [columns.row((*before, Piece(first), *after)), *below]


def attempt_table(detail: RunDetail, width: int) -> list[Row]:
    """Empty for a single attempt, which the title covers."""
    if len(detail.attempts) < 2 and not any(attempt.adoptions for attempt in detail.attempts):
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
    after = {step.attempt: step.body for step in detail.steps}
    rows = (
        row for attempt in detail.attempts for row in _attempt(attempt, after.get(attempt.number), columns)
    )
    return [columns.heading(), *rows]


def _attempt(attempt: Attempt, step: Mapping[str, Any] | None, columns: Columns) -> list[Row]:
    outcome = (attempt.outcome or "running").replace("_", " ")
    bad = attempt.outcome not in (None, "succeeded", "cancelled")
    parts = [attempt.reason, _changed_settings(step)]
    if attempt.adoptions:
        parts.append(f"its supervisor was replaced {attempt.adoptions}×")
    before = (
        Piece(str(attempt.number)),
        Piece(outcome, "bad" if bad else "text"),
        Piece(duration(attempt.ended_at - attempt.started_at) if attempt.ended_at else ""),
        Piece("" if attempt.peak_host_mib is None else f"{attempt.peak_host_mib:,.0f}"),
    )
    return _wrapped_reason("; ".join(part for part in parts if part), columns, before)


def _changed_settings(step: Mapping[str, Any] | None) -> str | None:
    fallback = (step or {}).get("fallback")
    if isinstance(fallback, dict):
        from kgops.planning.oom_fallbacks import fallback_line  # imports all rules; few runs need them

        return f"→ {fallback_line(fallback)}"
    settings = (step or {}).get("settings")
    if not isinstance(settings, dict) or not settings:
        return None
    return "→ " + ", ".join(f"{name}={value}" for name, value in settings.items())
