"""Convert the keys of a workload to flags of its command, and flags back to settings."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from kgops.cli.finite import FiniteRange
from kgops.jobs.keys import Key

_TYPES: dict[str, Any] = {"str": str, "int": int, "float": FiniteRange(), "strings": str}
_ALSO = {"num-epochs": ("--epochs",)}  # alias


def key_options(keys: tuple[Key, ...]) -> list[click.Option]:
    return [
        click.Option(
            [f"--{name}/--no-{name}" if key.type == "bool" else f"--{name}", *_ALSO.get(name, ())],
            type=None if key.type == "bool" else _TYPES[key.type],
            multiple=key.type == "strings",
            default=None,
            help=key.help + ("" if key.default is None else f"  [default: {_shown(key.default)}]"),
        )
        for key in keys
        for name in [key.name.replace("_", "-")]
    ]


def given_settings(keys: tuple[Key, ...], given: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Remove the keys' values from `given` and return those that are set.

    Paths become absolute: the run, or a repetition of it, may have another working folder.
    """
    values = {key.name: given.pop(key.name) for key in keys}
    return {
        name: str(Path(value).absolute())
        if name in paths
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in values.items()
        if value is not None and value != ()
    }


def add_options(target: click.Command, options: list[click.Option]) -> None:
    target.params[:0] = options


def _shown(default: Any) -> str:
    return ("on" if default else "off") if isinstance(default, bool) else str(default)
