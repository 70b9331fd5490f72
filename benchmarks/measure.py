"""Shared by benchmarks: their start and end, processes, tables, and storing values with their fingerprint."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from kgops.errors import KgopsError, Unavailable
from kgops.experiments.fingerprint import fingerprint
from kgops.jobs.numbers import quartiles
from kgops.present.formats import table
from kgops.settings import find_home, make_home
from storage.errors import StorageError

PYTHON = sys.executable
_STORED = "benchmarks.jsonl"


@dataclass(frozen=True, slots=True)
class Line:
    """One measured value and its target."""

    name: str
    subject: str
    unit: str
    values: tuple[float, ...]
    target: float | None = None  # None: reported only
    metric: float | None = None  # reported value, if not the median
    at_least: bool = False  # the target is a minimum, else a maximum

    @property
    def value(self) -> float:
        return statistics.median(self.values) if self.metric is None else self.metric

    @property
    def quartiles(self) -> tuple[float, float] | None:
        """None for a single value, or if the reported value is not the median."""
        if len(self.values) < 2 or self.metric is not None:
            return None
        return quartiles(self.values)

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def _table(lines: Sequence[Line]) -> list[str]:
    rows = []
    for line in lines:
        spread = "" if line.quartiles is None else "{:.4g} – {:.4g}".format(*line.quartiles)
        bound = "≥" if line.at_least else "≤"
        target = "" if line.target is None else f"{bound} {line.target:g} {line.unit}"
        verdict = {True: "reached", False: "MISSED", None: ""}[line.reached]
        measured = f"{line.value:.4g} {line.unit}"
        rows.append((line.subject, measured, spread, str(len(line.values)), target, verdict))
    return table(("what", "measured", "quartiles", "n", "target", ""), rows)


class Stored(NamedTuple):
    """A line of the home's file of values."""

    name: str
    subject: str
    value: float
    low: float | None
    high: float | None
    n: int
    unit: str
    command: str
    fingerprint: dict[str, Any]
    at: float


def store(lines: Sequence[Line], command: str) -> None:
    """Adds the values to `benchmarks.jsonl` in the home, with the fingerprint."""
    home, machine = find_home(), fingerprint()
    make_home(home)
    with (home.path / _STORED).open("a", encoding="utf-8") as file:
        for line in lines:
            low, high = line.quartiles or (None, None)
            values = (line.name, line.subject, line.value, low, high, len(line.values), line.unit)
            file.write(json.dumps(Stored(*values, command, machine, time.time())._asdict()) + "\n")


def stored() -> list[Stored]:
    """All that this home has, oldest first."""
    try:
        lines = (find_home().path / _STORED).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [Stored(**json.loads(line)) for line in lines]


def quietness() -> str:
    """Machine load at the start, for the output."""
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    return f"load {load:.2f} on {cores} cores" + ("" if load < 0.5 * cores else " (busy)")


def run(main: Callable[[], int | None]) -> NoReturn:
    """Exits with the result of `main`; an error, also of the database, becomes a message and an exit code."""
    from kgops.maths.trials import variants  # torch takes seconds to load

    def with_a_database() -> int | None:
        try:
            return main()
        except StorageError as error:
            raise Unavailable(error.message, error.hint) from error

    variants.run(with_a_database)


def arguments(name: str, purpose: str | None, *, stores: bool = True) -> argparse.ArgumentParser:
    """Of the benchmark of this name, whose `finish` may store the values."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=purpose,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if stores:
        parser.add_argument(
            "--store", action="store_true", help="keep the values in the home's benchmarks.jsonl"
        )
    return parser


def finish(lines: Sequence[Line], *, keep: bool) -> int:
    """Prints the table and stores it with the typed command where wanted; 1 if a value misses its target, else 0."""
    print(*_table(lines), sep="\n")
    if keep:
        store(lines, shlex.join(["python", *sys.orig_argv[1:]]))
    return int(any(line.reached is False for line in lines))


def json_of(module: str, *words: str, **environment: str) -> Any:
    """What this module prints in a process of its own."""
    command = [PYTHON, "-m", module, *words]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing"]
        errors = [line.removeprefix("Error: ") for line in said if line.startswith("Error: ")]
        raise KgopsError(
            f"{module} ended with {done.returncode}: {errors[0] if errors else said[-1]}",
            f"run it by hand to see all that it says: {shlex.join(command)}",
        )
    return json.loads(done.stdout)


def ended_run(home: Path, *words: str) -> dict[str, Any]:
    """The record of a `kgops run` with these words in this home."""
    record: dict[str, Any] = json_of("kgops", "run", *words, "--json", KGOPS_HOME=str(home))
    return record


class Silent:
    """A reporter that keeps only the applied options."""

    def __init__(self) -> None:
        self.options: dict[str, tuple[Any, str | None]] = {}

    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None:
        self.options[name] = applied, reason

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None: ...

    def metric(self, name: str, value: float, step: int) -> None: ...

    def memory(self, **mib: float) -> None: ...

    def artifact(self, path: Path, kind: str) -> None: ...

    def note(self, text: str) -> None: ...
