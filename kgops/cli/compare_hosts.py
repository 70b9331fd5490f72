"""`kgops compare lab1:3 lab2:17 4`: runs of several hosts side by side, each with its host's name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kgops.cli.session import Session, existing, is_far
from kgops.errors import Usage
from kgops.hosts import registry
from kgops.hosts.archive import fetch_record, put
from kgops.hosts.run_actions import split_name
from kgops.present.comparison import Comparison, compare
from kgops.settings import Home, find_home, make_home
from storage import runs, transfer
from storage.database import open_writer
from storage.runs import Run
from storage.transfer import Rows


@contextmanager
def compared_over_hosts(
    names: Sequence[str], home: Home | None = None
) -> Iterator[tuple[Comparison, Session]]:
    """The comparison, and the database it is made from, which lives as long: nothing is imported."""
    home = home or find_home()
    hosts = registry.read(home)
    for name in names:
        if is_far(name):
            split_name(name, hosts)
    with tempfile.TemporaryDirectory(prefix="kgops-compare-") as folder:
        beside = Home(Path(folder))
        make_home(beside)
        conn = open_writer(beside.database)
        try:
            chosen: list[Run] = []
            shown: list[str] = []
            for number, name in enumerate(names, 1):
                if is_far(name):
                    host, there = split_name(name, hosts)
                    rows = fetch_record(home, conn, host, there)
                    shown.append(f"{host.name}:{rows.run.get('id', there)}")
                else:
                    run, rows = _of_here(name)
                    shown.append(str(run.id))
                put(conn, rows, name, number)
                found = runs.get(conn, number)
                assert found is not None  # it was put there just now
                chosen.append(found)
            if len(set(shown)) < len(shown):
                raise Usage("one run was given twice")
            yield replace(compare(conn, chosen), names=tuple(shown)), Session(beside, conn)
        finally:
            conn.close()


def _of_here(name: str) -> tuple[Run, Rows]:
    session = existing()
    run = session.run(name)
    rows = transfer.read_rows(session.conn, run.id)
    if rows is None:
        raise Usage(f"run {run.id} was deleted meanwhile")
    return run, rows
