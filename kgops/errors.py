"""Exceptions that kgops raises for problems a person can fix, with their exit codes.

KgopsError                 1   a known problem
├── Usage                  2   the command, job or profile is invalid
│   ├── BadJob             2   all problems of a job, each with its key
│   └── BadInput           2   an invalid input file, with name and line
├── NoSuchRun              2
├── WontFit                3   predicted to need more memory or disk than there is
└── Unavailable            1   home, disk or database cannot be used

Any other exception is a bug and prints a traceback.
"""

from __future__ import annotations

_MAX_LINES = 20  # problems printed of one file: a screenful


class KgopsError(Exception):
    """`message` says what happened, with the values; `hint` says what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Usage(KgopsError):
    exit_code = 2


class BadJob(Usage):
    """All problems of a job at once; `problems` has one line per key."""

    def __init__(self, source: str, problems: list[str], hint: str | None = None) -> None:
        many = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        more = [f"and {len(problems) - _MAX_LINES:,} more"] if len(problems) > _MAX_LINES else []
        lines = "\n".join(f"  {line}" for line in [*problems[:_MAX_LINES], *more])
        super().__init__(f"{source} has {many}:\n{lines}", hint)
        self.problems = problems


class BadInput(Usage):
    pass


class NoSuchRun(Usage):
    pass


class WontFit(KgopsError):
    exit_code = 3


class Unavailable(KgopsError):
    pass
