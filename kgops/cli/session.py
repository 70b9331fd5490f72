"""What every command begins with: the home, the database, and runs in a true state."""

from __future__ import annotations

from typing import NamedTuple

from kgops.cli.output import tell
from kgops.errors import KgopsError, NoSuchRun
from kgops.jobs.text import one_line
from kgops.settings import Home, find_home, make_home
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.unsettled import needs_settling
from storage import runs
from storage.database import Connection, open_reader, open_writer
from storage.errors import DatabaseMissing, DatabaseNewer, DatabaseReadOnly, StorageError
from storage.runs import Run


class Session(NamedTuple):
    home: Home
    conn: Connection

    def folder(self, run: Run) -> RunFolder:
        return RunFolder(self.home.runs / run.folder)

    def run(self, name: str) -> Run:
        """The run a person means by `42` or `last`."""
        run = runs.latest(self.conn) if name == "last" else None
        if name != "last":
            if not name.isdecimal() or len(name) > 18:
                raise NoSuchRun(f"{name!r} is no run", "give a run's number, or `last`")
            run = runs.get(self.conn, int(name))
        if run is None:
            raise NoSuchRun(f"there is no run {name}", "`kgops runs` lists them")
        return run


def for_writing() -> Session:
    home = find_home()
    make_home(home)
    conn = open_writer(home.database)
    _settle(home, conn)
    return Session(home, conn)


def for_changing() -> Session:
    """For verbs that have to work on a full disk: what cannot be settled or written is said, and the verb goes on
    with what can be read."""
    try:
        return for_writing()
    except (DatabaseMissing, DatabaseNewer, DatabaseReadOnly):
        raise
    except StorageError as error:
        session = existing()
        tell(f"Warning: {error.message}")
        return session


def for_reading() -> Session:
    """Raises DatabaseMissing before the first run. Brings runs to a true state where the home can be written."""
    home = find_home()
    conn = open_reader(home.database)
    if needs_settling(home, conn):
        try:
            make_home(home)
            _settle(home, open_writer(home.database, busy_timeout_s=2.0))
        except (KgopsError, StorageError) as error:
            tell(f"Warning: the states below may be old: {error.message}")
    return Session(home, conn)


def _settle(home: Home, conn: Connection) -> None:
    """Repairs, and says what was repaired: a person whose supervisor was killed should hear of it."""
    from kgops.supervisor.settle import settle  # half of what a listing would import, and seldom needed

    done = settle(home, conn)
    for numbers, what in (
        (done.restored, "was accepted by a command that was killed, and is in the record now"),
        (done.adopted, "had lost its supervisor and has a new one; its worker went on"),
        (done.restarted, "had lost its supervisor, and has a new one that starts its worker"),
        (done.ended, "had ended without its supervisor; its end is in the record now"),
    ):
        for number in numbers:
            tell(f"Note: run {number} {what}.")
    for trouble in done.troubles:
        tell(f"Warning: {one_line(trouble, 400)}.")


def existing() -> Session:
    """For a verb on a run: no database means no such run."""
    try:
        return for_reading()
    except DatabaseMissing as error:
        raise NoSuchRun("there are no runs yet", "start one: kgops run exec -- python train.py") from error
