"""GPU screen: who is on one GPU, with its MIG slices, processes and ten minutes of history."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.gpus.processes import sees_host_pids
from kgops.jobs.text import one_line
from kgops.present.formats import age, amount, whole
from kgops.present.gpu_cells import free, gpu_row, load, memory_bar, pressure
from kgops.present.gpus import signal_process
from kgops.present.process_columns import OF_ONE_GPU, OF_SLICES, process_key, process_rows
from kgops.present.rows import BLANK, Piece, Row, beside, stacked, text_row, text_rows, title
from screens.actions import ScreenName
from screens.background import begin
from screens.copying import Copyable, of_gpu
from screens.dashboard_gpus import MINUTES, expected_start_of, gpu_chart, requestable, waiting_mib_of
from screens.feed_state import DASHBOARD, FeedState
from screens.run_screen import RunScreenBase
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.present.gpus import GpuProcess, GpuUsage
    from screens.feed_state import FeedState, Wanted
    from storage.runs import Run

_AXIS = 8
_LEAST_HEIGHT, _MOST_HEIGHT = 5, 12  # lines of a curve
_HOTTEST_C = 100.0
_SIDE_BY_SIDE = 110  # columns from which both curves stand in one line


def page(usage: GpuUsage, state: FeedState, width: int, height: int) -> list[Row]:
    """Curves are as tall as `height` allows below the processes."""
    if usage.reading.problem is not None:
        problem = usage.reading.problem
        return [text_row(problem.message, width, "bad"), text_row(f"→ {problem.hint}", width)]
    sections = [_memory(usage, state, width), _processes(usage, width)]
    if state.unusable is not None:
        why = text_rows(state.unusable.why, width)
        sections.insert(0, [text_row(state.unusable.headline, width, "warn"), *why])
    taken = sum(len(section) + 1 for section in sections)
    sections.append(_history(usage, state, width, height - taken))
    return stacked(sections)


# --- memory ---


def _memory(usage: GpuUsage, state: FeedState, width: int) -> list[Row]:
    start = expected_start_of(state)
    util, heat, power = load(gpu_row(usage))
    rows = [
        Row((Piece("MEMORY", "head"), Piece(f"  {_amount_of(usage)}"))),
        Row(tuple(memory_bar(gpu_row(usage), width, waiting_mib_of(usage, start)))),
        Row(tuple(_legend(usage))),
        Row(
            (
                Piece(f"{util.text} busy · "),
                Piece(f"{heat.text} °C", heat.tone),
                Piece(f" · {power.text} W"),
            )
        ),
    ]
    for part in usage.slices:
        name = (part.reading.name or "").partition("MIG ")[2]
        words = f"  {_amount_of(part)}  {one_line(name, 10)}"
        room = max(width - _AXIS - len(words), 10)
        bar = memory_bar(gpu_row(part), room, waiting_mib_of(part, start))
        rows.append(Row((Piece(f"{part.label:<{_AXIS}}", "head"), *bar, Piece(words))))
    if start is not None and start.gpu == usage.label:
        rows.append(text_row(f"run {start.run} waits for {start.need_mib:,} MiB", width, "accent"))
    return rows


def _amount_of(usage: GpuUsage) -> str:
    return f"{whole(usage.reading.memory_used_mib)} of {whole(usage.usable_mib)} MiB"


def _legend(usage: GpuUsage) -> list[Piece]:
    used, mine = usage.reading.memory_used_mib, usage.used_by_runs_mib
    others = None if used is None or mine is None else max(used - mine, 0)
    tone = pressure(gpu_row(usage))
    pieces = [
        Piece("▇", tone),
        Piece(f" by runs {amount(mine, 'MiB')}   "),
        Piece("▓", f"{tone}-others"),
        Piece(f" by others {amount(others, 'MiB')}"),
    ]
    if usage.reserved_mib:
        pieces += [
            Piece("   "),
            Piece("░", f"{tone}-reserved"),
            Piece(f" reserved by runs {usage.reserved_mib:,} MiB"),
        ]
    return pieces


# --- processes ---


def _processes(usage: GpuUsage, width: int) -> list[Row]:
    columns = OF_SLICES if usage.slices else OF_ONE_GPU
    rows = process_rows(columns, usage.processes or (), width, time.time())
    if usage.processes is None:
        return [*rows, text_row("n/a: the driver does not list its processes", width, "dim")]
    return rows if usage.processes else [*rows, text_row(_nobody(usage), width, "dim")]


def _nobody(usage: GpuUsage) -> str:
    used = usage.reading.memory_used_mib or 0
    return (
        "n/a: memory is in use, and no process is visible from here"
        if used > 64
        else "no process uses this GPU"
    )


# --- history ---


def _history(usage: GpuUsage, state: FeedState, width: int, room: int) -> list[Row]:
    curve = state.curves.get(usage.reading.index)
    if curve is None:
        return []
    charts = [
        ("memory MiB", curve.memory_mib, float(usage.usable_mib or 0)),
        ("utilization %", curve.utilization, 100.0),
        ("temperature °C", curve.temperature_c, _HOTTEST_C),
        ("power W", curve.power_w, usage.reading.power_limit_w or 0.0),
    ]
    across = 2 if width >= _SIDE_BY_SIDE else 1
    down = 2 if room >= 2 * (_LEAST_HEIGHT + 3) else 1  # each has a title, an axis and a line between
    each = (width - 3 * (across - 1)) // across
    height = min(max((room - down) // down - 2, _LEAST_HEIGHT), _MOST_HEIGHT)
    drawn = [gpu_chart(*chart, each, height) for chart in charts[: across * down]]
    rows = [text_row(f"LAST {MINUTES} MINUTES", width, "head")]
    for first in range(0, len(drawn), across):
        rows += [BLANK] if first else []
        rows += [beside(lines) for lines in zip(*drawn[first : first + across], strict=True)]
    return rows


class GpuScreen(RunScreenBase):
    screen_name: ClassVar[ScreenName] = "gpu"

    def __init__(self, index: int, state: FeedState) -> None:
        """`state`: what the feed read last, to be shown at once."""
        super().__init__()
        self._index, self._state = index, state

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="body", cursor=True, panels=True)
        yield Keys()

    # --- overrides ---

    @property
    def wanted(self) -> Wanted:
        return DASHBOARD  # the same readings

    @property
    def subject(self) -> Run | None:
        """The run of the process under the cursor."""
        process, overview = self._process, self._state.overview
        if process is None or overview is None:
            return None
        return next((one.run for one in overview.running if one.run.id == process.run), None)

    def show_state(self, state: FeedState) -> None:
        if state.wanted == DASHBOARD and state.gpus is not None:
            self._state = state
            self.draw()

    def title_row(self, width: int) -> Row:
        usage = self._usage
        suited = [] if usage is None else [free(gpu_row(usage)).text, f"profile {usage.profile}"]
        if usage is None or usage.slices or usage.reading.problem is not None or self._state.unusable:
            suited = []
        name = "" if usage is None else one_line(usage.reading.name or "n/a", 60)
        count = len(usage.processes or ()) if usage is not None else 0
        right = f"{count} process{'' if count == 1 else 'es'}" if count else ""
        return title(" · ".join([f"GPU {self._index}", name, *suited]), right, width)

    def draw(self) -> None:
        body = self.query_one("#body", Lines)
        usage, width = self._usage, body.room
        rows = (
            [text_row(f"the driver reports no GPU {self._index}", width, "dim")]
            if usage is None
            else page(usage, self._state, width, body.lines_of_room - body.draws_panels)
        )
        body.show(rows)
        self.show_title()

    def on_mount(self) -> None:
        self.draw()

    def on_lines_pointed(self) -> None:
        self.query_one(Keys).offer(self.offered)

    def on_lines_chosen(self) -> None:
        self.open_chosen()

    @property
    def gpu_here(self) -> str | None:
        return None if self._usage is None else requestable(self._usage, self._state)

    # --- key actions ---

    @property
    def _usage(self) -> GpuUsage | None:
        return next((one for one in self._state.gpus or () if one.reading.index == self._index), None)

    @property
    def _process(self) -> GpuProcess | None:
        key = self.query_one("#body", Lines).key
        listed = self._usage.processes if self._usage is not None else None
        return next((one for one in listed or () if process_key(one) == key), None)

    @property
    def copyable(self) -> list[Copyable]:
        process, usage = self._process, self._usage
        texts = super().copyable
        if process is not None:
            texts.append(Copyable("p", "PID", str(process.pid)))
            texts += [Copyable("e", "executed command", process.command)] if process.command else []
        return texts if usage is None else [*texts, *of_gpu(usage)]

    def action_gpu(self, number: int = 0) -> None:
        """Shows another GPU."""
        self._index = number
        self.draw()

    def action_end(self) -> None:
        self._ask_to_signal(signal.SIGTERM)

    def action_kill(self) -> None:
        self._ask_to_signal(signal.SIGKILL)

    def _ask_to_signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            self.kgops.say("no process is under the cursor", "warn")
        elif not process.is_own or process.start_ticks is None:
            whose = f"belongs to {process.user}" if process.user else "is not visible from here"
            self.kgops.say(f"process {process.pid} {whose}: only your own can be ended", "warn")
        else:
            begin(self.app, lambda: self._signal(process, number))

    async def _signal(self, process: GpuProcess, number: signal.Signals) -> None:
        from screens.widgets.dialogs import Confirmation

        what = one_line(process.command or "n/a", 40)
        of_run = "" if process.run is None else f" of run {process.run}"
        unsure = "" if sees_host_pids() else "; PIDs may be the host's"
        old = age(process.started_at, time.time())
        question = f"send {number.name} to {process.pid}{of_run}, {what}, age {old}{unsure}?"
        if not await self.app.push_screen_wait(Confirmation(question)):
            return
        try:
            sent = await asyncio.to_thread(signal_process, process, number)
        except PermissionError as error:
            self.kgops.say(f"process {process.pid} was not signalled: {error.strerror}", "bad")
            return
        self.kgops.say(
            f"sent {number.name} to {process.pid}" if sent else f"process {process.pid} has ended already"
        )
