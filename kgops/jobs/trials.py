"""What a command tells of all the ways it took, turn by turn: the file between it and the benchmark that started it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kgops.jobs.files import read_json

__all__ = ["Turns", "of_turn", "read_turns", "write_turns"]

Turns = Mapping[str, Sequence[Mapping[str, Any]]]  # of each way, by its name
_FILE = "ways.json"  # among the results of the command's run


def write_turns(results: Path, turns: Turns) -> None:
    (results / _FILE).write_text(json.dumps(turns, indent=1))


def read_turns(results: Path) -> Turns | None:
    """None where the command wrote nothing."""
    found: Turns | None = read_json(results / _FILE)
    return found


def of_turn(turns: Turns, name: str, number: int) -> dict[str, Any]:
    """What this way told of its turn; after what could not be done there are no more."""
    told = turns.get(name)
    return dict(told[min(number, len(told) - 1)]) if told else {"trouble": "the command did not say"}
