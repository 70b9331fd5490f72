"""Events: reports of a worker, one JSON object a line.

`{"event": "metric", "at": 1763692800.5, "name": "loss", "value": 0.25, "step": 3}`

Unknown fields are kept, so that an older supervisor reads a newer worker. Any other line is kept as a log line.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from kgops.jobs.data_digests import NAMES
from kgops.jobs.text import is_timestamp

STARTED = "started"
DATA = "data"  # digests of the triples and vocabularies that were read
OPTION = "option"
PROGRESS = "progress"
METRIC = "metric"
MEMORY = "memory"
ARTIFACT = "artifact"
RESULT = "result"
OUT_OF_MEMORY = "out_of_memory"
FAILED = "failed"
NOTE = "note"
ATTRIBUTION = "attribution"  # a test triple and the strongest training triples found for it
LIBRARIES = "libraries_mib"  # curve of what a worker's process had before it read any data
PROCESS_PEAK = "process_peak_mib"
LOG = "log"  # never written by a worker: a line of its events file that was no event

# name → (type, required) of the fields an event must have to mean what it says
_FIELDS: dict[str, dict[str, tuple[type, bool]]] = {
    STARTED: {},
    DATA: dict.fromkeys(NAMES, (str, False)),
    OPTION: {
        "name": (str, True),
        "requested": (object, False),
        "applied": (object, False),
        "reason": (str, False),
    },
    PROGRESS: {
        "phase": (str, False),
        "done": (float, False),
        "total": (float, False),
        "unit": (str, False),
        "rate": (float, False),
    },
    METRIC: {"name": (str, True), "value": (float, True), "step": (float, False)},
    MEMORY: {"mib": (dict, True)},
    ARTIFACT: {"path": (str, True), "kind": (str, False), "sha256": (str, False), "bytes": (float, False)},
    RESULT: {"metrics": (dict, False)},
    OUT_OF_MEMORY: {"detail": (str, False)},
    FAILED: {"reason": (str, True)},
    NOTE: {"text": (str, True)},
    ATTRIBUTION: {
        "test": (float, True),
        "triple": (list, True),  # labels: head, relation, tail
        "candidates": (float, False),
        "trouble": (str, False),
        "influences": (list, False),  # [rank, head, relation, tail, score]
        "names": (dict, False),  # label → what people call it
    },
}
LONGEST_LOG_LINE = 4096


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    at: float
    fields: dict[str, Any] = field(default_factory=dict)


def write(kind: str, at: float, /, **fields: Any) -> bytes:
    """The line for one event, with its line feed. NaN and infinity become null: JSON has neither."""
    body = {"event": kind, "at": at, **{name: _finite(value) for name, value in fields.items()}}
    return (
        json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
            "utf-8", "replace"
        )
        + b"\n"
    )


def read(line: bytes, now: float) -> Event:
    """The event on this line; whatever is wrong with the line, it comes back as a log event."""
    try:
        # Decoded here: given bytes, json would take lone surrogates, and UTF-16 and UTF-32 as well.
        body = _finite(json.loads(line.decode("utf-8")))
        if b"\\u" in line:  # half a surrogate pair is valid JSON and no text
            body = json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return _as_log(line, now)
    if not isinstance(body, dict):
        return _as_log(line, now)
    kind = body.pop("event", None)
    at = body.pop("at", now)
    known = _FIELDS.get(kind) if isinstance(kind, str) else None
    if known is None or not _is(at, float):
        return _as_log(line, now)
    for name, (wanted, required) in known.items():
        value = body.get(name)
        missing = value is None and (not required or (kind == METRIC and name == "value"))
        if not missing and not _is(value, wanted):
            return _as_log(line, now)
    # An event with an impossible time keeps its content and gets the current time.
    return Event(kind, float(at) if is_timestamp(at) else now, body)


def is_metric(value: object) -> bool:
    """A finite number that a column can hold."""
    return _is(value, float)


def _as_log(line: bytes, now: float) -> Event:
    return Event(LOG, now, {"text": line[:LONGEST_LOG_LINE].decode("utf-8", "replace").rstrip("\r\n")})


def _is(value: object, wanted: type) -> bool:
    if wanted is float:
        # A bool is an int to Python, and 1e999 parses as infinity: neither is a metric.
        return isinstance(value, (int, float)) and not isinstance(value, bool) and _is_finite(value)
    return isinstance(value, wanted) and value is not None


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of floats
        return False


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
