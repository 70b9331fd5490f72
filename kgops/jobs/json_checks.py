"""Whether JSON from elsewhere has the shape that its readers rely on.

A shape is a kind of value, a list with the shape of its members, or a table: of the keys that are read, where one with
`?` may be missing, or `{str: x}` of any keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kgops.jobs.events import is_metric

__all__ = ["ANY", "Maybe", "misfit_in"]


class Maybe(NamedTuple):
    """May be null."""

    shape: Any


ANY = object()


def misfit_in(value: Any, shape: Any, where: str) -> str | None:
    """What is not of this shape, and where; None if all of it is."""
    if shape is ANY:
        return None
    if isinstance(shape, Maybe):
        return None if value is None else misfit_in(value, shape.shape, where)
    if isinstance(shape, list):
        inner = (
            [(one, shape[0], f"{where}[{i}]") for i, one in enumerate(value)] if _is(value, list) else None
        )
        return _first(inner, f"{where} is no list")
    if isinstance(shape, dict):
        return _first(_members(value, shape, where) if _is(value, dict) else None, f"{where} is no table")
    fits = is_metric(value) if shape is float else _is_whole(value) if shape is int else _is(value, shape)
    return None if fits else f"{where} is no {_WORDS[shape]}: {value!r:.40}"


_WORDS = {str: "text", float: "number", int: "whole number", bool: "truth value"}


def _members(table: Mapping[str, Any], shape: Mapping[Any, Any], where: str) -> list[tuple[Any, Any, str]]:
    if str in shape:
        return [(value, shape[str], f"{where}.{name}") for name, value in table.items()]
    found = []
    for key, inner in shape.items():
        name = key.removesuffix("?")
        if name in table or name == key:
            found.append((table.get(name), inner, f"{where}.{name}"))
    return found


def _first(inner: list[tuple[Any, Any, str]] | None, otherwise: str) -> str | None:
    if inner is None:
        return otherwise
    return next((trouble for one in inner if (trouble := misfit_in(*one))), None)


def _is_whole(value: Any) -> bool:
    """A column can hold it."""
    return _is(value, int) and not _is(value, bool) and -(2**63) <= value < 2**63


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)
