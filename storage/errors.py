"""What can be wrong with a database, said so that a person can act on it."""

from __future__ import annotations


class StorageError(Exception):
    """Has the shape of a KgopsError; storage stands below kgops and cannot import it."""

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
    """The disk, or its permissions, do not let it be opened or read; the database itself may be sound."""


class CommitUnknown(StorageError):
    """The disk failed while a transaction was committed: it may be there when the database is opened next, or not."""


class RunGone(StorageError):
    """The run was deleted after it had been looked up."""

    exit_code = 2


class DatabaseDamaged(StorageError):
    pass


class DatabaseNewer(StorageError):
    pass


class DatabaseMissing(StorageError):
    pass
