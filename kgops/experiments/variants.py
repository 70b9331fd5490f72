"""Variants of a job for `--vary`: every combination of the given values; the first one is the baseline."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any

from kgops.errors import BadJob, Usage
from kgops.jobs import toml
from kgops.jobs.job import Job, read_job
from kgops.jobs.text import FIELD, fill_in
from kgops.jobs.workloads import WORKLOADS
from kgops.options.catalog import OPTIONS
from kgops.options.option import word_of
from kgops.options.reading import joined, nearest, unreadable, unwritable

__all__ = ["Axis", "combinations", "read_axis", "variants"]

MOST = 64
Axis = tuple[str, tuple[Any, ...]]


def read_axis(text: str) -> Axis:
    """Parses `batch_size=256,512` into a name and its values."""
    name, sign, text_of_values = text.partition("=")
    if not sign or not name.strip() or not text_of_values.strip():
        raise Usage(f"--vary {text!r:.60} has no values", "write  --vary batch_size=256,512")
    values = tuple(_value(word.strip()) for word in text_of_values.split(","))
    if len({repr(one) for one in values}) < len(values):
        raise Usage(f"--vary {text!r:.60} has a value twice")
    return name.strip(), values


def combinations(axes: Sequence[Axis]) -> dict[str, dict[str, Any]]:
    """Settings by name, such as `batch_size=256 precision=fp32`; the first one is the baseline."""
    names = [name for name, _ in axes]
    if not axes or len(set(names)) < len(names):
        raise Usage("nothing is varied" if not axes else "a name is varied twice", "give --vary NAME=A,B")
    count = math.prod(
        len(values) for _, values in axes
    )  # counted before they are built: it grows exponentially
    if not 2 <= count <= MOST:
        raise Usage(f"the matrix has {count:,} variants", f"vary something, up to {MOST} in all")
    settings = [
        dict(zip(names, values, strict=True)) for values in itertools.product(*(values for _, values in axes))
    ]
    return {" ".join(f"{key}={word_of(value)}" for key, value in one.items()): one for one in settings}


def variants(job: Job, axes: Sequence[Axis]) -> dict[str, Job]:
    """The job with each combination of settings."""
    return {name: _changed(job, setting, name) for name, setting in combinations(axes).items()}


def _changed(job: Job, setting: dict[str, Any], name: str) -> Job:
    table = copy.deepcopy(job.as_table())
    for key, value in setting.items():
        _set(table, job, key, value)
    try:
        return read_job(table, f"the variant {name}")
    except BadJob as error:
        error.hint = (
            error.hint or "an option, a key of the workload's table, or a {placeholder} of a command can vary"
        )
        raise


def _set(table: dict[str, Any], job: Job, key: str, value: Any) -> None:
    """Sets an option, a key of the workload, a key of its table (`train.seed`), or a command's placeholder."""
    settings = table[job.workload]
    if job.workload == "exec":
        used = {name for part in settings["command"] for name in FIELD.findall(part)}
        if key not in used:
            raise Usage(f"the command has no {{{key}}} to vary", "put it where the value belongs")
        settings["command"] = fill_in(settings["command"], {key: word_of(value)})
        return
    known = {one.name for one in WORKLOADS[job.workload].settings}
    first, _, rest = key.partition(".")
    if key in OPTIONS:
        table["options"][key] = value
    elif rest and first in known:
        settings.setdefault(first, {})[rest] = value
    elif key in known:
        settings[key] = value
    else:
        offered = dict.fromkeys((*OPTIONS, *sorted(known)))
        raise Usage(f"{joined(job.workload, key)}: cannot be varied{nearest(key, offered)}")


def _value(word: str) -> Any:
    """The word as a TOML value, or as text if it is not one."""
    try:
        table = toml.loads(f"x = {word}")
    except ValueError:
        return word
    return word if len(table) > 1 or unreadable(table) or unwritable(table) else table["x"]
