"""The place where processes that train together meet, and what each is told of it by whoever starts it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

__all__ = ["FOUND", "PLACE", "Seat", "trouble_file"]

PLACE = "together"  # within the run's folder, as long as they work
FOUND = "found.json"
_PREFIX = "KGOPS_SEAT_"


@dataclass(frozen=True)
class Seat:
    """Which of them a process is, of how many, on what, and where they meet."""

    which: int
    of: int
    device: str
    meeting: str

    def environment(self) -> dict[str, str]:
        return {_PREFIX + name.upper(): str(value) for name, value in asdict(self).items()}

    @classmethod
    def taken(cls) -> Self:
        which, of, device, meeting = (
            os.environ[_PREFIX + name] for name in ("WHICH", "OF", "DEVICE", "MEETING")
        )
        return cls(int(which), int(of), device, meeting)


def trouble_file(place: Path, which: int) -> Path:
    """Why this one cannot go on, in its own words."""
    return place / f"trouble-{which}.json"
