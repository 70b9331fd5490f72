"""Reads a table of options, as in a job file, and lists all its problems."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kgops.jobs.option import Option, defaults_of, describe
from kgops.jobs.text import one_line

# Names in the `config.json` of the group's scripts, and the option that each stands for.
DOCUMENTED = {
    "use_mixed_precision": "precision",
    "use_gradient_checkpointing": "gradient_checkpointing",
    "enable_memory_cleanup": "memory_cleanup",
}
SEGMENTS = "expandable_segments"  # a profile's, in the worker's environment
_MIXED = ("fp16", "bf16")


def option_line(name: str, requested: Any, applied: Any, reason: str | None) -> str:
    """`mixed precision: on (fp16)`, `gradient checkpointing: off (requested on: …)`."""
    label, state, details = name.replace("_", " "), _shown(applied), []
    if name == "precision":
        label, state = "mixed precision", _shown(applied in _MIXED)
        details.append(_shown(applied))
    differs = _shown(requested) != _shown(applied)
    # A requested `auto` differs from its applied value without any request having been refused.
    if differs and (requested != "auto" or (name == "precision" and reason)):
        details.append(f"requested {_shown(requested)}")
    remarks = ": ".join(filter(None, [", ".join(details), reason]))
    return one_line(f"{label}: {state} ({remarks})" if remarks else f"{label}: {state}")


def booleans(
    options: Mapping[str, Mapping[str, Any]], requested_options: Mapping[str, Any]
) -> dict[str, bool]:
    """The applied value of each documented option, and under `…_requested` the requested one."""
    flags = {}
    for name, option in DOCUMENTED.items():
        # Only memory cleanup is on by default: the scripts had a flag that disables it.
        requested = requested_options.get(option, option == "memory_cleanup")
        flags[name] = _is_on(option, options[option]["applied"])
        flags[f"{name}_requested"] = _is_on(option, requested)
    return flags


def _is_on(option: str, value: Any) -> bool:
    return value in (*_MIXED, "auto") if option == "precision" else value in (True, "on")


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


_MOST_LISTED = 20
_LONGEST_NAME = 200  # that is compared with those that are known
_MOST_VALUES = 1 << 20  # of a file: a list that YAML repeats by reference can be endless
_DEEPEST = 32
_NESTED = (Mapping, list, tuple, set)


def read_table(path: str, table: object, options: tuple[Option, ...], problems: list[str]) -> dict[str, Any]:
    """The table with defaults filled in; what is wrong is appended to `problems` with its path."""
    if not isinstance(table, Mapping):
        problems.append(f"{path or 'the file'}: expected a table, found {describe(table)}")
        return defaults_of(options)
    problems += unknown_names(path, table, {option.name: option for option in options}, "key")
    values = defaults_of(options)
    for option in options:
        key_path = joined(path, option.name)
        if option.name not in table:
            problems += [f"{key_path}: missing; expected {option.expected}"] if option.required else []
            continue
        value = table[option.name]
        if problem := option.problem(value):
            problems.append(f"{key_path}: {problem}")
        if option.mistyped(value) is None:
            values[option.name] = option.as_read(value)
    return values


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


# Short names that people know from other tools.
SHORT_NAMES = {
    "lr": "learning_rate",
    "bs": "batch_size",
    "dim": "embedding_dim",
    "wd": "weight_decay",
    "epochs": "num_epochs",
    "k": "top_k",
    "amp": "precision",
    "fp16": "precision",
}


def nearest(name: str, known: Mapping[str, object]) -> str:
    """`; did you mean 'x'?`, or nothing when nothing is near."""
    meant = SHORT_NAMES.get(name)
    if meant in known:
        return f"; did you mean {meant!r}?"
    kinds = [other for other in known if other.startswith(f"{name}-")]  # `a100`: a100-40 or a100-80
    near = kinds or difflib.get_close_matches(name[:_LONGEST_NAME], list(known), n=1, cutoff=0.6)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; known here: {', '.join(known)}" if known else ""


def joined(path: str, name: str) -> str:
    shown = name if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) else f"{name!r:.100}"
    return f"{path}.{shown}" if path else shown
