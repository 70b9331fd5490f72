"""Reads YAML configurations of the original regression project into a job's table.

All keys of its `main.py --config` are accepted. Keys that kgops does not support are listed in the job as `left_out`,
with the reason, and the run reports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from kgops.errors import BadJob, Usage
from kgops.jobs.files import read_named
from kgops.jobs.option import describe
from kgops.jobs.option_reading import nearest, unknown_names, unreadable
from kgops.workloads.catalog import option_problems
from kgops.workloads.regress.job import REGRESS

LARGEST = 1 << 17  # those that ship have 1 to 3 KB; nested brackets take PyYAML a second for 5 KB
_SUFFIXES = (".yaml", ".yml")

_IN_RUN_FOLDER = "results, checkpoints and log are in the run's folder; output_directory gets a copy"
_ALL_FRAMES = "all frames of a file are used unchanged: select and crop frames before writing it"
_NO_LOADING = "frames are read ahead from mapped files: there is nothing to set"
_NO_MINING = "every window is used once per epoch, whatever its error"

# Unsupported keys and flags, and what kgops does instead.
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(("models_directory", "log_dir"), _IN_RUN_FOLDER),
    **dict.fromkeys(("filter_type", "cbh_min", "cbh_max", "swath_slice", "clahe_clip_limit"), _ALL_FRAMES),
    **dict.fromkeys(("hpc_mode", "pin_memory", "prefetch_factor"), _NO_LOADING),
    **dict.fromkeys(("hard_mining_k", "hard_mining_factor"), _NO_MINING),
    "flights": "all flights in data_directory are used, named after their files",
    "no_plots": "`kgops show` and the screens draw the curves",
}
_NEGATED = {"no_pretrain": "pretrain", "no_final": "final"}
_COMPILE = ("torch_compile", "torch_compile_mode")
_SCHEDULES = {"reducelronplateau": "plateau", "cosineannealinglr": "cosine", "none": "constant"}
_SETTINGS = {option.name: option for option in REGRESS.settings}
_KNOWN = dict.fromkeys((*_SETTINGS, *REGRESS.optimizations, *_COMPILE, *_NEGATED, *LEFT_OUT))


def names() -> list[str]:
    """Of the configurations that ship with kgops."""
    return [path.stem for path in sorted(_shipped().glob("*.yaml"))]


def read(name: str) -> dict[str, Any]:
    """The content of a file, or of a shipped configuration by its name; a file of that name goes first."""
    path = Path(name)
    plain = name.removesuffix(_SUFFIXES[0])
    if plain in names() and not path.is_file():
        path = _shipped() / f"{plain}.yaml"
    elif not name.endswith(_SUFFIXES):
        near = nearest(name, dict.fromkeys(names()))
        raise Usage(f"there is no configuration {name!r:.60}{near}", "a file's name ends in .yaml")
    elif path.stem in names() and not path.exists():
        raise Usage(f"there is no file {path}", f"kgops ships that configuration: --config {path.stem}")
    return _parsed(read_named(path, "configuration", LARGEST), str(path))


def job_table(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Keys as a configuration names them, as the table of a job; every problem of them at once."""
    given = {name: value for name, value in given.items() if value is not None}
    problems = unknown_names("", given, _KNOWN, "key")
    settings = {name: _value(name, value) for name, value in given.items() if name in _SETTINGS}
    options = {name: value for name, value in given.items() if name in REGRESS.optimizations}
    if isinstance(given.get("architecture"), Mapping):
        settings["architecture"] = _architecture(given["architecture"], problems)
    for name, positive in _NEGATED.items():
        if _switch(given, name, problems):
            settings[positive] = False
    if _COMPILE[0] in given:
        mode = given.get(_COMPILE[1], "default") if _switch(given, _COMPILE[0], problems) else "off"
        options.setdefault("compile", mode)
    problems += option_problems(options, path="")
    if problems:
        raise BadJob(source, problems)
    left_out = [f"{name}: {LEFT_OUT[name]}" for name, value in given.items() if name in LEFT_OUT and value]
    if left_out:
        settings["left_out"] = left_out
    return {"workload": "regress", "regress": settings, "options": options}


def _architecture(table: Mapping[str, Any], problems: list[str]) -> Any:
    known = {"name": None}
    problems += unknown_names("architecture", table, known, "key")
    if "name" not in table:
        problems.append("architecture.name: missing; expected text")
    return table.get("name")


def _switch(given: Mapping[str, Any], name: str, problems: list[str]) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        problems.append(f"{name}: expected true or false, found {describe(value)}")
    return value is True


def _value(name: str, value: Any) -> Any:
    """As kgops spells it. YAML 1.1 takes 1e-3 for text, since it has no point, and a flight's date for a number."""
    if isinstance(value, str) and name in ("optimizer", "scheduler"):
        spelt = value.lower()
        return _SCHEDULES.get(spelt, spelt)
    if isinstance(value, str) and _SETTINGS[name].type == "float":
        try:
            return float(value)
        except ValueError:
            return value
    if isinstance(value, int) and not isinstance(value, bool) and _SETTINGS[name].type == "str":
        return str(value)
    return value


def _parsed(text: str, source: str) -> dict[str, Any]:
    import yaml  # no other command needs it

    try:
        table = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadJob(source, [f"not YAML: {' '.join(str(error).split())[:200]}"]) from error
    except (ArithmeticError, LookupError, AttributeError) as error:  # of a scalar with another's tag
        raise BadJob(source, [f"not YAML: {type(error).__name__} in one of its values"]) from error
    if not isinstance(table, dict):
        raise BadJob(source, [f"expected keys and values, found {describe(table)}"])
    if problems := unreadable(table):
        raise BadJob(source, problems)
    return table


def _shipped() -> Path:
    return Path(str(files("kgops"))) / "recipes"
