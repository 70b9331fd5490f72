"""The `--devices` flag of `kgops run train` and `kgops run tracin`."""

from __future__ import annotations

from typing import Any

import click

from kgops.jobs.options import OPTIONS

__all__ = ["OPTION", "requested"]

_SUMMARY = OPTIONS["devices"].summary
OPTION = click.Option(["--devices"], metavar="N|all|0,1", help=f"{_SUMMARY[:1].upper()}{_SUMMARY[1:]}.")


def requested(given: dict[str, Any], *, every: bool = False) -> str | int | None:
    """Remove `devices` from the given flags and return it as a value of the option."""
    devices = given.pop("devices")
    if devices is None:
        return "all" if every else None
    return int(devices) if devices.isdigit() else str(devices)
