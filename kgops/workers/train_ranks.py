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
    """Which of them a process is, of how many, on what, and where they meet, as torch writes an address."""

    which: int
    of: int
    device: str
    meeting: str

    def environment(self) -> dict[str, str]:
        return {_PREFIX + name.upper(): str(value) for name, value in asdict(self).items()}

    @classmethod
    def taken(cls) -> Self | None:
        """The one that our own worker has given; None where it was not our worker that started this process."""
        if _PREFIX + "WHICH" not in os.environ:
            return None
        which, of, device, meeting = (
            os.environ[_PREFIX + name] for name in ("WHICH", "OF", "DEVICE", "MEETING")
        )
        return cls(int(which), int(of), device, meeting)

    @classmethod
    def by_torchrun(cls, wanted: str) -> Self | None:
        """The one that torchrun has given, on the device that is wanted; None where it did not start this process."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return None
        which, of, here, on_this_machine = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        )
        if of == on_this_machine:
            # They speak to each other on this machine alone, whatever its name may resolve to.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return cls(which, of, wanted if wanted != "cuda" else f"cuda:{here}", "env://")


def trouble_file(place: Path, which: int) -> Path:
    """Why this one cannot go on, in its own words."""
    return place / f"trouble-{which}.json"
