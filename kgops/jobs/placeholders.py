"""Placeholders in a command: what `{batch_size}` stands for in each attempt."""

from __future__ import annotations

import re
from typing import Any

FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill_in(command: list[str], values: dict[str, Any]) -> list[str]:
    """`{name}` replaced where `values` has the name; every other brace stays as it is."""
    return [
        FIELD.sub(lambda match: str(values[match[1]]) if match[1] in values else match[0], part)
        for part in command
    ]


def attempt_settings(on_oom: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Settings for the first attempt and for each that follows an out-of-memory."""
    steps = max((len(values) for values in on_oom.values()), default=0)
    return [{name: values[min(i, len(values) - 1)] for name, values in on_oom.items()} for i in range(steps)]
