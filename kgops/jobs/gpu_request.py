"""GPUs that a run requests: `auto`, `auto:2`, `all`, indexes or UUIDs as in `0,2`, or a model as in `t4`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["WantedGpus", "gpus_for_devices"]

_NUMBERED = re.compile(r"(\d+|(GPU|MIG)-[^,]*)(,(\d+|(GPU|MIG)-[^,]*))*")  # indexes and UUIDs


@dataclass(frozen=True, slots=True)
class WantedGpus:
    """`named` None is any GPU, `count` None every one of them; with `model` any one of that model."""

    named: frozenset[str] | None
    count: int | None
    model: str | None = None

    @classmethod
    def read(cls, text: str | None) -> WantedGpus:
        """No request, like `auto`, is any one GPU."""
        kind, _, count = (text or "auto").partition(":")
        if kind == "auto":
            return cls(None, int(count) if count.isdecimal() else 1)
        if kind == "all":
            return cls(None, None)
        if not _NUMBERED.fullmatch(kind):
            return cls(None, 1, _plain(kind))
        return cls(frozenset(kind.split(",")), None)

    def includes(self, *names: str | None, model: str | None = None) -> bool:
        """Whether the request includes a GPU with these names and this model."""
        if self.model is not None:
            return model is not None and _plain(model) == self.model
        return self.named is None or not self.named.isdisjoint(names)


def _plain(model: str) -> str:
    return re.sub(r"[\s_-]", "", model.lower())


def gpus_for_devices(gpu_request: str | None, devices: Any) -> str:
    """The GPU request of a run with this `devices` option. Named GPUs take precedence."""
    if gpu_request not in (None, "auto") or devices == 1:
        return gpu_request or "auto"
    return f"auto:{devices}" if isinstance(devices, int) else str(devices)
