"""Errors of the database, with messages and hints that a person can act on."""

from __future__ import annotations


class StorageError(Exception):
    """Has the attributes of KgopsError, which storage cannot import."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class DatabaseBusy(StorageError):
    pass


class DatabaseFull(StorageError):
    pass


class DatabaseReadOnly(StorageError):
    pass


class DatabaseOutOfReach(StorageError):
    """The disk or its permissions prevent reading; the database itself may be intact."""


class CommitUnknown(StorageError):
    """The disk failed during a commit: the transaction may or may not be there when the database is next opened."""


class RunGone(StorageError):
    """The run was deleted by another process after it had been read."""

    exit_code = 2


class DatabaseDamaged(StorageError):
    pass


class DatabaseNewer(StorageError):
    pass


class DatabaseOlder(StorageError):
    pass


class DatabaseMissing(StorageError):
    pass
