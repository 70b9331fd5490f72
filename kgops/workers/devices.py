"""The devices that processes of one run share its work on: what was asked for, as far as it is there."""

from __future__ import annotations

import torch

from kgops.jobs.on_device import cpu_processes

__all__ = ["devices_for"]


def devices_for(asked: int | str, device: torch.device) -> tuple[list[str], str | None]:
    """One for each process, and why they are not what was asked; `device` is the one that a run alone would take."""
    alone = [str(device)]
    if asked == 1:
        return alone, None
    if device.type == "cpu":
        processes, why = cpu_processes(asked)
        return ["cpu"] * processes, why
    there = torch.cuda.device_count()
    if asked == "all":
        return [f"cuda:{index}" for index in range(there)], None
    # Their numbers are the machine's; a run sees only those it was given, numbered from 0.
    wanted = asked if isinstance(asked, int) else asked.count(",") + 1
    found = [f"cuda:{index}" for index in range(min(wanted, there))]
    return found or alone, None if len(found) == wanted else f"this run was given {there}"
