"""Predicted disk use by part: what workloads share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RECORD = 25 << 10  # plan, environment, slots, log and the first events of a run
CHECKPOINT = 8 << 10  # of a file beside its tensors: names, places, settings
RESUME_CHECKPOINT = 24 << 10  # of a checkpoint to resume from: moments and random states


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes in the run's folder by `parts`, when it has most, and `outside` it by the path that a person named.

    `passing` bytes are temporary, such as a checkpoint that replaces another. `at_most`: the total is an upper bound.
    `files` is their number, since each wastes part of a disk block.
    """

    parts: Mapping[str, int]
    outside: Mapping[str, int] = field(default_factory=dict)
    passing: int = 0
    files: int = 0
    at_most: bool = False
    written: int = 0  # of results and their copies, after the work itself

    @property
    def total(self) -> int:
        return sum(self.parts.values()) + sum(self.outside.values())

    def and_then(self, other: DiskUse) -> DiskUse:
        """Of a job that does both; its record is one."""
        parts = dict(self.parts)
        for name, size in other.parts.items():
            parts[name] = parts.get(name, RECORD if name == "record" else 0) + size
        parts["record"] -= RECORD
        return DiskUse(
            parts,
            {**self.outside, **other.outside},
            max(self.passing, other.passing),
            self.files + other.files,
            self.at_most or other.at_most,
            self.written + other.written,
        )
