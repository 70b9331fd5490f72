"""`--devices`: how many devices a run is spread over, or which."""

from __future__ import annotations

from typing import Any

import click

from kgops.jobs.options import OPTIONS

__all__ = ["OPTION", "asked"]

OPTION = click.Option(["--devices"], metavar="N|all|0,1", help=f"{OPTIONS['devices'].summary.capitalize()}.")


def asked(given: dict[str, Any], *, every: bool = False) -> str | int | None:
    """Takes it out of the flags that were given, as the option has it."""
    devices = given.pop("devices")
    if devices is None:
        return "all" if every else None
    return int(devices) if devices.isdigit() else str(devices)
