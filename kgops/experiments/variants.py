"""Variants of a job for `--vary`: every combination of the given values; the first one is the baseline."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any

from kgops.errors import BadJob, Usage
from kgops.jobs import toml
from kgops.jobs.job import Job
from kgops.jobs.option import word_of
from kgops.jobs.option_reading import SHORT_NAMES, joined, nearest, unreadable, unwritable
from kgops.jobs.text import FIELD, fill_in, one_line
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.job_files import read_job
from kgops.workloads.registry import WORKLOADS, workload_of

MOST = 64
Axis = tuple[str, tuple[str, ...]]  # a name and its values as typed


def read_axis(text: str) -> Axis:
    """Parses `batch_size=256,512` into a name and its values."""
    name, sign, text_of_values = text.partition("=")
    if not sign or not name.strip() or not text_of_values.strip():
        raise Usage(f"--vary {text!r:.60} has no values", "write  --vary batch_size=256,512")
    return name.strip(), tuple(word.strip() for word in text_of_values.split(","))


def combinations(job: Job, axes: Sequence[Axis]) -> dict[str, dict[str, Any]]:
    """Values by name, such as `batch_size=256 precision=fp32`; the first one is the baseline."""
    named = _named(job, axes, least=2)
    return {name: {key: _value(word) for key, word in words.items()} for name, words in named.items()}


def variants(job: Job, axes: Sequence[Axis]) -> dict[str, Job]:
    """The job with each combination of settings; one is enough."""
    return {name: _changed(job, words, name) for name, words in _named(job, axes, least=1).items()}


def _named(job: Job, axes: Sequence[Axis], *, least: int) -> dict[str, dict[str, str]]:
    """Combinations of words, by name."""
    names = [name for name, _ in axes]
    if not axes or len(set(names)) < len(names):
        raise Usage("nothing is varied" if not axes else "a name is varied twice", "give --vary NAME=A,B")
    for name, words in axes:
        if len({_shown(job, word) for word in words}) < len(words):
            given = f"{name}={','.join(words)}"
            raise Usage(f"--vary {given!r:.60} has a value twice")
    first = {name: words[0] for name, words in axes}
    _changed(job, first, _name(job, first))  # a wrong name is said before a wrong number of values
    # Counted before they are built: it grows exponentially.
    count = math.prod(len(words) for _, words in axes)
    if not least <= count <= MOST:
        what = "one combination" if count == 1 else f"{count:,} combinations"
        raise Usage(f"--vary gives {what}", f"give {least} to {MOST}, as in  --vary batch_size=256,512")
    chosen = (
        dict(zip(names, words, strict=True)) for words in itertools.product(*(words for _, words in axes))
    )
    return {_name(job, one): one for one in chosen}


def _name(job: Job, setting: dict[str, str]) -> str:
    return " ".join(f"{key}={_shown(job, word)}" for key, word in setting.items())


def _shown(job: Job, word: str) -> str:
    """The value as a name of a variant has it: for a command as typed, since 3.10 may be a version."""
    return word if workload_of(job).is_command else word_of(_value(word))


def _changed(job: Job, setting: dict[str, str], name: str) -> Job:
    table = copy.deepcopy(job.as_table())
    for key, word in setting.items():
        _set(table, job, key, word)
    try:
        return read_job(table, f"the variant {one_line(name, 200)}")
    except BadJob as error:
        error.hint = (
            error.hint or "an option, a key of the workload's table, or a {placeholder} of a command can vary"
        )
        raise


def _set(table: dict[str, Any], job: Job, key: str, word: str) -> None:
    """Sets an option, a key of the workload (`seed`, `train.seed`), a key of a pipeline's stage, or a command's
    placeholder."""
    settings = table[job.workload]
    if workload_of(job).is_command:
        used = {name for part in settings["command"] for name in FIELD.findall(part)}
        if key not in used:
            raise Usage(f"the command has no {{{key}}} to vary", "put it where the value belongs")
        settings["command"] = fill_in(settings["command"], {key: word})
        return
    value = _value(word)
    own, _, name = key.partition(".")
    if own not in (job.workload, "options"):
        name = key
    known = {one.name: one for one in WORKLOADS[job.workload].settings}
    stages = {one.name for one in known.values() if one.type == "table"}
    if name not in OPTIONS and name not in known:
        name = SHORT_NAMES.get(name, name)
    stage, _, rest = name.partition(".")
    if name in OPTIONS:
        table["options"][name] = value
    elif rest and stage in stages:
        settings[stage] = {**(settings.get(stage) or {}), rest: value}
    elif name in known and name not in stages:
        settings[name] = value
    else:
        in_stages = [
            f"{one}.{name}" for one in sorted(stages) if name in {o.name for o in WORKLOADS[one].settings}
        ]
        offered = dict.fromkeys(
            (*OPTIONS, *sorted(known.keys() - stages), *(f"{one}.NAME" for one in sorted(stages)))
        )
        meant = f"; write {' or '.join(in_stages)}" if in_stages else nearest(name, offered)
        raise Usage(f"{joined(job.workload, name)}: cannot be varied{meant}")


def _value(word: str) -> Any:
    """The word as a TOML value, or as text if it is not one."""
    try:
        table = toml.loads(f"x = {word}")
    except ValueError:
        return word
    return word if len(table) > 1 or unreadable(table) or unwritable(table) else table["x"]
