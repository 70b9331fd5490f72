"""The record of a run of another host, as its export says it, without the run's files."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.errors import KgopsError, Unavailable
from kgops.hosts.archive import ArchiveStream
from kgops.hosts.connection import Connection, Limits, meaning_of
from kgops.hosts.registry import Host
from kgops.settings import Home
from kgops.supervisor.run_json import read_runs
from storage import transfer
from storage.database import Connection as Database
from storage.transfer import Rows

# Curves of three hundred thousand points, as text and as values.
_LARGEST, _MOST_VALUES = 1 << 24, 1_500_000


def fetch_record(home: Home, conn: Database, host: Host, number: str) -> Rows:
    """Rows of the one run. Unavailable or BadInput, by the host's name, where there are none."""
    words = ("export", "--to", "json", "--output", "-", "--", number)
    text = fetch_bytes(home, host, words, _LARGEST, hint=_PULL.format(host, number))
    # kgops writes ASCII: other text would take four times its room.
    if not text.isascii() or sum(map(text.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise Unavailable(
            f"{host.name}: what it sent is no record that kgops compares", _PULL.format(host, number)
        )
    found = read_runs(conn, text, f"{host.name}:{number}")
    if len(found) != 1:
        raise Unavailable(f"{host.name}: it sent {len(found)} runs for one")
    return found[0]


def fetch_bytes(home: Home, host: Host, words: Sequence[str], most: int, *, hint: str | None = None) -> bytes:
    """What the command prints there; Unavailable, by the host's name, if it fails or, with the hint, prints more."""
    connection = Connection(home, host, words, Limits())
    stream = ArchiveStream(connection)
    found, problem = b"", None
    try:
        found = stream.read(most + 1)
    except KgopsError as error:
        problem = error
    finally:
        stream.close()
        code = connection.close(has_ended=stream.has_ended)
    if problem is not None:
        raise Unavailable(f"{host.name}: {problem.message}", problem.hint)
    if len(found) > most:
        raise Unavailable(f"{host.name}: it sent more than {most >> 20} MiB", hint)
    if code != 0:
        message, hint = meaning_of(code, connection.errors, host)
        raise Unavailable(f"{host.name}: {message}", hint)
    return found


_PULL = "`kgops pull {0.name}:{1}` brings a run of any size, and `kgops compare` reads it here"


def put(conn: Database, rows: Rows, name: str, number: int) -> None:
    """Into a database that is made for the comparison. Unavailable for a run that has not ended."""
    try:
        transfer.insert_rows(conn, rows, folder=str(number), number=number)
    except ValueError as error:
        raise Unavailable(f"{name}: {error}", "compare it after it has ended") from error
