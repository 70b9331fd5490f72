"""Rendezvous of ranks in a store that may hold stale entries of earlier ranks.

torchrun keeps one store across restarts, with addresses of ranks that have ended. A rank that reads a stale address
fails to connect. So all ranks use a key prefix that is new at each start: rank 0 makes it up and answers each rank
that has announced itself.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Store", "agree_on_prefix"]

_LOOK_S = 0.02


class Store(Protocol):
    """The methods used of torch's stores."""

    def set(self, key: str, value: str, /) -> None: ...

    def get(self, key: str, /) -> bytes:
        """Waits until the key is set."""
        ...

    def check(self, keys: Sequence[str], /) -> bool: ...


def agree_on_prefix(store: Store, rank: int, world_size: int, *, patience_s: float) -> str:
    """A key prefix that all `world_size` current ranks agree on and that no earlier rank knew."""
    token = uuid.uuid4().hex
    if rank > 0:
        store.set(f"here/{rank}", token)
        prefix = store.get(f"answer/{token}").decode()  # waits for it
        store.set(f"heard/{prefix}/{rank}", "")
        return prefix
    deadline = time.monotonic() + patience_s
    answered = set()
    while missing := [peer for peer in range(1, world_size) if not store.check([f"heard/{token}/{peer}"])]:
        for (
            peer
        ) in missing:  # an announcement may be of a rank that has ended; its successor announces itself anew
            if not store.check([f"here/{peer}"]):
                continue
            greeting = store.get(f"here/{peer}").decode()
            if greeting not in answered:
                store.set(f"answer/{greeting}", token)
                answered.add(greeting)
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank {missing[0]} of {world_size} has not joined")
        time.sleep(_LOOK_S)
    return token
