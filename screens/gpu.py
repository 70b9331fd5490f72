"""GPU screen: who is on one GPU, with its MIG slices, processes and ten minutes of history."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from kgops.gpus.processes import sees_host_pids
from kgops.jobs.text import one_line
from kgops.present.formats import age
from kgops.present.gpu_cells import free, gpu_row
from kgops.present.gpus import signal_process
from kgops.present.process_columns import process_key
from kgops.present.rows import Row, text_row, title
from screens import gpu_page
from screens.actions import ScreenName
from screens.background import begin
from screens.copying import Copyable, of_gpu
from screens.dashboard_gpus import requestable
from screens.feed_state import DASHBOARD, FeedState
from screens.run_screen import RunScreenBase
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from kgops.present.gpus import GpuProcess, GpuUsage
    from screens.feed_state import Wanted
    from storage.runs import Run


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
            else gpu_page.rows(usage, self._state, width, body.lines_of_room - body.draws_panels)
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
