"""Workload: its job keys, its worker module, and its default number of attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kgops.jobs.keys import Key


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    summary: str
    keys: tuple[Key, ...]
    label: Callable[[dict[str, Any]], str]
    check: Callable[[dict[str, Any]], list[str]]
    attempts: int  # default for how many workers may be lost before the run is interrupted
    module: str | None  # the worker's entry point; None: the job itself is a command
    inputs: tuple[str, ...] = ()  # keys that name files which must be there; `table.key` inside a table
    folders: tuple[str, ...] = ()  # and folders
