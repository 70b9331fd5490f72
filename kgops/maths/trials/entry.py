"""Exit codes and error messages of benchmark programs: as in `kgops`, without a traceback for user errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from kgops.errors import KgopsError
from kgops.jobs.text import lines

INTERRUPTED = 130


def run(main: Callable[[], int | None]) -> NoReturn:
    """Exits with the result of `main`, or prints a KgopsError to stderr and exits with its code."""
    try:
        sys.exit(main())
    except KgopsError as error:
        print(f"Error: {lines(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"Hint: {lines(error.hint)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("Aborted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
