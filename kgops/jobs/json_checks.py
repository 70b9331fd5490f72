"""JSON that others wrote, read within limits."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from kgops.errors import BadInput
from kgops.jobs.files import NotAFile, read_regular

_LARGEST = 1 << 30


def read_table(path: Path) -> dict[str, Any]:
    body = read_any(path)
    if not isinstance(body, dict):
        raise BadInput(f"{path}: expected a table, found {type(body).__name__}")
    return body


def read_any(path: Path) -> Any:
    try:
        text = read_regular(path, at_most=_LARGEST + 1, follow=True)
    except NotAFile as error:
        raise BadInput(f"{path}: {error.strerror}", "give the file itself") from error
    if len(text) > _LARGEST:
        raise BadInput(f"{path}: larger than {_LARGEST >> 30} GiB")
    return parse(text, path)


def parse(text: bytes, source: object, *, strictly: bool = False) -> Any:
    """BadInput names the source. NaN and infinity, which Python writes and JSON has not, are no values; they are
    refused `strictly`."""
    constant = _refused if strictly else lambda _: None
    try:
        body = json.loads(text.decode("utf-8"), parse_constant=constant, parse_float=_finite)
        if b"\\ud" in text or b"\\uD" in text:
            json.dumps(body, ensure_ascii=False).encode("utf-8")
        return body
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: not UTF-8 at byte {error.start}") from error
    except UnicodeEncodeError as error:
        raise BadInput(f"{source}: holds half a surrogate pair: no text") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{source}: not JSON at line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise BadInput(f"{source}: nested too deeply") from error
    except ValueError as error:
        raise BadInput(f"{source}: {error}") from error


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is not valid JSON")


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
