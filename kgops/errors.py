"""Errors a person can act on.

KgopsError                 1   something went wrong and we know what
├── Usage                  2   the command, job or profile as written cannot be
│   ├── BadJob             2   every problem of a job at once, each with its key
│   └── BadInput           2   a file of the person's: named, with the line
├── NoSuchRun              2
├── WontFit                3   refused with the numbers
├── Interrupted            5   resumable
└── Unavailable            1   home, disk or database cannot be used as it is

Whatever is not one of these is a bug and keeps its traceback.
"""

from __future__ import annotations

_MOST_TOLD = 20  # problems of one file; a screenful


class KgopsError(Exception):
    """What happened with real values, and in `hint` what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Usage(KgopsError):
    exit_code = 2


class BadJob(Usage):
    """All problems of a job at once; `problems` has one line per key."""

    def __init__(self, source: str, problems: list[str]) -> None:
        many = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        more = [f"and {len(problems) - _MOST_TOLD:,} more"] if len(problems) > _MOST_TOLD else []
        told = "\n".join(f"  {line}" for line in [*problems[:_MOST_TOLD], *more])
        super().__init__(f"{source} has {many}:\n{told}")
        self.problems = problems


class BadInput(Usage):
    pass


class NoSuchRun(Usage):
    pass


class WontFit(KgopsError):
    exit_code = 3


class Interrupted(KgopsError):
    exit_code = 5


class Unavailable(KgopsError):
    pass
