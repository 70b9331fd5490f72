"""Output of commands: results, messages, JSON and pages."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable
from kgops.jobs.numbers import finite_json


def print_json(value: Any) -> None:
    """Print JSON in ASCII: raw C1 control characters would act on a terminal.

    A list has one element per line, which is easy to read and uses json's fast encoder.
    Infinite values are written as exports write them.
    """
    try:
        text = _as_json(value)
    except ValueError:  # JSON has no infinity, and few values are infinite: convert only if it fails
        text = _as_json(finite_json(value))
    sys.stdout.write(text + "\n")


def _as_json(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",\n ".join(json.dumps(element, allow_nan=False) for element in value) + "]"
    return json.dumps(value, indent=1, allow_nan=False)


def say(text: str = "") -> None:
    """Print a result to stdout."""
    print(text)


def say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def say_result(as_json: bool, table: Callable[[], Any], lines: Callable[[], Iterable[str]]) -> None:
    """Print a result for programs, or for people."""
    if as_json:
        print_json(table())
    else:
        say_lines(lines())


def tell(text: str) -> None:
    """Print a message to stderr."""
    print(text, file=sys.stderr)


def write_page(page: str, target: Path, *, force: bool) -> None:
    """Write a page whole or not at all, and print where."""
    from kgops.jobs.run_options import must_be_free, written  # seldom needed

    try:
        must_be_free(target, force=force)
        with written(target) as file:
            file.write(page.encode())
    except OSError as error:
        raise Unavailable(f"cannot write {target}: {os.strerror(error.errno or 0)}") from error
    say(str(target))
