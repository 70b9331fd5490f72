"""Rank, world size, device and rendezvous of the processes that train one model together."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

__all__ = ["RANKS_FOLDER", "RESULT", "RankSettings", "trouble_file"]

RANKS_FOLDER = "together"  # in the run's folder, while the processes work
RESULT = "result.json"
_PREFIX = "KGOPS_GROUP_"


@dataclass(frozen=True)
class RankSettings:
    """One process of the group; `rendezvous` is a URL as torch.distributed takes it."""

    rank: int
    world_size: int
    device: str
    rendezvous: str

    def environment(self) -> dict[str, str]:
        return {_PREFIX + name.upper(): str(value) for name, value in asdict(self).items()}

    @classmethod
    def from_environment(cls) -> Self | None:
        """As our own worker set them; None if another program started this process."""
        if _PREFIX + "RANK" not in os.environ:
            return None
        rank, world_size, device, rendezvous = (
            os.environ[_PREFIX + name] for name in ("RANK", "WORLD_SIZE", "DEVICE", "RENDEZVOUS")
        )
        return cls(int(rank), int(world_size), device, rendezvous)

    @classmethod
    def by_torchrun(cls, wanted: str) -> Self | None:
        """As torchrun set them, on the wanted kind of device; None if torchrun did not start this process."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return None
        rank, world_size, local_rank, local_world_size = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        )
        if world_size == local_world_size:
            # All ranks are on this machine: use loopback, whatever its host name resolves to.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return cls(rank, world_size, wanted if wanted != "cuda" else f"cuda:{local_rank}", "env://")


def trouble_file(folder: Path, rank: int) -> Path:
    """Where a rank writes why it cannot go on."""
    return folder / f"trouble-{rank}.json"
