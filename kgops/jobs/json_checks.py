"""Checks imported JSON against a schema.

A schema is a type, a list with the schema of its members, or a table: of keys, where one with `?` may be missing, or
`{str: x}` for any keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kgops.jobs.events import is_metric

__all__ = ["ANY", "Maybe", "schema_error"]


class Maybe(NamedTuple):
    """May be null."""

    schema: Any


ANY = object()


def schema_error(value: Any, schema: Any, path: str) -> str | None:
    """The first value that does not match the schema, with its path; None if all match."""
    if schema is ANY:
        return None
    if isinstance(schema, Maybe):
        return None if value is None else schema_error(value, schema.schema, path)
    if isinstance(schema, list):
        inner = (
            [(one, schema[0], f"{path}[{i}]") for i, one in enumerate(value)] if _is(value, list) else None
        )
        return _first(inner, f"{path} is no list")
    if isinstance(schema, dict):
        return _first(_members(value, schema, path) if _is(value, dict) else None, f"{path} is no table")
    fits = is_metric(value) if schema is float else _is_whole(value) if schema is int else _is(value, schema)
    return None if fits else f"{path} is no {_TYPE_NAMES[schema]}: {value!r:.40}"


_TYPE_NAMES = {str: "text", float: "number", int: "whole number", bool: "truth value"}


def _members(table: Mapping[str, Any], schema: Mapping[Any, Any], path: str) -> list[tuple[Any, Any, str]]:
    if str in schema:
        return [(value, schema[str], f"{path}.{name}") for name, value in table.items()]
    members = []
    for key, inner in schema.items():
        name = key.removesuffix("?")
        if name in table or name == key:
            members.append((table.get(name), inner, f"{path}.{name}"))
    return members


def _first(inner: list[tuple[Any, Any, str]] | None, otherwise: str) -> str | None:
    if inner is None:
        return otherwise
    return next((error for member in inner if (error := schema_error(*member))), None)


def _is_whole(value: Any) -> bool:
    """A column can hold it."""
    return _is(value, int) and not _is(value, bool) and -(2**63) <= value < 2**63


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)
