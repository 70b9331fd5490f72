"""Run screen: five pages about one run, the first with its log below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from textual.app import ComposeResult
from textual.binding import Binding

from kgops.jobs.text import one_line
from kgops.present import run_sections
from kgops.present.formats import duration, fitted, local_time, padded, value_text, width_of
from kgops.present.overview import eta_s
from kgops.present.rows import BLANK, Piece, Row, drawn, drawn_facts, stacked, text_row, text_rows
from kgops.present.wording import attempt_of, metric_of, progress_of, sign_of, since, speed_of, state_of, took
from kgops.supervisor.run_folder import RunFolder
from screens.actions import ScreenName
from screens.background import begin
from screens.copying import Copyable
from screens.feed_state import FeedState, OneRun
from screens.marked_chart import MarksCharts
from screens.run_actions import ChangesRuns
from screens.run_log import RunLog
from screens.run_screen import RunScreenBase
from screens.widgets.bar import share_bar
from screens.widgets.curve_panels import chart_names, panels
from screens.widgets.keys import Keys
from screens.widgets.lines import Lines

if TYPE_CHECKING:
    from pathlib import Path

    from kgops.present.rows import Section
    from kgops.present.run_detail import RunDetail
    from screens.feed_state import Wanted
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


_NEXT = {
    "app.predictions": "ask the model",
    "app.influences": "trace a prediction",
    "screen.evaluate": "evaluate",
    "screen.resume": "resume",
    "screen.again": "again",
    "app.new": "change and start",
}


class RunView(RunScreenBase):
    """Pages of a run. A subclass says where they and the log come from."""

    tab: Tab = "curves"
    chart: str | None = None  # the marked one, where a screen marks charts
    BINDINGS = [  # noqa: RUF012
        Binding("tab", "turn(1)", show=False),
        Binding("shift+tab", "turn(-1)", show=False),
        Binding("right_square_bracket", "next_hit(1)", show=False),
        Binding("left_square_bracket", "next_hit(-1)", show=False),
    ]

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._detail: RunDetail | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="tabs")
        yield Lines(id="body", scrolls=True, panels=True)
        yield RunLog(self.log_path)
        yield Keys()

    @property
    def run_log(self) -> RunLog:
        return self.query_one(RunLog)

    @property
    def log_path(self) -> Path:
        raise NotImplementedError

    @property
    def run_name(self) -> str:
        return str(self._run.id)

    @property
    def copyable(self) -> list[Copyable]:
        texts = super().copyable
        command = self._detail.job.get("exec", {}).get("command") if self._detail is not None else None
        if command:
            texts.append(Copyable("e", "executed command", value_text(command)))
        return texts

    def action_tab(self, tab: Tab) -> None:
        self.tab = tab
        body, log = self.query_one("#body", Lines), self.run_log
        body.display, log.display = tab != "log", tab in ("curves", "log")
        log.set_class(tab == "log", "alone")
        (log.lines if tab == "log" else body).focus()
        self.draw()
        body.action_edge(False)

    def action_turn(self, by: int = 1) -> None:
        at = TABS.index(self.tab) + by
        self.action_tab(TABS[at % len(TABS)])

    def action_log(self) -> None:
        self.action_tab("curves" if self.tab == "log" else "log")

    def action_search(self) -> None:
        if not self.run_log.display:
            self.action_tab("log")
        self.run_log.search()

    def action_level(self) -> None:
        self.run_log.next_level()

    def action_next_hit(self, step: int) -> None:
        self.run_log.next_hit(step)

    def title_row(self, width: int) -> Row:
        run = self._run
        when = took(run) if run.ended else since(run)
        sign = sign_of(run)
        words = f"{self.run_name} {run.workload} {one_line(run.label, max(width - 50, 12))}"
        tone = "text" if sign.tone == "accent" else sign.tone
        return Row(
            (
                Piece(words, "strong"),
                Piece("  "),
                sign,
                Piece(f" {state_of(run)}", tone),
                Piece("".join(f"  {text}" for text in (attempt_of(run), when) if text), "dim"),
            )
        )

    @property
    def next_steps(self) -> list[tuple[str, str, str]]:
        """What a person does with a run that has ended: key, words and action."""
        if not self._run.ended:
            return []
        has_model = self.allows("app.predictions")
        offered = [one for one in self.offered if has_model or one.does != "app.influences"]
        return [(one.sign, _NEXT[one.does], one.does) for one in offered if one.does in _NEXT]

    def draw(self) -> None:
        if self._detail is not None:
            body = self.query_one("#body", Lines)
            page = rows(self._detail, body.room, body.lines_of_room, self.tab, self.chart, self.next_steps)
            body.show(page)
            self.query_one("#tabs", Lines).show([tabs(self._detail, self.tab)])
        self.run_log.grows(not self._run.ended)
        self.show_title()


class RunScreen(RunView, ChangesRuns, MarksCharts):
    screen_name: ClassVar[ScreenName] = "run"

    @property
    def log_path(self) -> Path:
        return RunFolder(self.kgops.home.runs / self._run.folder).log

    @property
    def wanted(self) -> Wanted:
        return OneRun(self._run.id)

    @property
    def subject(self) -> Run:
        return self._run

    def open_new_run(self) -> None:
        """With the job of this run in its fields."""
        begin(self.app, self._change_job)

    async def _change_job(self) -> None:
        from screens import run_calls  # imports half of kgops

        run = self._run
        found = await self.kgops.carry_out(lambda session: run_calls.draft_of(session, run))
        if found is None:
            return
        draft, left_out = found
        remark = f"no fields for {left_out}; `a` starts the whole job again" if left_out else ""
        self.kgops.open_draft(draft, remark)

    def action_evaluate(self) -> None:
        from screens import run_calls

        run = self._run
        self.start_and_open(lambda session: run_calls.evaluate(session, run))

    def show_state(self, state: FeedState) -> None:
        if state.wanted != self.wanted:
            return
        if state.detail is None:
            self.say(state.error_text or f"run {self._run.id} is no longer in the record", "bad")
            return
        self._detail, self._run = state.detail, state.detail.run
        self.draw()

    def draw(self) -> None:
        charts = self.charts
        self.chart = self.chart if self.chart in charts else next(iter(charts), None)
        super().draw()

    # --- charts ---

    @property
    def charts(self) -> list[str]:
        if self._detail is None or self.tab not in ("curves", "memory"):
            return []
        return chart_names(self._detail, MEMORY if self.tab == "memory" else "")

    @property
    def charted_runs(self) -> tuple[int, ...]:
        return (self._run.id,)

    @property
    def opens(self) -> bool:
        return bool(self.charts)

    def open_chosen(self) -> None:
        if self.chart is not None:
            self.zoom(self.chart)
