"""Entry point of benchmark programs: turns errors, also of the database, into messages and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from kgops.errors import Unavailable
from kgops.maths.trials import variants
from storage.errors import StorageError


def run(main: Callable[[], int | None]) -> NoReturn:
    def with_a_database() -> int | None:
        try:
            return main()
        except StorageError as error:
            raise Unavailable(error.message, error.hint) from error

    variants.run(with_a_database)
