"""Workload: its options, its worker module, and its default number of attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kgops.jobs.option import Option


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    summary: str
    options: tuple[Option, ...]
    label: Callable[[dict[str, Any]], str]
    check: Callable[[dict[str, Any]], list[str]]
    attempts: int  # default for how many workers may be lost before the run is interrupted
    module: str | None  # the worker's entry point; None: the job itself is a command
    inputs: tuple[str, ...] = ()  # keys that name files which must be there; `table.key` inside a table
    folders: tuple[str, ...] = ()  # and folders

    @property
    def settings(self) -> tuple[Option, ...]:
        """Options that stand in the job's table of this workload."""
        return tuple(option for option in self.options if option.effect is None)

    @property
    def optimizations(self) -> dict[str, Option]:
        """Options that profiles, plans and OOM fallbacks may choose too; they stand in the job's table `options`."""
        return {option.name: option for option in self.options if option.effect is not None}

    def default(self, name: str) -> Any:
        return next(option.default for option in self.options if option.name == name)
