"""Trial results of each variant: the file that a command writes for the benchmark that started it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kgops.jobs.files import read_json

__all__ = ["Trials", "read_trials", "trial_of", "write_trials"]

Trials = Mapping[str, Sequence[Mapping[str, Any]]]  # by variant name
_FILE = "ways.json"  # among the results of the command's run


def write_trials(results: Path, trials: Trials) -> None:
    (results / _FILE).write_text(json.dumps(trials, indent=1))


def read_trials(results: Path) -> Trials | None:
    """None where the command wrote nothing."""
    trials: Trials | None = read_json(results / _FILE)
    return trials


def trial_of(trials: Trials, name: str, number: int) -> dict[str, Any]:
    """The record of one trial of a variant; the last record where the variant stopped early."""
    records = trials.get(name)
    return dict(records[min(number, len(records) - 1)]) if records else {"trouble": "the command did not say"}
