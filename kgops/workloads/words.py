"""How a workload's command is called: its help page, an example, and what its flags imply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


def _no_notes(settings: Mapping[str, Any]) -> list[str]:
    return []


def _nothing_implied(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Words:
    """`kgops run NAME` and `kgops suggest NAME` are made from these and from the options."""

    help: str  # the first line says what the command does
    example: str  # flags of `kgops run`
    plan_example: str  # flags of `kgops suggest`
    shown: tuple[str, ...]  # settings and options that `--help` lists; `--help-all` lists all
    paths: tuple[str, ...]  # settings that become absolute paths
    triple: tuple[str, str] | None = (
        None  # a setting that takes one triple as three words, or a file for the other
    )
    starts_from: str | None = (
        None  # a module with named jobs to start from: FLAG, METAVAR, HELP, with_changes
    )
    notes: Callable[[Mapping[str, Any]], list[str]] = _no_notes  # what the job lacks, told at its start
    implied: Callable[[Mapping[str, Any]], dict[str, Any]] = _nothing_implied  # options that settings turn on
