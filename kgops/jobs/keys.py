"""Keys of a job file: types, defaults and checks; reads a table and lists all its problems."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Check = Callable[[Any], str | None]
_MOST_LISTED = 20
_LONGEST_NAME = 200  # that is compared with those that are known
_MOST_VALUES = 1 << 20  # of a file: a list that YAML repeats by reference can be endless
_DEEPEST = 32
_NESTED = (Mapping, list, tuple, set)


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its type by name, its default, and an optional check that says what is wrong."""

    name: str
    type: str  # str, int, float, bool, strings, table
    default: Any = None
    required: bool = False
    check: Check | None = None
    help: str = ""


_ARTICLES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "strings": "a list of texts",
    "table": "a table",
}


def read_table(path: str, table: object, keys: tuple[Key, ...], problems: list[str]) -> dict[str, Any]:
    """The table with defaults filled in; what is wrong is appended to `problems` with its path."""
    if not isinstance(table, Mapping):
        problems.append(f"{path or 'the file'}: expected a table, found {describe(table)}")
        return {key.name: key.default for key in keys}
    known = {key.name: key for key in keys}
    problems += unknown_names(path, table, known, "key")
    values: dict[str, Any] = {}
    for key in keys:
        key_path = joined(path, key.name)
        if key.name not in table:
            if key.required:
                problems.append(f"{key_path}: missing; expected {_ARTICLES[key.type]}")
            values[key.name] = key.default
            continue
        value = table[key.name]
        if not _fits(value, key.type):
            problems.append(f"{key_path}: expected {_ARTICLES[key.type]}, found {describe(value)}")
            values[key.name] = key.default
            continue
        if key.type == "float":
            value = _as_float(value)
        problem = _not_finite(value) or (key.check(value) if key.check else None)
        if problem:
            problems.append(f"{key_path}: {problem}")
        values[key.name] = value
    return values


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf if value > 0 else -math.inf


def _not_finite(value: object) -> str | None:
    """TOML and YAML have infinity and NaN; no key means anything by them."""
    is_wrong = isinstance(value, float) and not math.isfinite(value)
    return f"must be a finite number, found {value}" if is_wrong else None


def unknown_names(path: str, names: Iterable[object], known: Mapping[str, object], what: str) -> list[str]:
    """Problems of names that are not known."""
    unknown = [str(name) for name in names if name not in known]
    return first_of(
        unknown,
        lambda name: f"{joined(path, name)}: no such {what}{nearest(name, known)}",
        f"{what}s",
        path or "the file",
    )


def first_of(unknown: Sequence[str], message: Callable[[str], str], what: str, path: str) -> list[str]:
    """A problem for each of the first, and one that counts the others: looking for what is near takes a millisecond,
    and a file may have thousands."""
    problems = [message(name) for name in unknown[:_MOST_LISTED]]
    if len(unknown) > _MOST_LISTED:
        problems.append(f"{path}: {len(unknown) - _MOST_LISTED:,} more {what} that are not known")
    return problems


def unreadable(table: object) -> list[str]:
    """Problems of values that cannot be processed, each with its key: numbers beyond 64 bits, nesting too deep."""
    problems: list[str] = []
    for looked, (key_path, value, depth) in enumerate(_walk(table)):
        if looked == _MOST_VALUES:
            return [f"the file: more than {_MOST_VALUES:,} values"]
        if depth == _DEEPEST and isinstance(value, _NESTED):
            problems.append(f"{_dotted_path(key_path)}: nested deeper than {_DEEPEST} levels")
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            problems.append(f"{_dotted_path(key_path)}: a number beyond 64 bits")
    return problems


def unwritable(table: object) -> list[str]:
    """Problems of texts that no file or command can hold, each with its key."""
    problems: list[str] = []
    for key_path, value, _ in _walk(table):
        if isinstance(value, str) and not _is_utf8(value):
            problems.append(f"{_dotted_path(key_path)}: {value[:60]!r} is not UTF-8")
        elif isinstance(value, str) and "\0" in value:
            problems.append(f"{_dotted_path(key_path)}: has a NUL byte")
    return problems


def _walk(table: object) -> Iterator[tuple[_KeyPath, object, int]]:
    """Every value and every key in it, in their order, as deep as is allowed."""
    waiting: list[tuple[_KeyPath, object, int]] = [(None, table, 0)]
    while waiting:
        key_path, value, depth = waiting.pop()
        yield key_path, value, depth
        if depth < _DEEPEST and isinstance(value, Mapping):
            inner = [((key_path, name), one, depth + 1) for name, one in value.items()]
            waiting += inner[::-1]
            waiting += [((key_path, "a key"), name, _DEEPEST) for name in value]
        elif depth < _DEEPEST and isinstance(value, _NESTED):
            waiting += [((key_path, i), one, depth + 1) for i, one in enumerate(value)][::-1]


# Linked, not joined: of a hundred thousand values under a long key each would have a copy of it.
_KeyPath = tuple[Any, object] | None


def _dotted_path(key_path: _KeyPath) -> str:
    path = ""
    while key_path is not None:
        key_path, step = key_path
        if isinstance(step, str):
            path = f".{step[:60]!r}{path}" if not step.isidentifier() else f".{step[:60]}{path}"
        else:
            path = f"[{step}]{path}" if isinstance(step, int) and abs(step) < 1 << 63 else f".?{path}"
    return path.lstrip(".") or "the file"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def nearest(name: str, known: Mapping[str, object]) -> str:
    """`; did you mean 'x'?`, or nothing when nothing is near."""
    near = difflib.get_close_matches(name[:_LONGEST_NAME], list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; known here: {', '.join(known)}" if known else ""


def joined(path: str, name: str) -> str:
    shown = name if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) else f"{name!r:.100}"
    return f"{path}.{shown}" if path else shown


def describe(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return f"{value!r:.60}"


def _fits(value: object, wanted: str) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted == "str":
        return isinstance(value, str)
    if wanted == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted == "float":
        return number
    if wanted == "bool":
        return isinstance(value, bool)
    if wanted == "strings":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, Mapping)


def at_least(lowest: float, at_most: float = 1 << 53) -> Check:
    """And no more than a column holds exactly."""

    def check(value: float) -> str | None:
        if value < lowest:
            return f"must be at least {lowest:g}, found {value}"
        return None if value <= at_most else f"must be at most {at_most:g}, found {value}"

    return check


def above(lowest: float) -> Check:
    return lambda value: None if value > lowest else f"must be above {lowest:g}, found {value}"


def device_name(value: str) -> str | None:
    if value in ("auto", "cpu", "cuda") or (value.startswith("cuda:") and value[5:].isdecimal()):
        return None
    return f"must be auto, cpu, cuda or cuda:N; found {value!r:.60}"


def one_of(*allowed: str) -> Check:
    return lambda value: (
        None if value in allowed else f"must be one of {', '.join(allowed)}; found {value!r:.60}"
    )


def regular_expression(value: str) -> str | None:
    try:
        re.compile(value)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None
