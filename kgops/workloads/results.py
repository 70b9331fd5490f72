"""What runs of each workload leave for others to read. Light: a page of a run needs no declarations of options."""

from __future__ import annotations

from typing import Literal

Result = Literal["model", "influences", "answers", "explanations"]

LEAVES: dict[str, frozenset[Result]] = {
    "train": frozenset({"model"}),
    "tracin": frozenset({"influences"}),
    "predict": frozenset({"answers"}),
    "explain": frozenset({"explanations"}),
    "pipeline": frozenset({"model", "influences", "answers"}),
}


_COMMAND = "exec"
_TRAINS = frozenset({"train", "regress", "pipeline"})


def is_command(workload: str) -> bool:
    """Whether a run of it is a person's own command."""
    return workload == _COMMAND


def trains(workload: str) -> bool:
    """Whether its runs have optimizer steps; their curves count epochs."""
    return workload in _TRAINS


def leaves(workload: str, result: Result) -> bool:
    """Whether runs of the workload leave this; not where a newer kgops has recorded an unknown one."""
    return result in LEAVES.get(workload, ())


def leaving(result: Result) -> tuple[str, ...]:
    """Names of the workloads whose runs leave this."""
    return tuple(name for name in LEAVES if leaves(name, result))


def is_answered(workload: str) -> bool:
    """Whether its runs answer a question; a pipeline is asked as a model."""
    return leaves(workload, "answers") and not leaves(workload, "model")
