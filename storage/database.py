"""Open the database for reading or writing, run transactions, and explain SQLite's errors.

Every process has one connection. Writers begin with BEGIN IMMEDIATE: a deferred transaction that
reads and then writes fails at once under another writer, whatever its timeout.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from storage.errors import (
    CommitUnknown,
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseFull,
    DatabaseMissing,
    DatabaseNewer,
    DatabaseOlder,
    DatabaseOutOfReach,
    DatabaseReadOnly,
    StorageError,
)

SCHEMA_VERSION = 8
_OLDEST_VERSION = 8  # older schemas were never released
Connection = sqlite3.Connection  # so that other packages need not import sqlite3
BUSY_TIMEOUT_S = 30.0
REBUILD = "move it away and run `kgops doctor --rebuild`, which restores the runs from their folders"
_LARGEST_WAL = 64 << 20
_OLDEST_LIBRARY = (3, 37, 0)  # STRICT tables


def open_writer(path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Opens the database for writing; creates or migrates it where needed."""
    _must_have_room_to_grow(path)
    if _version(path, busy_timeout_s) != SCHEMA_VERSION:
        _migrate(path, busy_timeout_s)
    conn = _connect(path, "mode=rw", busy_timeout_s)
    # FULL: with NORMAL a power cut took back the newest commits in 2 of 198 runs.
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute(f"PRAGMA journal_size_limit = {_LARGEST_WAL}")
    return conn


def _must_have_room_to_grow(path: Path) -> None:
    """Raises DatabaseOutOfReach under a small `ulimit -f`: SQLite would report it as an error of the disk."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return
    size = path.stat().st_size if _is_there(path) else 0
    if limit < size + _LARGEST_WAL:
        raise DatabaseOutOfReach(
            f"{path} cannot be written: a file may have {limit / (1 << 20):,.1f} MiB here (ulimit -f),"
            f" and kgops needs {(size + _LARGEST_WAL) / (1 << 20):,.0f}",
            "raise the limit; to limit a worker alone: kgops exec -- sh -c 'ulimit -f N; exec COMMAND'",
        )


def open_reader(path: Path, *, busy_timeout_s: float = 5.0) -> sqlite3.Connection:
    """Opens the database read-only. Raises DatabaseMissing where there is none yet."""
    if not _is_there(path):
        raise DatabaseMissing(f"there is no database at {path} yet")
    conn = _open_for_reading(path, busy_timeout_s)
    version = _version_of(conn, path)
    if version == SCHEMA_VERSION:
        return conn
    conn.close()
    if version == 0:
        raise DatabaseMissing(f"there is no database at {path} yet")
    if not os.access(path.parent, os.W_OK):
        raise DatabaseReadOnly(
            f"{path} was written by an older kgops and its folder cannot be written",
            "run any kgops command where the folder is writable: it migrates the database",
        )
    _migrate(path, busy_timeout_s)
    return _open_for_reading(path, busy_timeout_s)


@contextmanager
def transaction(conn: sqlite3.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE … COMMIT, rolled back on any error. Inside another transaction it joins that one.

    Raises DatabaseNewer once a newer kgops has migrated the database: an outdated process writes nothing."""
    if conn.in_transaction:
        yield
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        must_be_current(conn)
        yield
        _commit(conn)
    except BaseException:
        if conn.in_transaction:  # on a full disk SQLite has rolled back already
            conn.execute("ROLLBACK")
        raise


def _commit(conn: sqlite3.Connection) -> None:
    try:
        conn.execute("COMMIT")
    except (DatabaseBusy, DatabaseFull):
        raise  # rolled back completely
    except StorageError as error:
        # The write-ahead log may hold the end of the transaction already; the next process to open it would apply it.
        raise CommitUnknown(f"{error.message} while it was being written", error.hint) from error


