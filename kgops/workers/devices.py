"""Devices for the processes of one run: the requested ones, as far as available."""

from __future__ import annotations

import torch

from kgops.jobs.on_device import processes_on_cpu

__all__ = ["devices_for"]


def devices_for(requested: int | str, device: torch.device) -> tuple[list[str], str | None]:
    """One device for each process, and why they differ from the request; `device`: that of a single process."""
    single = [str(device)]
    if requested == 1:
        return single, None
    if device.type == "cpu":
        processes, why = processes_on_cpu(requested)
        return ["cpu"] * processes, why
    count = torch.cuda.device_count()
    if requested == "all":
        return [f"cuda:{index}" for index in range(count)], None
    # GPU numbers are the machine's; a run sees only its GPUs, numbered from 0.
    wanted = requested if isinstance(requested, int) else requested.count(",") + 1
    devices = [f"cuda:{index}" for index in range(min(wanted, count))]
    return devices or single, None if len(devices) == wanted else f"this run was given {count}"
