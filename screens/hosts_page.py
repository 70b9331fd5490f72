"""Rows of the hosts screen: each host's GPUs below its name, and the runs of all hosts in one list."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from kgops.hosts.rows import number, sorted_gpus, text, users_of
from kgops.views.formats import UNKNOWN, age, amount, duration
from screens.rows import BLANK, Column, Columns, Piece, Row, text_row
from screens.wording import sign_of_state

if TYPE_CHECKING:
    from kgops.hosts.mirror import HostState, Reach
    from kgops.hosts.protocol import Row as Fields

__all__ = ["HostsPage"]

_Placed = tuple[tuple[int, float], str, str]  # place, host, run

_MOST_RUNS = 300
_BAR, _NAME = 20, 14
_ORDER = ("running", "starting", "queued")
_NO_HOSTS = (
    "No host is named yet. In a shell:",
    "",
    "  kgops hosts add lab1 user@host     or an alias of ~/.ssh/config",
    "  kgops hosts check                  says what answers",
)


class HostsPage:
    """Draws the rows. What a host said nothing new about is kept from the last time: twenty hosts have 500 rows, of
    which a second changes a few."""

    def __init__(self) -> None:
        self._width = 0
        self._gpu_rows: dict[str, tuple[HostState, dict[str, tuple[Fields, Row]]]] = {}
        self._run_rows: dict[tuple[str, str], tuple[Fields, Reach, Row]] = {}
        self._run_order: dict[str, tuple[dict[str, Fields], list[_Placed]]] = {}

    def rows(self, states: Sequence[HostState], width: int, now: float) -> list[Row]:
        if not states:
            return [text_row(line, width) for line in _NO_HOSTS]
        if width != self._width:
            self._width = width
            self._gpu_rows, self._run_rows = {}, {}
        return [*self._gpus(states, width, now), BLANK, *self._runs(states, width, now)]

    def _gpus(self, states: Sequence[HostState], width: int, now: float) -> list[Row]:
        columns = Columns(
            (
                Column("GPUS", _NAME),
                Column("memory", _BAR),
                Column("MiB", 15, right=True),
                Column("util", 4, right=True),
                Column("°C", 3, right=True),
                Column("who", 12, grows=True),
            ),
            width,
        )
        out = [columns.heading()]
        for state in states:
            out += [_host(state, width, now), *_alerts(state, width), *self._gpus_of(state, columns)]
        return out

    def _gpus_of(self, state: HostState, columns: Columns) -> list[Row]:
        before, drawn = self._gpu_rows.get(state.name, (None, {}))
        if before is None or not _is_same(before, state, "gpu", "process"):
            kept = drawn if before is not None and _is_same(before, state, "process") else {}
            drawn = {}
            for label, fields in sorted_gpus(state):
                known = kept.get(label)
                if known is None or known[0] is not fields:
                    known = (fields, _gpu(label, fields, state, columns))
                drawn[label] = known
            self._gpu_rows[state.name] = state, drawn
        return [row for _, row in drawn.values()]

    def _runs(self, states: Sequence[HostState], width: int, now: float) -> list[Row]:
        columns = Columns(
            (
                Column("RUNS", _NAME),
                Column("run", 6, right=True),
                Column("workload", 8),
                Column("state", 13),
                Column("label", 16, grows=True),
                Column("progress", 8, right=True),
                Column("time", 9, right=True),
                Column("metric", 20),
            ),
            width,
        )
        by_name = {state.name: state for state in states}
        placed = list(islice(merge(*map(self._placed, states)), _MOST_RUNS))
        if not placed:
            return [columns.heading(), text_row("no run on these hosts", width, "dim")]
        drawn = self._run_rows
        self._run_rows = {}
        out = [columns.heading()]
        for _, name, key in placed:
            state = by_name[name]
            fields = state.rows("run")[key]
            known = drawn.get((name, key))
            if (
                known is None
                or known[0] is not fields
                or known[1] != state.reach
                or not fields.get("ended_at")
            ):
                known = (fields, state.reach, _run(state, key, fields, columns, now))
            self._run_rows[name, key] = known
            out.append(known[2])
        return out

    def _placed(self, state: HostState) -> list[_Placed]:
        """The host's runs in the order of the list."""
        table = state.rows("run")
        known = self._run_order.get(state.name)
        if known is None or known[0] is not table:
            order = sorted((_place(fields, int(key)), state.name, key) for key, fields in table.items())
            known = self._run_order[state.name] = (table, order)
        return known[1]


