"""Rows of the hosts screen: each host's GPUs below its name, and the runs of all hosts in one list."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING

from kgops.hosts.rows import OUTDATED, gpu_of, is_outdated, number, process_of, run_of, sorted_gpus, text
from kgops.present import gpu_cells
from kgops.present.columns import ON_HOSTS, RunTable, own
from kgops.present.formats import age, fitted, width_of
from kgops.present.process_columns import OF_A_HOST, process_rows
from kgops.present.rows import BLANK, Column, Columns, Piece, Row, text_row
from kgops.present.wording import alert_row

if TYPE_CHECKING:
    from kgops.hosts.mirror import HostState
    from kgops.hosts.protocol import Row as Fields

_MOST_RUNS = 300
_BAR, _GAP = 20, 2
_NAMES, _WIDE = (14, 18), 110  # columns for names of hosts and GPUs, the wider ones from that many columns on
_LATE_S = 13.0  # a feed says every ten seconds that nothing changed
_OF_NOW = ("GPU", "disk", "no progress")
_ORDER = ("running", "starting", "queued")
_NO_HOSTS = (
    "No host is named yet. In a shell:",
    "",
    "  kgops hosts add lab1 user@host     or an alias of ~/.ssh/config",
    "  kgops hosts check                  says what answers",
)


def rows(
    states: Sequence[HostState],
    width: int,
    now: float,
    *,
    opened: Collection[tuple[str, str]] = (),
) -> list[Row]:
    """`opened`: GPUs whose processes are listed, by host and number."""
    if not states:
        return [text_row(line, width) for line in _NO_HOSTS]
    return [*_gpus(states, width, now, opened), BLANK, *_runs(states, width, now)]


def _gpus(
    states: Sequence[HostState], width: int, now: float, opened: Collection[tuple[str, str]]
) -> Iterator[Row]:
    columns = Columns(
        (
            Column("GPUS", _NAMES[width >= _WIDE]),
            Column("memory", _BAR),
            Column("MiB", 15, right=True),
            Column("util", 4, right=True),
            Column("°C", 3, right=True),
            Column("who", 12, grows=True),
        ),
        width,
    )
    yield columns.heading()
    for state in states:
        yield _host(state, width, now)
        yield from _alerts(state, width)
        for label, fields in sorted_gpus(state):
            yield _gpu(label, fields, state, columns)
            if (state.name, label) in opened:
                yield from _processes(state, label, width, now)


def _runs(states: Sequence[HostState], width: int, now: float) -> Iterator[Row]:
    """The first ones, in the order of the list."""
    columns = RunTable((own("host", "RUNS", _NAMES[width >= _WIDE]), *ON_HOSTS), width)
    yield columns.heading()
    every = [
        (_place(fields, int(key)), state.name, key, state)
        for state in states
        for key, fields in state.rows("run").items()
    ]
    if not every:
        yield text_row("no run on these hosts", width, "dim")
    for _, _, key, state in nsmallest(_MOST_RUNS, every, key=itemgetter(0, 1, 2)):
        yield _run(state, key, state.rows("run")[key], columns, now)


def _host(state: HostState, width: int, now: float) -> Row:
    key = ("host", state.name)
    if state.reach == "live":
        return Row(tuple(_of_live(state, width, now)), key)
    if state.reach == "connecting" and state.heard_at is None:
        return text_row(f"{state.name}  connecting …", width, "dim", key=key)
    old = f", shown as of {age(state.heard_at, now)} ago" if state.heard_at is not None else ""
    words = f"{state.name}  does not answer{old}: {state.problem or 'no line came in time'}"
    return text_row(words + (f" → {state.hint}" if state.hint else ""), width, "dim", key=key)


def _of_live(state: HostState, width: int, now: float) -> Iterator[Piece]:
    """The name, and what is not as it should be."""
    yield Piece(state.name, "strong")
    room = width - len(state.name)
    problem = text(state.rows("host").get("host", {}).get("problem"))
    words = [
        (state.other_version or "", "warn"),
        (problem, "bad"),
        (OUTDATED if is_outdated(state) else "", "warn"),
    ]
    if is_late(state, now):
        words.append((f"as of {age(state.heard_at, now)} ago", "dim"))
    for said, tone in words:
        if said and room > _GAP:
            yield Piece(fitted(f"{'':{_GAP}}{said}", room), tone)
            room -= width_of(said) + _GAP


def is_late(state: HostState, now: float) -> bool:
    """Whether a line is missing, of which at least one comes every few seconds."""
    return state.heard_at is not None and now - state.heard_at > _LATE_S


def _alerts(state: HostState, width: int) -> list[Row]:
    """Of this moment each, and of runs that ended badly the newest."""
    alerts = list(state.rows("alert").values())
    of_now = [one for one in alerts if one.get("kind") in _OF_NOW]
    ended = [one for one in alerts if one.get("kind") not in _OF_NOW]
    newest = [max(ended, key=lambda one: number(one.get("run")) or 0.0)] if ended else []
    more = f" (and {len(ended) - 1} more)" if len(ended) > 1 else ""
    rows = [
        alert_row(text(one.get("kind")), _alert(one) + (more if one in newest else ""), width - 2)
        for one in (*of_now, *newest)
    ]
    return [Row((Piece("  "), *_toned(row.pieces, state))) for row in rows]


def _toned(pieces: Sequence[Piece], state: HostState) -> Sequence[Piece]:
    """Grey if the host does not answer."""
    return pieces if state.reach == "live" else [piece._replace(tone="dim") for piece in pieces]


def _alert(fields: Fields) -> str:
    run = fields.get("run")
    return text(fields.get("text")) if run is None else f"run {run}: {text(fields.get('text'))}"


def _processes(state: HostState, label: str, width: int, now: float) -> list[Row]:
    """Below their GPU: who holds its memory, the largest first."""
    found = [process_of(one) for one in state.rows("process").values() if text(one.get("gpu")) == label]
    if not found:
        return [text_row("      no process", width, "dim")]
    heading, *rows = process_rows(OF_A_HOST, found, width, now)
    return [heading, *(Row(tuple(piece._replace(tone="dim") for piece in row.pieces)) for row in rows)]


def _gpu(label: str, fields: Fields, state: HostState, columns: Columns) -> Row:
    gpu = gpu_of(label, fields, state.rows("process"))
    util, heat, _ = gpu_cells.load(gpu)
    cells = (
        gpu_cells.name(gpu)._replace(text=f"  {gpu_cells.name(gpu).text}"),
        gpu_cells.memory_bar(gpu, _BAR),
        gpu_cells.memory(gpu),
        util,
        heat,
        Piece(gpu.problem, "bad") if gpu.problem else Piece(gpu_cells.users_in_full(gpu)),
    )
    row = columns.row(cells, ("gpu", state.name, label))
    return row._replace(pieces=tuple(_toned(row.pieces, state)))


def _place(fields: Fields, run: int) -> tuple[int, float]:
    """What runs, then what waits, then what ended last."""
    state = text(fields.get("state"))
    if state in _ORDER:
        return _ORDER.index(state), -run if state != "queued" else run
    return len(_ORDER), -(number(fields.get("ended_at")) or 0.0)


def _run(state: HostState, key: str, fields: Fields, columns: RunTable, now: float) -> Row:
    run, is_live = run_of(int(key), fields), state.reach == "live"
    cells = {"host": Piece(state.name)}
    if run.state in ("running", "starting") and is_outdated(state):
        cells["state"] = Piece(f"? {run.state}", "warn")
    now = now if is_live else state.heard_at or now
    name, *pieces = columns.run_row(run, now, None, **cells).pieces
    tone = "text" if is_live else "dim"
    return Row((name._replace(tone=tone), *_toned(pieces, state)), ("run", state.name, int(key)))
