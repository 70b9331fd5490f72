"""The columns of lists of runs: commands print them, screens draw them, and both sort by their keys.

A new field of a run is a field of `storage.runs.Run`, a column here, and its place in the lists at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kgops.present.formats import amount, duration, local_time, reported, table
from kgops.present.rows import Column, Columns, Piece, Row
from kgops.present.wording import metric_of, short_time, sign_of, speed_of, took

if TYPE_CHECKING:
    from storage.runs import Run


class RunColumn(NamedTuple):
    """`key` is the name of its value in the record, in --json and CSV, and to sort by."""

    key: str
    column: Column  # on screens
    text: Callable[[Run, float], str]  # in commands, as of this time
    short: Callable[[Run, float, int], Piece] | None = None  # on screens, in so many columns, if not the text
    title: str = ""  # in commands, if not the head in capitals

    def of(self, width: int, head: str | None = None, *, grows: bool | None = None) -> RunColumn:
        """The same column in another list of a screen."""
        column = self.column
        return self._replace(
            column=column._replace(
                width=width,
                head=column.head if head is None else head,
                grows=column.grows if grows is None else grows,
            )
        )

    def piece(self, run: Run, now: float, width: int) -> Piece:
        return Piece(self.text(run, now)) if self.short is None else self.short(run, now, width)


class RunTable(Columns):
    """The columns of a list of runs that fit a screen."""

    def __init__(self, columns: Sequence[RunColumn], width: int) -> None:
        super().__init__([one.column for one in columns], width)
        self._of_runs = columns

    def run_row(self, run: Run, now: float, key: Hashable, **cells: Piece | Sequence[Piece]) -> Row:
        """`cells`: by the keys of columns, pieces that the screen shows instead."""
        pairs = zip(self._of_runs, self.fitting, strict=False)
        return self.row(
            [
                cells[one.key] if one.key in cells else one.piece(run, now, column.width)
                for one, column in pairs
            ],
            key,
        )


def lines(
    columns: Sequence[RunColumn], runs: Iterable[Run], now: float, *, hosts: Sequence[str] = ()
) -> list[str]:
    """Aligned lines for a command, below a heading; `hosts`: the name of each run's."""
    rows = [[one.text(run, now) for one in columns] for run in runs]
    heads = [one.title or one.column.head.upper() for one in columns]
    right = {head for head, one in zip(heads, columns, strict=True) if one.column.right}
    if hosts:
        heads, rows = ["HOST", *heads], [[host, *row] for host, row in zip(hosts, rows, strict=True)]
    return table(heads, rows, right=frozenset(right))


def metric_column(
    name: str, values: Mapping[int, float | None], of_validation: Collection[int] = ()
) -> RunColumn:
    """A metric that a person asked for; `values` by run, and the runs whose value is of the validation."""

    def text(run: Run, now: float) -> str:
        return ("valid " if run.id in of_validation else "") + amount(values.get(run.id))

    return RunColumn(name, Column(name, 14, right=True), text, title=name)


def own(key: str, head: str, width: int, *, right: bool = False, grows: bool = False) -> RunColumn:
    """A column whose cells the screen gives."""
    return RunColumn(key, Column(head, width, right, grows), lambda run, now: "")


def _plain(key: str, column: Column, tone: str = "text", *, title: str = "") -> RunColumn:
    def text(run: Run, now: float) -> str:
        return str(getattr(run, key) or "")

    return RunColumn(key, column, text, lambda run, now, width: Piece(text(run, now), tone), title)


def _mib(key: str, head: str) -> RunColumn:
    def short(run: Run, now: float, width: int) -> Piece:
        mib = getattr(run, key)
        return Piece("" if mib is None else f"{mib:,.0f}")

    column = Column(head, 8, right=True, by=key, descending=True)
    return RunColumn(key, column, lambda run, now: amount(getattr(run, key)), short)


def _state(run: Run, now: float, width: int) -> Piece:
    sign = sign_of(run)
    return sign if width == 1 else sign._replace(text=f"{sign.text} {run.state.replace('_', ' ')}")


