"""Where processes that train together find each other, though others may have met there before them.

torchrun keeps one store for all its restarts, with the addresses of processes that have ended: whoever reads such an
address before its successor has written its own knocks where nobody is. So all meet under a word that is new each
time, which the first makes up and tells each of the others once it has greeted.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Store", "under_a_new_word"]

_LOOK_S = 0.02


class Store(Protocol):
    """What is needed of any of torch's."""

    def set(self, key: str, value: str, /) -> None: ...

    def get(self, key: str, /) -> bytes:
        """Waits until it is there."""
        ...

    def check(self, keys: Sequence[str], /) -> bool: ...


def under_a_new_word(store: Store, which: int, of: int, *, patience_s: float) -> str:
    """The word that all `of` processes of now have agreed on, and none of those before them knew."""
    own = uuid.uuid4().hex
    if which > 0:
        store.set(f"here/{which}", own)
        word = store.get(f"answer/{own}").decode()  # waits for it
        store.set(f"heard/{word}/{which}", "")
        return word
    deadline = time.monotonic() + patience_s
    answered = set()
    while missing := [other for other in range(1, of) if not store.check([f"heard/{own}/{other}"])]:
        for other in missing:  # a greeting may be of one that is gone: whoever comes in its place greets anew
            if not store.check([f"here/{other}"]):
                continue
            greeting = store.get(f"here/{other}").decode()
            if greeting not in answered:
                store.set(f"answer/{greeting}", own)
                answered.add(greeting)
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {missing[0]} of {of} has not come")
        time.sleep(_LOOK_S)
    return own
