"""The columns of lists of processes on GPUs: commands print them, screens draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kgops.jobs.text import one_line
from kgops.present.formats import UNKNOWN, age, whole
from kgops.present.rows import Column, Columns, Piece, Row, printed, section

if TYPE_CHECKING:
    from kgops.present.gpus import GpuProcess

ProcessKey = tuple[str, int, int | None]


class ProcessColumn(NamedTuple):
    column: Column
    cell: Callable[[GpuProcess, float], Piece]  # as of this time


def lines(processes: Iterable[GpuProcess], now: float) -> list[str]:
    """An empty line and the table, for a command; nothing without a process."""
    rows = ([one.cell(process, now) for one in PRINTED] for process in processes)
    return printed(section((one.column for one in PRINTED), rows))


def process_rows(
    columns: Sequence[ProcessColumn], processes: Iterable[GpuProcess], width: int, now: float
) -> list[Row]:
    """The heading, and below it those with most memory first."""
    fitting = Columns([one.column for one in columns], width)
    ordered = sorted(processes, key=lambda one: (-(one.used_mib or 0), one.pid))
    cells = ([one.cell(process, now) for one in columns] for process in ordered)
    keys = map(process_key, ordered)
    return [fitting.heading(), *map(fitting.row, cells, keys)]


def process_key(process: GpuProcess) -> ProcessKey:
    return "process", process.pid, process.start_ticks


def _run(one: GpuProcess, now: float) -> Piece:
    return Piece("" if one.run is None else str(one.run), "accent")


def _user(one: GpuProcess, now: float) -> Piece:
    return Piece(one_line(one.user or UNKNOWN, 16), "other" if one.run is None else "accent")


def _command(one: GpuProcess, now: float) -> Piece:
    return Piece(one.command or UNKNOWN, "text" if one.is_own else "dim")


GPU = ProcessColumn(Column("GPU", 4), lambda one, now: Piece(one.gpu))
PID = ProcessColumn(Column("PID", 9, right=True), lambda one, now: Piece(str(one.pid)))
USER = ProcessColumn(Column("user", 12), _user)
MIB = ProcessColumn(Column("MiB", 7, right=True), lambda one, now: Piece(whole(one.used_mib)))
SM = ProcessColumn(Column("SM %", 4, right=True), lambda one, now: Piece(whole(one.sm_percent)))
CPU = ProcessColumn(Column("CPU %", 5, right=True), lambda one, now: Piece(whole(one.cpu_percent)))
AGE = ProcessColumn(Column("age", 6, right=True), lambda one, now: Piece(age(one.started_at, now)))
RUN = ProcessColumn(Column("run", 5, right=True), _run)
COMMAND = ProcessColumn(Column("command", 12, grows=True), _command)
_TITLED = PID._replace(column=PID.column._replace(head="PROCESSES"))

# The lists, from the left.
PRINTED = (GPU, PID, USER, MIB, SM, CPU, AGE, RUN, COMMAND)
OF_ALL_GPUS = (_TITLED, GPU, USER, MIB, RUN, COMMAND)
OF_ONE_GPU = (_TITLED, USER, MIB, SM, CPU, AGE, RUN, COMMAND)
OF_SLICES = (_TITLED, USER, MIB, SM, CPU, AGE, RUN, GPU, COMMAND)
OF_A_HOST = (PID._replace(column=Column("pid", 14, right=True)), USER, MIB, RUN, AGE, COMMAND)
