"""Hosts screen: GPUs and runs of all hosts, each as its own feed tells them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.message import Message

from kgops.hosts.mirror import HostState
from kgops.hosts.registry import Host
from kgops.hosts.rows import OUTDATED, gpu_of, is_outdated, number, process_of, run_of, sorted_gpus, text
from kgops.present import gpu_cells
from kgops.present.columns import ON_HOSTS, RunTable, own
from kgops.present.formats import age, fitted, width_of
from kgops.present.process_columns import OF_A_HOST, process_rows
from kgops.present.rows import BLANK, Column, Columns, Piece, Row, text_row, title
from kgops.present.wording import alert_row
from screens.actions import ScreenName
from screens.background import begin
from screens.feed_state import FeedState
from screens.host_run import ChangesHostRuns, HostedRun
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.hosts.mirror import HostState
    from kgops.hosts.protocol import Row as Fields
    from kgops.hosts.watch import Watch
    from kgops.settings import Home
    from screens.app import KgopsApp
    from screens.feed_state import Wanted

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


def page(
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


_AGES_EVERY_S = 5.0


class HostsChanged(Message):
    """A host said something new; a newer message replaces an older one in the queue."""

    def __init__(self, states: Sequence[HostState]) -> None:
        super().__init__()
        self.states = states

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, HostsChanged)


class Hosts(ChangesHostRuns):
    """Reads no connection itself: what hangs is waited for by the watch's thread."""

    screen_name: ClassVar[ScreenName] = "hosts"

    def __init__(self, app: KgopsApp, hosts: Sequence[Host]) -> None:
        super().__init__()
        self._states: Sequence[HostState] = tuple(HostState(host.name, host.address) for host in hosts)
        self._hosts = {host.name: host for host in hosts}
        self._waiting: Sequence[HostState] | None = None  # what came while the console was paused
        self._opened: set[tuple[str, str]] = set()  # GPUs whose processes are listed
        self._shows_ages = False
        self._home = app.home
        self._watch: Watch | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body", cursor=True, panels=True)
        yield Keys()

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return None  # nothing of this machine

    @property
    def _key(self) -> object:
        return next((body.key for body in self.query("#body").results(Lines)), None)

    @property
    def host_here(self) -> str | None:
        key = self._key  # ("gpu", host, …), and so for a host and a run
        return key[1] if isinstance(key, tuple) else None

    @property
    def chosen(self) -> HostedRun | None:
        """The run under the cursor, as its host described it last."""
        key = self._key
        if not isinstance(key, tuple) or key[0] != "run":
            return None
        state = next((one for one in self._states if one.name == key[1]), None)
        fields = state.rows("run").get(str(key[2])) if state is not None else None
        return None if fields is None else HostedRun(self._hosts[key[1]], run_of(key[2], fields))

    @property
    def opens(self) -> bool:
        return self.chosen is not None or self._gpu is not None

    @property
    def _gpu(self) -> tuple[str, str] | None:
        """The GPU under the cursor, by host and number."""
        key = next((body.key for body in self.query("#body").results(Lines)), None)
        return (key[1], key[2]) if isinstance(key, tuple) and key[0] == "gpu" else None

    def open_chosen(self) -> None:
        """Shows the run under the cursor, where it is, or lists the processes of the GPU."""
        if self._gpu is not None:
            self._opened ^= {self._gpu}
            self.draw()
        elif self.chosen is not None:
            from screens.host_run import HostRun

            self.app.push_screen(HostRun(self.chosen))

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)

    def on_lines_chosen(self) -> None:
        self.open_chosen()

    def show_state(self, state: FeedState) -> None:
        pass

    def title_row(self, width: int) -> Row:
        live = sum(state.reach == "live" for state in self._states)
        active = sum(
            run.get("state") in ("running", "starting")
            for state in self._states
            if state.reach == "live"
            for run in state.rows("run").values()
        )
        right = f"{live} of {len(self._states)} answer · {active} running" if self._states else ""
        return title("hosts", right, width)

    def draw(self) -> None:
        rows = page(
            self._states,
            self.query_one("#body", Lines).room,
            time.time(),
            opened=self._opened,
        )
        self.query_one("#body", Lines).show(rows)
        self.show_title()

    def on_mount(self) -> None:
        self.set_interval(_AGES_EVERY_S, self._draw_ages)
        self.draw()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.call_after_refresh(self._begin_watching)  # twenty clients start: after the first picture

    def on_unmount(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def on_hosts_changed(self, message: HostsChanged) -> None:
        if not self.is_running:
            return
        if self.kgops.feed.paused:
            self._waiting = message.states
            return
        self._states, self._waiting = message.states, None
        self.draw()

    def show_title(self) -> None:
        """Also called when the pause ends."""
        if self._waiting is not None and not self.kgops.feed.paused:
            self._states, self._waiting = self._waiting, None
            self.draw()
            return
        super().show_title()

    # --- key actions ---

    def action_retry(self) -> None:
        """Tries hosts that do not answer at once, and settles states that may be outdated."""
        if self._watch is not None:
            self._watch.try_now()
        self.kgops.say("trying again")
        if outdated := [self._hosts[state.name] for state in self._states if is_outdated(state)]:
            begin(self.app, lambda: asyncio.to_thread(_settle, self._home, outdated))

    def _begin_watching(self) -> None:
        if self._watch is None and self.is_running:
            from kgops.hosts.watch import Watch

            self._watch = Watch(self._home, list(self._hosts.values()), self._post, self.kgops.raise_in_app)
            self._watch.start()

    # --- called from the watch's thread ---

    def _post(self, states: Sequence[HostState]) -> None:
        self.post_message(HostsChanged(states))

    def _draw_ages(self) -> None:
        if self._watch is None or self._waiting is not None or self.kgops.feed.paused:
            return
        now, states = time.time(), self._watch.states
        are_old = any(state.reach != "live" or is_late(state, now) for state in states)
        if are_old or self._shows_ages:
            self._states, self._shows_ages = states, are_old
            self.draw()


def _settle(home: Home, hosts: Sequence[Host]) -> None:
    """A listing there settles its runs; what it says comes by the feed."""
    from kgops.hosts.ask import ask

    ask(home, hosts, ("runs", "--limit=1"))