@contextmanager
def explained(path: Path | None) -> Iterator[None]:
    """Turns SQLite's errors into StorageErrors with hints; programming errors are raised unchanged."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        _explain(error, path)


def _explain(error: sqlite3.Error | UnicodeDecodeError, path: Path | None) -> NoReturn:
    where = f"the database {path}" if path else "the database"
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    text = str(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        raise DatabaseBusy(
            f"{where} is locked by another process",
            "wait for it to finish, or find it with `fuser -v` on the file",
        ) from error
    # On a full disk, SQLite reports files beside the database that cannot grow as an I/O error.
    no_room = code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR) and path and _is_full(path.parent)
    if code == sqlite3.SQLITE_FULL or no_room:
        raise DatabaseFull(f"no space left for {where}", "free some space: nothing was lost") from error
    if code == sqlite3.SQLITE_READONLY:
        raise DatabaseReadOnly(
            f"{where} cannot be written: {text}", "check the file's owner and mode"
        ) from error
    # Only a damaged schema lacks what this kgops asks for; SQLite's own messages may quote damaged text.
    is_damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(
        error, UnicodeDecodeError
    )
    if is_damaged or text.startswith(_MISSING):
        raise DatabaseDamaged(
            f"{where} is damaged: {text}",
            REBUILD,
        ) from error
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
        _must_be_readable(path)
        raise DatabaseOutOfReach(
            f"{where} cannot be used: {text}",
            "check the disk, and that the home is on a local file system",
        ) from error
    raise error


_MISSING = ("no such ", "malformed JSON", "table ", "unable to use function", "unsupported file format")


class _Cursor(sqlite3.Cursor):
    """Raises StorageErrors. Reads text that is no UTF-8 with replacement characters."""

    connection: _Connection
    asked: tuple[str, Any]

    # Replacing always would double the time of long lists: SQLite's own decoding is used until it fails.
    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._read_damaged_text(error)
            return super().fetchone()  # the same row: SQLite steps once a row was decoded

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._read_damaged_text(error)
            super().execute(*self.asked)
            return super().fetchall()

    def __iter__(self) -> Any:
        return iter(self.fetchall())

    def _read_damaged_text(self, error: sqlite3.Error | UnicodeDecodeError) -> None:
        if not str(error).startswith("Could not decode to UTF-8"):
            _explain(error, self.connection.path)
        self.connection.text_factory = _replaced


def _replaced(text: bytes) -> str:
    return text.decode("utf-8", "replace")


class _Connection(sqlite3.Connection):
    path: Path | None = None

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        try:
            cursor = super().cursor(_Cursor)
            cursor.asked = sql, parameters
            return cursor.execute(sql, parameters)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if str(error).startswith(_MISSING):
                must_be_current(self)  # else a newer kgops has renamed it
            _explain(error, self.path)

    def executemany(self, sql: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        try:
            return super().cursor(_Cursor).executemany(sql, parameters)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            _explain(error, self.path)


def _is_there(path: Path) -> bool:
    """Whether the file exists. Raises DatabaseOutOfReach where permissions prevent checking."""
    try:
        return path.exists()
    except OSError as error:
        raise _closed(path, error) from error


def _must_be_readable(path: Path | None) -> None:
    """Raises DatabaseOutOfReach where permissions prevent reading, which SQLite does not report.

    Does not open the file: closing it would release the locks that SQLite holds in this process."""
    if path is not None and _is_there(path) and not os.access(path, os.R_OK):
        raise _closed(path, PermissionError(errno.EACCES, ""))


def _closed(path: Path, error: OSError) -> DatabaseOutOfReach:
    closed = error.errno in (errno.EACCES, errno.EPERM)
    return DatabaseOutOfReach(
        f"the database {path} cannot be opened: {os.strerror(error.errno or 0)}",
        "it belongs to another user: set KGOPS_HOME to a folder of yours" if closed else "check the disk",
    )


def _is_full(folder: Path) -> bool:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 1 << 16 or (disk.f_files > 0 and disk.f_favail == 0)


def library_version() -> tuple[str, bool]:
    """SQLite's version, and whether it is new enough."""
    return sqlite3.sqlite_version, sqlite3.sqlite_version_info >= _OLDEST_LIBRARY