def _is_same(one: HostState, other: HostState, *tables: str) -> bool:
    return one.reach == other.reach and all(one.rows(name) is other.rows(name) for name in tables)


def _host(state: HostState, width: int, now: float) -> Row:
    key = ("host", state.name)
    if state.reach == "live":
        problem = text(state.rows("host").get("host", {}).get("problem"))
        words = "".join(f"  {one}" for one in (state.other_version, problem) if one)
        return text_row(f"{state.name}{words}", width, "strong", key=key)
    if state.reach == "connecting" and state.heard_at is None:
        return text_row(f"{state.name}  connecting …", width, "dim", key=key)
    old = f", shown as of {age(state.heard_at, now)} ago" if state.heard_at is not None else ""
    words = f"{state.name}  does not answer{old}: {state.problem or 'no line came in time'}"
    return text_row(words + (f" → {state.hint}" if state.hint else ""), width, "dim", key=key)


def _alerts(state: HostState, width: int) -> list[Row]:
    tone = "warn" if state.reach == "live" else "dim"
    return [
        text_row(f"  ! {text(one.get('text'))}", width, tone)
        for one in state.rows("alert").values()
        if one.get("kind") in ("GPU", "disk", "no progress")
    ]


def _gpu(label: str, fields: Fields, state: HostState, columns: Columns) -> Row:
    plain = "text" if state.reach == "live" else "dim"
    indent = "    " if ":" in label else "  "
    name = text(fields.get("name")).removeprefix("NVIDIA ").removeprefix("Tesla ")
    used, total = number(fields.get("memory_used_mib")), number(fields.get("memory_total_mib"))
    problem = text(fields.get("problem"))
    hot = number(fields.get("temperature_c"))
    return columns.row(
        (
            Piece(f"{indent}{label} {name}", plain),
            _bar(used, total, number(fields.get("used_by_runs_mib")), state),
            Piece(f"{_whole(used)}/{_whole(total)}", plain),
            Piece(_whole(number(fields.get("utilization_percent"))), plain),
            Piece(_whole(hot), "warn" if hot is not None and hot >= 85 and plain == "text" else plain),
            Piece(problem or users_of(label, state.rows("process")), "bad" if problem else plain),
        ),
        ("gpu", state.name, label),
    )


def _bar(used: float | None, total: float | None, mine: float | None, state: HostState) -> Sequence[Piece]:
    """What runs hold, what others hold, and what is free."""
    if used is None or not total:
        return [Piece(f"{UNKNOWN:<{_BAR}}", "dim")]
    whole = max(min(round(_BAR * used / total), _BAR), int(used > 64))
    by_runs = max(min(round(_BAR * (mine or 0.0) / total), whole), 0)
    live = state.reach == "live"
    return [
        Piece("▇" * by_runs, "accent" if live else "dim"),
        Piece("▓" * (whole - by_runs), "other" if live else "dim"),
        Piece("·" * (_BAR - whole), "dim"),
    ]


def _place(fields: Fields, run: int) -> tuple[int, float]:
    """What runs, then what waits, then what ended last."""
    state = text(fields.get("state"))
    if state in _ORDER:
        return _ORDER.index(state), -run if state != "queued" else run
    return len(_ORDER), -(number(fields.get("ended_at")) or 0.0)


def _run(state: HostState, key: str, fields: Fields, columns: Columns, now: float) -> Row:
    plain = "text" if state.reach == "live" else "dim"
    of = text(fields.get("state"))
    sign, tone = sign_of_state(of)
    done, total = number(fields.get("done")), number(fields.get("total"))
    started, ended = number(fields.get("started_at")), number(fields.get("ended_at"))
    until = ended or (now if state.reach == "live" else state.heard_at or now)
    metric, value = text(fields.get("metric")), number(fields.get("metric_value"))
    return columns.row(
        (
            Piece(state.name, plain),
            Piece(key, plain),
            Piece(text(fields.get("workload")), plain),
            Piece(f"{sign} {of.replace('_', ' ')}", tone if plain == "text" else "dim"),
            Piece(text(fields.get("label")), plain),
            Piece(f"{100 * done / total:.0f} %" if done is not None and total and not ended else "", plain),
            Piece("" if started is None else duration(max(until - started, 0.0)), plain),
            Piece(f"{metric} {amount(value)}" if metric else "", plain),
        ),
        ("run", state.name, int(key)),
    )


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"
