"""Parse filters of runs: `workload:train gpu:t4 mrr>0.3 tag:paper since:7d "two words" -tag:old`.

Terms are separated by blanks and must all match; `-` before a term negates it. A term is a key with `:` and a
value, a name with a comparison and a number, or a word that occurs anywhere in label, command, tags or notes.
Parsing never raises: terms that cannot be parsed are returned as troubles with their position.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Literal, NamedTuple

from storage.run_list import COMPUTED
from storage.runs import ACTIVE, ENDED, STATES, UNFINISHED, WAITING

Kind = Literal["words", "choice", "contains", "gpu", "time", "number", "metric"]


class Field(NamedTuple):
    kind: Kind
    column: str  # of a run; for tag and note, of the table of that name
    unit: Literal["", "mib", "seconds"] = ""


FIELDS: dict[str, Field] = {
    "workload": Field("choice", "run.workload"),
    "state": Field("choice", "run.state"),
    "profile": Field("choice", "run.profile"),
    "metric": Field("choice", "run.metric"),
    "tag": Field("choice", "tag"),
    "label": Field("contains", "run.label"),
    "reason": Field("contains", "run.reason"),
    "phase": Field("contains", "run.phase"),
    "folder": Field("contains", "run.folder"),
    "note": Field("contains", "note"),
    "gpu": Field("gpu", "run.gpu"),
    "since": Field("time", "run.submitted_at"),
    "until": Field("time", "run.submitted_at"),
    "older": Field("time", "run.submitted_at"),
    "run": Field("number", "run.id"),
    "attempts": Field("number", "run.attempts"),
    "exit": Field("number", "run.exit_code"),
    "time": Field("number", COMPUTED["time"], "seconds"),
    "took": Field("number", COMPUTED["time"], "seconds"),  # as the history heads it
    "peak_gpu": Field("number", COMPUTED["peak_gpu"], "mib"),
    "peak_host": Field("number", COMPUTED["peak_host"], "mib"),
    "predicted": Field("number", "run.predicted_mib", "mib"),
    "reserved": Field("number", "run.reserved_mib", "mib"),
    "rate": Field("number", "run.rate"),
    "done": Field("number", "run.done"),
    "total": Field("number", "run.total"),
    # The column names of `kgops runs --json`.
    "id": Field("number", "run.id"),
    "exit_code": Field("number", "run.exit_code"),
    "peak_gpu_mib": Field("number", "run.peak_gpu_mib", "mib"),
    "peak_host_mib": Field("number", "run.peak_host_mib", "mib"),
    "predicted_mib": Field("number", "run.predicted_mib", "mib"),
    "reserved_mib": Field("number", "run.reserved_mib", "mib"),
    "host_cpu_s": Field("number", COMPUTED["host_cpu_s"], "seconds"),
    "metric_value": Field("number", "run.metric_value"),
}
GROUPS = {
    "ended": ENDED,
    "active": ACTIVE,
    "waiting": WAITING,
    "unfinished": UNFINISHED,
    "oom": ("out_of_memory",),
}
NONE = "none"  # `profile:none`: no value in that column

Value = str | float | tuple[float, float]  # a pair is a closed range


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. `key` is in FIELDS, "words", or a metric's name; `prefix`: its last value is incomplete."""

    kind: Kind
    key: str
    op: str
    values: tuple[Value, ...]
    negated: bool = False
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """A part of the filter that cannot be parsed, with its position."""

    at: int
    length: int
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class ParsedFilter:
    """A parsed filter. `pending` is an incomplete last term: neither applied nor an error."""

    terms: tuple[Term, ...]
    troubles: tuple[Trouble, ...] = ()
    pending: str | None = None


