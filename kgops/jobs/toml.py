"""Writes TOML, which the standard library cannot, and reads it within time limits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
# Texts and comments, closed or not: one that ends with the file must not be looked for again from every quote in it.
_QUOTED = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)'
    r'|"(?:[^"\\\n]|\\.)*+(?:"|$)|\'[^\'\n]*+(?:\'|$)|#[^\n]*',
    re.DOTALL | re.MULTILINE,
)
# tomllib takes time that grows with the cube of a key's parts: 13 s for 20,000 of them.
# Parsing and checking take 10 µs for each key and 2 µs for each value: 23 s for a file of 4 MiB.
_MOST_KEYS, _MOST_VALUES = 20_000, 100_000
_ENDLESS_KEY = re.compile(r"(?<![A-Za-z0-9_-])(?:[A-Za-z0-9_-]++[ \t]*+\.[ \t]*+){32}")


def loads(text: str) -> dict[str, Any]:
    """Parses `text` in bounded time; ValueError with the reason where it is not valid."""
    import tomllib  # seldom needed

    bare = _QUOTED.sub("a", text)
    if _ENDLESS_KEY.search(bare):
        raise ValueError("a key has more than 32 parts")
    if bare.count("=") + bare.count("\n[") > _MOST_KEYS:
        raise ValueError(f"more than {_MOST_KEYS:,} keys")
    if sum(map(bare.count, ",[{.")) > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES:,} values")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(table: Mapping[str, Any]) -> str:
    """TOML that tomllib reads back to an equal value. None is left out: TOML has no such thing."""
    out: list[str] = []
    _write_table(table, (), out)
    return "\n".join(out).lstrip("\n") + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], out: list[str]) -> None:
    plain = {
        name: value for name, value in table.items() if value is not None and not isinstance(value, Mapping)
    }
    if path and (plain or not table):
        out += ["", "[" + ".".join(_name(part) for part in path) + "]"]
    out += [f"{_name(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            _write_table(value, (*path, name), out)


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_name(name)} = {_value(inner)}" for name, inner in value.items()) + "}"
    raise TypeError(f"TOML has no place for {value!r}")


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