def integrity_problems(conn: sqlite3.Connection) -> list[str]:
    """Problems found by SQLite's integrity check; empty where the file is intact."""
    rows = [row[0] for row in conn.execute("PRAGMA integrity_check")]
    foreign = [
        f"{row[0]} row {row[1]} refers to a missing {row[2]}"
        for row in conn.execute("PRAGMA foreign_key_check")
    ]
    return [row for row in rows if row != "ok"] + foreign


def write_indexes_again(conn: sqlite3.Connection) -> None:
    try:
        conn.execute("REINDEX")
    except sqlite3.IntegrityError as error:
        raise DatabaseDamaged(
            f"the database is damaged: {error}", "move it away and run `kgops doctor --rebuild`"
        ) from error


def wait_for_locks(conn: sqlite3.Connection, at_most_s: float) -> None:
    """Changes how long the connection waits for locks of other processes before DatabaseBusy."""
    conn.execute(f"PRAGMA busy_timeout = {int(at_most_s * 1000)}")


def changed_since(conn: sqlite3.Connection, seen: int | None) -> tuple[bool, int]:
    """Whether another connection has committed since `seen`, by one cheap pragma, for polling."""
    version: int = conn.execute("PRAGMA data_version").fetchone()[0]
    if version != seen:
        must_be_current(conn)
    return version != seen, version


def must_be_current(conn: sqlite3.Connection) -> None:
    """Raises DatabaseNewer if a newer kgops has migrated the database since it was opened."""
    if conn.execute("PRAGMA user_version").fetchone()[0] > SCHEMA_VERSION:
        _version_of(conn, Path(conn.execute("PRAGMA database_list").fetchone()[2]))


def _version(path: Path, busy_timeout_s: float) -> int:
    """The schema version; 0 where there is no database."""
    if not _is_there(path):
        return 0
    conn = _open_for_reading(path, busy_timeout_s)
    try:
        return _version_of(conn, path)
    finally:
        conn.close()


def _version_of(conn: sqlite3.Connection, path: Path) -> int:
    version: int = conn.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise DatabaseNewer(
            f"{path} was written by a newer kgops (schema {version}; this one knows {SCHEMA_VERSION})",
            "upgrade kgops, or point KGOPS_HOME at another folder",
        )
    if version and version < _OLDEST_VERSION:
        raise DatabaseOlder(
            f"{path} has schema {version}; this kgops reads schema {_OLDEST_VERSION} and newer",
            "run `kgops export` with the kgops commit that wrote it, move it away, then run `kgops import` here:"
            " exports of schema 5 and newer are read",
        )
    return version


def _open_for_reading(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    try:
        conn = _connect(path, "mode=ro", busy_timeout_s)
        conn.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except (DatabaseFull, DatabaseReadOnly, DatabaseOutOfReach):
        # On a read-only or full file system a WAL database cannot create the files it needs beside it.
        # Nobody can write it there either, so it can be opened as immutable.
        if not (_is_full(path.parent) or not os.access(path.parent, os.W_OK)):
            raise
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:  # immutable mode would ignore the write-ahead log
            raise
        conn = _connect(path, "immutable=1", busy_timeout_s)
    conn.execute("PRAGMA query_only = ON")
    return conn


def _connect(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    with explained(path):
        conn = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
    conn.path = path
    conn.execute("PRAGMA temp_store = MEMORY")
    conn.execute("PRAGMA cache_size = -512")
    return conn


def _migrate(path: Path, busy_timeout_s: float) -> None:
    # One process at a time: sqlite-utils raises when several processes apply migrations together.
    lock = os.open(path.with_name(path.name + ".migrate.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _version(path, busy_timeout_s) == SCHEMA_VERSION:
            return
        from storage.migrations import migrate

        with explained(path):
            migrate(path, busy_timeout_s, SCHEMA_VERSION)
    finally:
        os.close(lock)
