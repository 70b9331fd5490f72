"""The image network's weights as the allocator sees them: themselves, gradients that come one by one, moments."""

from __future__ import annotations

import math

from kgops.planning.ledger import Held, Ledger
from kgops.planning.regress_sizes import RegressShape

__all__ = ["MOMENTS", "Weights"]

MOMENTS = {"adam": 2, "adamw": 2}  # of an optimizer, for each weight
_FULL = 4  # bytes of a float32


class Weights:
    """Names of weights are given by their beginnings."""

    def __init__(self, ledger: Ledger, s: RegressShape) -> None:
        self._ledger, self._optimizer, self._low = ledger, s.optimizer, s.low
        self._sizes = {name: _FULL * math.prod(shape) for name, shape in s.model.shapes.items()}
        self._gradients: dict[str, Held] = {}
        self._waiting: dict[str, Held] = {}
        self._has_moments = False

    @property
    def sizes(self) -> list[int]:
        return list(self._sizes.values())

    def load(self) -> None:
        for size in self.sizes:
            self._ledger.take("weights", size)

    def arrives(self, prefix: str) -> None:
        """A gradient stays, or is added to the one that a piece before has left."""
        for name in self._named(prefix):
            if name in self._gradients:
                self._ledger.flash("gradients", self._sizes[name])
            else:
                self._gradients[name] = self._ledger.take("gradients", self._sizes[name])

    def waits(self, prefix: str) -> None:
        """One of several frames' gradients, which are summed, in the format that weights are cast to, before the
        sum arrives."""
        for name in self._named(prefix):
            if name in self._waiting:
                self._ledger.flash("gradients", self._cast(name))
            else:
                self._waiting[name] = self._ledger.take("gradients", self._cast(name))

    def arrives_summed(self, prefix: str) -> None:
        """The last frame's, and with it their sum."""
        self.waits(prefix)
        for name in self._named(prefix):
            held = self._waiting.pop(name)
            if name not in self._gradients and held[1] == self._sizes[name]:
                self._gradients[name] = held
                continue
            if held[1] != self._sizes[name]:
                self.arrives(name)
            self._ledger.give(held)

    def forget_gradients(self) -> None:
        self._ledger.give(*self._gradients.values())
        self._gradients.clear()

    def update(self) -> None:
        """Moments come with the first one."""
        if not self._has_moments:
            self._has_moments = True
            for size in self.sizes:
                for _ in range(MOMENTS.get(self._optimizer, 0)):
                    self._ledger.take("optimizer", size)

    def _named(self, prefix: str) -> list[str]:
        return [name for name in self._sizes if name.startswith(prefix)]

    def _cast(self, name: str) -> int:
        """Autocast leaves norms as they are."""
        return self._sizes[name] if ".norm." in name else self._sizes[name] * self._low // _FULL
