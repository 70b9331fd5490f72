"""Which of the machine's cards a run asks for: `auto`, `auto:2`, `all`, or some by index or UUID as in `0,2`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CardsAsked", "asked_with_devices"]


@dataclass(frozen=True, slots=True)
class CardsAsked:
    """`named` None is any card; `many` None is every one of them."""

    named: frozenset[str] | None
    many: int | None

    @classmethod
    def read(cls, text: str | None) -> CardsAsked:
        """Nothing asked is one card, whichever; so is `auto`."""
        how, _, many = (text or "auto").partition(":")
        if how == "auto":
            return cls(None, int(many) if many.isdecimal() else 1)
        return cls(None if how == "all" else frozenset(how.split(",")), None)

    def includes(self, *names: str | None) -> bool:
        """Whether a card that goes by these names is one of them."""
        return self.named is None or not self.named.isdisjoint(names)


def asked_with_devices(gpu: str | None, devices: Any) -> str:
    """What is asked of the queue by a run that uses cards and is spread over `devices`, as its lever says.

    Whoever names cards gets those, however many the run would be spread over.
    """
    if gpu not in (None, "auto") or devices == 1:
        return gpu or "auto"
    return f"auto:{devices}" if isinstance(devices, int) else str(devices)