def _took(run: Run, now: float, width: int) -> Piece:
    """Duration of an ended run, otherwise its state: a running time would change every second."""
    if not run.ended:
        return Piece("waiting" if run.state == "queued" else "running", "accent")
    seconds = run.took_s
    if seconds is None:
        return Piece("")
    hours = int(seconds) // 3600
    return Piece(took(run) if hours < 24 else f"{hours // 24}d {hours % 24}h")


def _time(run: Run, now: float) -> str:
    return duration(run.took_until(now))


def _time_so_far(run: Run, now: float, width: int) -> Piece:
    return Piece("" if run.took_until(now) is None else _time(run, now))


def _metric(run: Run, now: float) -> str:
    return f"{run.metric} {reported(run.metric_value)}" if run.metric else ""


def _label_and_reason(run: Run, now: float) -> str:
    if not run.reason or run.state == "cancelled":
        return run.label
    return f"{run.label}  ({'waits for ' if run.state == 'queued' else ''}{run.reason})"


def _reason(run: Run, now: float, width: int) -> Piece:
    is_bad = run.ended and run.state not in ("succeeded", "cancelled")
    return Piece(run.reason or "", "bad" if is_bad else "dim")


def _progress(run: Run, now: float) -> str:
    if run.done is None or not run.total or run.ended:
        return ""
    return f"{100 * run.done / run.total:.0f} %"


ID = _plain("id", Column("RUN", 8, right=True, by="id", descending=True))
NUMBER_AND_WORKLOAD = RunColumn(
    "who",
    Column("RUN", 12),
    lambda run, now: f"{run.id} {run.workload}",
    lambda run, now, width: Piece(f"{run.id} {run.workload}", "dim" if run.ended else "accent"),
)
STATE = RunColumn("state", Column(" ", 1, by="state"), lambda run, now: run.state, _state, "STATE")
WORKLOAD = _plain("workload", Column("workload", 9, by="workload"), "dim")
LABEL = _plain("label", Column("label", 17, grows=True, by="label"))
LABEL_AND_REASON = RunColumn("label", LABEL.column, _label_and_reason)
SUBMITTED = RunColumn(
    "submitted_at",
    Column("submitted", 10, by="submitted_at", descending=True),
    lambda run, now: local_time(run.submitted_at),
    lambda run, now, width: Piece(short_time(run.submitted_at, now), "dim"),
)
TOOK = RunColumn("time", Column("took", 7, right=True, by="time", descending=True), _time, _took)
TIME = TOOK._replace(column=Column("time", 9, right=True), short=_time_so_far)
CPU = RunColumn(
    "host_cpu_s",
    Column("CPU", 8, right=True, by="host_cpu_s", descending=True),
    lambda run, now: duration(run.host_cpu_s),
    lambda run, now, width: Piece("" if run.host_cpu_s is None else duration(run.host_cpu_s)),
)
PROGRESS = RunColumn("progress", Column("progress", 8, right=True), _progress)
METRIC = RunColumn(
    "metric_value",
    Column("metric", 14, by="metric_value", descending=True),
    _metric,
    lambda run, now, width: Piece(metric_of(run, width)),
)
RATE = RunColumn("rate", Column("rate", 16, right=True), lambda run, now: speed_of(run))
PEAK_GPU = _mib("peak_gpu_mib", "GPU MiB")
PEAK_HOST = _mib("peak_host_mib", "host MiB")
REASON = RunColumn(
    "reason", Column("why", 19, grows=True, by="reason"), lambda run, now: run.reason or "", _reason
)
PROFILE = _plain("profile", Column("profile", 9, by="profile"), "dim")
TAGS = own("tags", "tags", 14)

# The lists, from the left.
HISTORY: tuple[RunColumn, ...] = (
    ID, STATE, WORKLOAD, LABEL, SUBMITTED, TOOK, METRIC, PEAK_GPU, PEAK_HOST, REASON, PROFILE, TAGS, CPU,
)  # fmt: skip
PRINTED = (ID, WORKLOAD, STATE, SUBMITTED, TIME, CPU, METRIC, LABEL_AND_REASON)
ON_HOSTS = (
    ID.of(6, "run"), WORKLOAD.of(8), STATE.of(13, "state"), LABEL_AND_REASON.of(16), PROGRESS, TIME, METRIC.of(20),
    CPU,
)  # fmt: skip
