"""The home and database of a command, and the runs it names. It imports only modules that reading commands need."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kgops.cli.output import tell
from kgops.errors import KgopsError, NoSuchRun
from kgops.jobs.text import one_line
from kgops.settings import Home, find_home, make_home
from kgops.supervisor.pending import needs_settling
from kgops.supervisor.run_folder import RunFolder
from storage import runs
from storage.database import BUSY_TIMEOUT_S, Connection, open_reader, open_writer
from storage.errors import DatabaseBusy, DatabaseMissing, DatabaseNewer, DatabaseReadOnly, StorageError
from storage.runs import STATES, Run

_FAR = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}:([0-9]{1,18}|last)")  # as in lab2:17

_FILTER = re.compile(r"-?[A-Za-z_][\w.@-]*(>=|<=|!=|:|=|>|<).+", re.DOTALL)  # as in tag:old
_LISTED = 5  # runs with one label


def is_far(name: str) -> bool:
    return _FAR.fullmatch(name) is not None and not is_filter(name)


def is_filter(name: str) -> bool:
    """Whether a name of runs is a filter: `tag:old`, `older:7d`, `mrr<0.1`, `failed`, `all`."""
    if _FILTER.fullmatch(name) is None:
        return name in STATES or name in ("all", "ended", "active", "waiting", "unfinished", "oom")
    if _FAR.fullmatch(name) is None:
        return True
    from storage.filters import FIELDS

    return name.partition(":")[0] in FIELDS


class Session(NamedTuple):
    home: Home
    conn: Connection

    def folder(self, run: Run) -> RunFolder:
        return RunFolder(self.home.runs / run.folder)

    def run(
        self, name: str, workloads: Sequence[str] = (), hint: str = "give a number, a label or `last`"
    ) -> Run:
        """Return the run with this number or label, or the newest for `last`, of these workloads if there are any."""
        if is_far(name):
            raise NoSuchRun(
                f"{name!r} is a run of another host, and this command takes runs of this one",
                f"`kgops pull {name}` brings it here, or type the command there",
            )
        if name.isdecimal() and len(name) <= 18:
            found = [runs.get(self.conn, int(name))]
        elif name == "last":
            found = [runs.latest(self.conn, workloads)]
        else:
            found = [*runs.labelled(self.conn, name, workloads, limit=_LISTED + 1)]
        if len(found) > 1:
            numbers = ", ".join(str(run.id) for run in found[:_LISTED] if run is not None)
            more = ", …" if len(found) > _LISTED else ""
            raise NoSuchRun(f"several runs have the label {name!r:.60}: {numbers}{more}", "give a number")
        if not found or found[0] is None:
            of = f" of {' or '.join(workloads)}" if workloads and not name.isdecimal() else ""
            raise NoSuchRun(
                f"there is no run {name}{of}{self._nearest(name, workloads)}",
                f"{hint}; `kgops runs` lists runs",
            )
        return found[0]

    def _nearest(self, name: str, workloads: Sequence[str]) -> str:
        from difflib import get_close_matches  # here: only a typing error needs it

        near = () if name.isdecimal() else get_close_matches(name, runs.labels(self.conn, workloads), n=2)
        return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""

    def matching(self, names: Sequence[str], *, only: Callable[[Run], bool] = lambda run: True) -> list[Run]:
        """Return the runs of these names, each once. A name may be a filter, such as `tag:old`, or `all`. Of a filter's
        runs take those that are `only` these."""
        hint = "give a number, a label, `last`, `all` or a filter such as state:failed"
        wanted: dict[int, Run] = {}
        for name in names:
            many = is_filter(name)
            found = [*filter(only, self._filtered(name))] if many else [self.run(name, hint=hint)]
            if not found:
                raise NoSuchRun(
                    f"no run matches {name!r:.60}", f"`kgops runs '{name:.60}'` lists what it finds"
                )
            wanted |= {run.id: run for run in found}
        return [*wanted.values()]

    def _filtered(self, text: str) -> list[Run]:
        from kgops.present.listing import strictly  # here: most commands name runs by number
        from storage.conditions import compiled
        from storage.run_list import Filter, of_numbers, ordered

        wanted = Filter(conditions=compiled(self.conn, strictly(text)))
        return of_numbers(self.conn, [*ordered(self.conn, wanted, descending=False)])


def for_writing() -> Session:
    session = _open(BUSY_TIMEOUT_S)
    _settle(*session)
    return session


def _open(busy_timeout_s: float) -> Session:
    home = find_home()
    make_home(home)
    return Session(home, open_writer(home.database, busy_timeout_s=busy_timeout_s))


def for_changing(*, busy_timeout_s: float) -> Session:
    """Open a session for commands that must work on a full disk: warn and open it read-only if needed."""
    try:
        session = _open(busy_timeout_s)
        try:
            _settle(*session)
        except DatabaseBusy as error:
            tell(f"Warning: {error.message}")
        return session
    except (DatabaseMissing, DatabaseNewer, DatabaseReadOnly):
        raise
    except StorageError as error:
        session = existing()
        tell(f"Warning: {error.message}")
        return session


def for_reading() -> Session:
    """Open a read-only session. Raise DatabaseMissing before the first run. Repair runs if the home is writable."""
    home = find_home()
    conn = open_reader(home.database)
    try:
        if needs_settling(home, conn):
            make_home(home)
            _settle(home, open_writer(home.database, busy_timeout_s=2.0))
    except (KgopsError, StorageError) as error:
        tell(f"Warning: the states below may be outdated: {error.message}")
    return Session(home, conn)


def _settle(home: Home, conn: Connection) -> None:
    """Repair runs and print a note for each."""
    from kgops.supervisor.settle import settle  # half of the imports of a listing, and seldom needed

    done = settle(home, conn)
    for numbers, what in (
        (done.restored, "was accepted by a command that was killed, and is now in the database"),
        (done.adopted, "had lost its supervisor and has a new one, which takes over"),
        (done.restarted, "had lost its supervisor, and has a new one that starts its worker"),
        (done.ended, "had ended without its supervisor; its end is now in the database"),
    ):
        for number in numbers:
            tell(f"Note: run {number} {what}.")
    for trouble in done.troubles:
        tell(f"Warning: {one_line(trouble, 400)}.")


def existing() -> Session:
    """Open a session for a command on a run: without a database there is no such run."""
    try:
        return for_reading()
    except DatabaseMissing as error:
        raise no_runs() from error


def no_runs() -> NoSuchRun:
    return NoSuchRun("there are no runs yet", "start one: kgops exec -- python train.py")
