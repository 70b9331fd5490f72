"""Which of the machine's GPUs a run asks for: `auto`, `auto:2`, `all`, some by index or UUID as in `0,2`, or one of a
model by its short name, as in `t4`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["WantedGpus", "asked_with_devices"]

_NUMBERED = re.compile(r"(\d+|(GPU|MIG)-[^,]*)(,(\d+|(GPU|MIG)-[^,]*))*")  # indexes and UUIDs


@dataclass(frozen=True, slots=True)
class WantedGpus:
    """`named` None is any GPU, `many` None every one of them; with `model` any one of that model."""

    named: frozenset[str] | None
    many: int | None
    model: str | None = None

    @classmethod
    def read(cls, text: str | None) -> WantedGpus:
        """Nothing asked is one GPU, whichever; so is `auto`."""
        how, _, many = (text or "auto").partition(":")
        if how == "auto":
            return cls(None, int(many) if many.isdecimal() else 1)
        if how == "all":
            return cls(None, None)
        if not _NUMBERED.fullmatch(how):
            return cls(None, 1, _plain(how))
        return cls(frozenset(how.split(",")), None)

    def includes(self, *names: str | None, model: str | None = None) -> bool:
        """Whether a GPU that goes by these names, and is of this model, is one of them."""
        if self.model is not None:
            return model is not None and _plain(model) == self.model
        return self.named is None or not self.named.isdisjoint(names)


def _plain(model: str) -> str:
    return re.sub(r"[\s_-]", "", model.lower())


def asked_with_devices(gpu_request: str | None, devices: Any) -> str:
    """What is asked of the queue by a run that uses GPUs and is spread over `devices`, as its option says.

    Whoever names GPUs gets those, however many the run would be spread over.
    """
    if gpu_request not in (None, "auto") or devices == 1:
        return gpu_request or "auto"
    return f"auto:{devices}" if isinstance(devices, int) else str(devices)
