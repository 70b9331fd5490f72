"""JSON that others wrote: read within limits, and checked against a schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kgops.errors import BadInput
from kgops.jobs.events import is_metric
from kgops.jobs.files import NotAFile, read_regular

__all__ = [
    "ANY",
    "Maybe",
    "read_any",
    "read_table",
    "schema_error",
]

_LARGEST = 1 << 30


def read_table(path: Path) -> dict[str, Any]:
    body = read_any(path)
    if not isinstance(body, dict):
        raise BadInput(f"{path}: expected a table, found {type(body).__name__}")
    return body


def read_any(path: Path) -> Any:
    """NaN and infinity, which Python writes and JSON has not, are no values."""
    try:
        text = read_regular(path, at_most=_LARGEST + 1, follow=True)
    except NotAFile as error:
        raise BadInput(f"{path}: {error.strerror}", "give the file itself") from error
    if len(text) > _LARGEST:
        raise BadInput(f"{path}: larger than {_LARGEST >> 30} GiB")
    try:
        body = json.loads(text.decode("utf-8"), parse_constant=lambda _: None, parse_float=_finite)
        json.dumps(body, ensure_ascii=False).encode("utf-8")
        return body
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 at byte {error.start}") from error
    except UnicodeEncodeError as error:
        raise BadInput(f"{path}: holds half a character: no text") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: not JSON at line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise BadInput(f"{path}: nested too deeply") from error
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


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
