"""Checks of option values: each returns what is wrong, or None."""

from __future__ import annotations

import re

from kgops.jobs.option import Check


def at_least(lowest: float, at_most: float = 1 << 53) -> Check:
    """And no more than a column holds exactly."""

    def check(value: float) -> str | None:
        if value < lowest:
            return f"must be at least {lowest:g}, found {value}"
        return None if value <= at_most else f"must be at most {at_most:g}, found {value}"

    return check


def triple_in(text: str) -> tuple[str, str, str] | None:
    """Head, relation and tail as typed, separated by tabs, else by commas, else by spaces; None if it is another."""
    for separator in ("\t", ",", None):
        parts = text.split(separator)
        if len(parts) == 3 and all(map(str.strip, parts)):
            return parts[0], parts[1], parts[2]
    return None


def not_a_triple(text: str) -> str | None:
    if triple_in(text) is not None:
        return None
    return f"must be head, relation and tail, separated by tabs, commas or spaces, found {text!r:.60}"


def above(lowest: float) -> Check:
    return lambda value: None if value > lowest else f"must be above {lowest:g}, found {value}"


def between_0_and_1(value: float) -> str | None:
    return None if 0 < value < 1 else f"must be above 0 and below 1, found {value}"


def below_one(value: float) -> str | None:
    return None if 0 <= value < 1 else f"must be at least 0 and below 1, found {value}"


def share(value: float) -> str | None:
    return None if 0 <= value <= 1 else f"must be from 0 to 1, found {value}"


def one_of(*allowed: str) -> Check:
    return lambda value: (
        None if value in allowed else f"must be one of {', '.join(allowed)}; found {value!r:.60}"
    )


def device_name(value: str) -> str | None:
    if value in ("auto", "cpu", "cuda") or (value.startswith("cuda:") and value[5:].isdecimal()):
        return None
    return f"must be auto, cpu, cuda or cuda:N; found {value!r:.60}"


def gpu_request(value: str) -> str | None:
    if ":" not in value or re.fullmatch(r"auto:[1-9]\d{0,5}", value, re.ASCII):
        return None
    return f"must be auto, auto:N, all, a model, or indexes or UUIDs as in 0,1; found {value!r:.60}"


def size(value: str) -> str | None:
    """Of an image: one number, or height x width."""
    parts = value.split("x")
    good = 1 <= len(parts) <= 2 and all(part.isdecimal() and len(part) < 6 for part in parts)
    return None if good else f"must be a size like 224 or 440x640, found {value!r:.60}"


def progress_pattern(value: str) -> str | None:
    wrong = regular_expression(value)
    if wrong is None and not re.compile(value).groups:
        wrong = "no group for the number of what is done, as in (\\d+)/(\\d+)"
    return wrong


def regular_expression(value: str) -> str | None:
    try:
        re.compile(value)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None