class _Bad(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class _Incomplete(Exception):
    """The term is incomplete but may become valid."""


_TOKEN = re.compile(r'(?:[^\s"]+|"[^"]*("|$))+')
_TERM = re.compile(r"(?P<key>[A-Za-z_][\w.@-]*)(?P<op>>=|<=|!=|:|=|>|<)(?P<value>.*)", re.DOTALL)
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([a-z]*)", re.IGNORECASE)
_UNBINDABLE = re.compile("[\\x00\\ud800-\\udfff]")  # SQLite ends a text at the one and refuses the others
_SPAN = re.compile(r"(\d{1,9})([smhdw])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MIB = {"mib": 1, "m": 1, "gib": 1024, "g": 1024, "tib": 1 << 20, "t": 1 << 20}


def read(text: str, *, now: float | None = None, typing: bool = False) -> ParsedFilter:
    """Parses a filter. `typing`: the last term may be incomplete, and its value then matches as a prefix."""
    at = time.time() if now is None else now
    terms: list[Term] = []
    troubles: list[Trouble] = []
    pending = None
    for token in _TOKEN.finditer(_UNBINDABLE.sub("\ufffd", text)):
        begun = typing and token.end() == len(text)
        try:
            term = _term(token[0], at, begun)
        except _Incomplete:
            if begun:
                pending = token[0]
                continue
            hint = "write the value directly after the sign, as in  tag:paper  or  mrr>0.3"
            troubles.append(_trouble(token, f"{token[0]!r:.60} has no value", hint))
        except _Bad as bad:
            troubles.append(_trouble(token, bad.message, bad.hint))
        else:
            if term is not None:
                terms.append(term)
    return ParsedFilter(tuple(terms), tuple(troubles), pending)


def _trouble(token: re.Match[str], message: str, hint: str) -> Trouble:
    return Trouble(token.start(), len(token[0]), message, hint)


def _term(token: str, now: float, begun: bool) -> Term | None:
    negated = token.startswith("-")
    body = token[1:] if negated else token
    if not body:
        raise _Incomplete
    if body.count('"') % 2 and not begun:
        raise _Bad(f"the quote in {token!r:.60} is not closed", 'put a " after the last word')
    split = _TERM.fullmatch(body)
    if split is None:
        if token == "all":
            return None
        word = body.replace('"', "")
        if word.lower() in (*STATES, *GROUPS) and '"' not in body:
            return Term("choice", "state", ":", _states([word], False), negated)
        return Term("words", "words", ":", (word,), negated) if word.strip() else None
    key, op, quoted = split["key"], split["op"], '"' in split["value"]
    value = split["value"].replace('"', "")
    if not value:
        raise _Incomplete
    # A value is complete after a closing quote or a blank.
    prefix = begun and not (quoted and split["value"].endswith('"') and not body.count('"') % 2)
    field = FIELDS.get(key)
    if field is None:
        return _metric(key, op, value, negated, begun)
    if op == "!=" and field.kind != "number":
        op, negated = ":", not negated
    if field.kind not in ("number", "metric") and op not in (":", "="):
        raise _Bad(f"{key} cannot be compared with {op}", f"write  {key}:{value}")
    if field.kind == "choice":
        half = prefix and key != "state"
        return Term("choice", key, ":", _choices(key, value, prefix), negated, half)
    if field.kind == "number":
        return Term("number", key, *_comparison(key, op, value, field.unit, begun), negated)
    if field.kind == "time":
        return Term("time", key, ":", (_timestamp(key, value, now, begun),), negated)
    return Term(field.kind, key, ":", (value,), negated, prefix)


def _choices(key: str, value: str, prefix: bool) -> tuple[str, ...]:
    values = [one for one in value.split(",") if one]
    if not values:
        raise _Incomplete
    return _states(values, prefix) if key == "state" else tuple(values)


def _states(names: list[str], prefix: bool) -> tuple[str, ...]:
    """The full names of states; an incomplete one, or one that ends with `*`, may match several."""
    known = (*STATES, *GROUPS)
    out: list[str] = []
    for i, one in enumerate(name.lower() for name in names):
        half = one.endswith("*") or (prefix and i == len(names) - 1)
        fits = [name for name in known if name == one or (half and name.startswith(one.rstrip("*")))]
        if not fits:
            raise _Bad(f"there is no state {one!r:.60}", _nearest(one, known, "states"))
        for name in fits:
            out += GROUPS.get(name, (name,))
    return tuple(dict.fromkeys(out))


def _metric(key: str, op: str, value: str, negated: bool, begun: bool) -> Term:
    """A term for a metric, which may have any name."""
    is_range = op == ":" and re.match(r"[-+.\d]", value)
    if op == ":" and not is_range:
        raise _Bad(
            f"there is no key {key!r:.60}",
            _nearest(key, tuple(FIELDS), "keys") + f'; to search for it as text, write  "{key}:{value}"',
        )
    return Term("metric", key, *_comparison(key, op, value, "", begun), negated)


def _comparison(key: str, op: str, value: str, unit: str, begun: bool) -> tuple[str, tuple[Value, ...]]:
    if op in (":", "=") and ".." in value:
        low, _, high = value.partition("..")
        if begun and not high:
            raise _Incomplete
        lowest = _number(key, low, unit, False) if low else float("-inf")
        return "=", ((lowest, _number(key, high, unit, begun) if high else float("inf")),)
    if op in (":", "=") and value == NONE:
        return "=", (NONE,)
    return "=" if op == ":" else op, (_number(key, value, unit, begun),)


def _number(key: str, text: str, unit: str, begun: bool) -> float:
    units: dict[str, int] = {"mib": _MIB, "seconds": SECONDS}.get(unit, {})
    match = _NUMBER.fullmatch(text)
    if match and (not match[2] or match[2].lower() in units):
        return float(match[1]) * units.get(match[2].lower(), 1)
    unit_begun = match and any(name.startswith(match[2].lower()) for name in units)
    if begun and (
        unit_begun or NONE.startswith(text) or re.fullmatch(r"[+-]?\.?|.*[\d.]e[+-]?", text.lower())
    ):
        raise _Incomplete
    more = f", optionally with a unit: {', '.join(units)}" if units else ""
    raise _Bad(f"{key} needs a number, not {text!r:.60}", f"write a number, as in  {key}>0.3{more}")


def _timestamp(key: str, value: str, now: float, begun: bool) -> float:
    """The time of a date (local time) or of a span before now."""
    span = _SPAN.fullmatch(value)
    if span:
        return now - int(span[1]) * SECONDS[span[2]]
    from datetime import datetime, timedelta

    day = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"today": day, "yesterday": day - timedelta(days=1)}
    try:
        moment = named[value] if value in named else datetime.fromisoformat(value)
        if key == "until" and (value in named or len(value) <= len("2026-01-31")):
            moment += timedelta(days=1)  # that day is part of it
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    if begun and (re.fullmatch(r"[\d:T.+-]+", value) or any(name.startswith(value) for name in named)):
        raise _Incomplete
    raise _Bad(
        f"{value!r:.60} is not a date or time span",
        f"write {key}:30m, {key}:12h, {key}:7d, {key}:2w or {key}:2026-01-31",
    )


def _nearest(name: str, known: tuple[str, ...], what: str) -> str:
    import difflib  # seldom needed

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    listed = f"{what}: {', '.join(known)}"
    return f"did you mean {near[0]!r}? {listed}" if near else listed
