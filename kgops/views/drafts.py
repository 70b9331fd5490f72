"""A draft of a job, as entered in the new-run form: its fields, their validation and their completions."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from kgops.errors import BadJob, Usage
from kgops.gpus.known import known_by_short_name
from kgops.jobs import configurations
from kgops.jobs.chunk_sizes import REGRESS_IMAGES
from kgops.jobs.job import Job, read_job
from kgops.jobs.workloads import WORKLOADS
from kgops.options.catalog import OPTIONS
from storage import runs
from storage.database import Connection
from storage.runs import Filter

__all__ = [
    "BUNDLED",
    "DRAFT_OPTIONS",
    "FIELDS",
    "BadField",
    "Draft",
    "Field",
    "is_what_if",
    "job_of",
    "recent_data",
]

BUNDLED = ("nations", "kinships", "umls")
_SPLITS = ("train", "valid", "test")
_VOCABULARIES = ("entity_to_id", "relation_to_id")
_ENDINGS = (".txt", ".tsv", ".txt.gz", ".tsv.gz", "")
_MOST_RUNS = 60  # newest runs whose data are offered again


class BadField(Usage):
    """An error in one field of the form."""

    def __init__(self, field: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.field = field


class Field(NamedTuple):
    """One line of the form; `steps` are common values of a number."""

    name: str
    label: str
    help: str
    steps: tuple[int, ...] = ()


FIELDS: dict[str, tuple[Field, ...]] = {
    "train": (
        Field("data", "data", "a bundled graph, a folder, or a file"),
        Field("num_epochs", "epochs", "passes over the triples", (1, 5, 10, 20, 50, 100, 200, 500, 1000)),
        Field("embedding_dim", "dimensions", "length of an entity's vector", (50, 100, 200, 300, 400, 800)),
    ),
    "tracin": (
        Field("run", "run", "a training run that succeeded"),
        Field("test_triple", "test triple", "head, relation, tail; empty: all"),
        Field("top_k", "top", "number of strongest influences to keep", (10, 25, 50, 100, 500, 1000)),
    ),
    "regress": (
        Field("config", "config", "a bundled configuration, or a file"),
        Field("data_directory", "flights", "a folder with one file for each flight"),
        Field("epochs", "epochs", "maximum passes over the windows", (1, 5, 10, 20, 50, 100, 200)),
        Field("architecture", "network", "network that combines the frames of a window"),
    ),
    "exec": (
        Field("command", "command", "the command line to run"),
        Field("cwd", "folder", "working folder; empty: the current one"),
    ),
}
_NUMBERS = {"num_epochs": 100, "embedding_dim": 200, "top_k": 100}
DRAFT_OPTIONS: dict[str, tuple[str, ...]] = {
    name: tuple(option.name for option in workload.optimizations.values() if option.in_form)
    for name, workload in WORKLOADS.items()
}


@dataclass(frozen=True, slots=True)
class Draft:
    """`fields` by name, empty for the default; `gpu` is `cpu`, a GPU's index, or a known GPU's short name."""

    workload: str = "train"
    fields: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: str | None = None
    gpu: str | None = None

    def text(self, name: str) -> str:
        return self.fields.get(name, "")

    def number(self, name: str) -> int | None:
        """The field's number, or its default where it is empty; None where it is not a number."""
        text = self.text(name).strip().replace(",", "")
        return int(text) if text.isdecimal() else _NUMBERS.get(name) if not text else None

    def with_field(self, name: str, text: str) -> Draft:
        return replace(self, fields={**self.fields, name: text})

    def with_option(self, name: str, value: Any) -> Draft:
        """Sets an option; None leaves it to the profile and the planner."""
        rest = {option: v for option, v in self.options.items() if option != name}
        return replace(self, options=rest if value is None else {**rest, name: value})


def is_what_if(draft: Draft) -> bool:
    """Whether the draft is planned for a known GPU that this machine does not have."""
    return draft.gpu is not None and known_by_short_name(draft.gpu) is not None


def job_of(draft: Draft) -> Job:
    """The draft as a job. Raises BadField, which names the wrong field."""
    options = {name: v for name, v in draft.options.items() if name in DRAFT_OPTIONS[draft.workload]}
    if draft.workload == "regress":
        settings, options = _regress(draft, options)
    else:
        settings = _SETTINGS[draft.workload](draft)
    if draft.gpu == "cpu" and draft.workload != "exec":
        settings["device"] = "cpu"
    gpu = draft.gpu if draft.gpu != "cpu" and not is_what_if(draft) else None
    table = {
        "workload": draft.workload,
        draft.workload: settings,
        "options": options,
        "gpu": {"wanted": gpu} if gpu else {},
        **({"profile": draft.profile} if draft.profile else {}),
    }
    try:
        return read_job(table, "this run")
    except BadJob as error:
        raise _field_error(error, draft.workload) from error


def files_of(data: str) -> dict[str, str]:
    """The job settings for a bundled data set's name or a path. Raises BadField where there is no such data."""
    text = data.strip()
    if not text:
        raise BadField("data", "the data are missing", f"name one of {', '.join(BUNDLED)}, or a path")
    path = Path(text).expanduser()
    if path.is_dir():
        return _data_files(path.absolute())
    if path.is_file():
        return {"train": str(path.absolute())}
    if re.fullmatch(r"[\w-]+", text):
        return {"dataset": text}
    raise BadField("data", f"there is no file or folder {text}", "Tab completes a path")


def recent_data(conn: Connection) -> list[str]:
    """Data sets and folders of the newest training runs, newest first."""
    names: dict[str, None] = {}
    for run in runs.page(conn, limit=_MOST_RUNS):
        spec = runs.spec(conn, run.id) if run.workload in ("train", "pipeline") else None
        settings = (spec.job.get("train") or (spec.job.get("pipeline") or {}).get("train")) if spec else None
        if spec is None or not settings:
            continue
        if settings.get("dataset"):
            names[str(settings["dataset"])] = None
        elif settings.get("train"):
            names[_named(Path(str(spec.plan.get("cwd") or "/")) / settings["train"])] = None
    return list(names)


def recent_flights(conn: Connection) -> list[str]:
    """Flight folders of the newest regression runs, newest first."""
    folders: dict[str, None] = {}
    for run in runs.page(conn, Filter(workload="regress"), limit=_MOST_RUNS):
        folder = (runs.spec(conn, run.id).job.get("regress") or {}).get("data_directory")
        if folder:
            folders[str(folder)] = None
    return list(folders)


def trained_runs(conn: Connection) -> list[str]:
    """Numbers of training runs that TracIn can use, newest first."""
    succeeded = runs.page(conn, Filter(states=("succeeded",)), limit=_MOST_RUNS)
    return [str(run.id) for run in succeeded if run.workload in ("train", "pipeline")]


def completions(text: str, named: Sequence[str] = BUNDLED) -> list[str]:
    """Completions of a data set's name or a path; folders end in a slash."""
    typed = Path(text).expanduser()
    folder, prefix = (typed, "") if text.endswith(os.sep) else (typed.parent, typed.name)
    try:
        entries = [e for e in os.scandir(folder) if e.name.startswith(prefix) and e.name[0] != "."]
    except OSError:
        entries = []
    before = text[: len(text) - len(prefix)] if prefix else text
    paths = sorted(before + entry.name + (os.sep if entry.is_dir() else "") for entry in entries)
    return [*(name for name in named if text and name.startswith(text)), *paths]


def _named(train: Path) -> str:
    """The folder, where its train file would be found by name; else the file."""
    try:
        whole = _data_files(train.parent)
    except BadField:
        return str(train)
    return str(train.parent) if whole["train"] == str(train) else str(train)


def _data_files(folder: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for role in (*_SPLITS, *_VOCABULARIES):
        path = next((folder / (role + end) for end in _ENDINGS if (folder / (role + end)).is_file()), None)
        if path is not None:
            files[role] = str(path)
    if "train" not in files:
        raise BadField("data", f"{folder} has no train.txt or train.tsv", "name the file of triples instead")
    return files


def _train(draft: Draft) -> dict[str, Any]:
    numbers = {name: _number(draft, name) for name in ("num_epochs", "embedding_dim") if draft.text(name)}
    return {**files_of(draft.text("data")), **numbers}


def _tracin(draft: Draft) -> dict[str, Any]:
    if not draft.text("run").strip():
        raise BadField("run", "the training run is missing", "train a model first, or enter a run's number")
    settings: dict[str, Any] = {"run": _number(draft, "run")}
    if draft.text("test_triple").strip():
        settings["test_triple"] = draft.text("test_triple").strip()
    if draft.text("top_k"):
        settings["top_k"] = _number(draft, "top_k")
    return settings


def _regress(draft: Draft, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and options of the configuration, overridden by the draft's fields."""
    config, folder = draft.text("config").strip(), draft.text("data_directory").strip()
    try:
        chosen = configurations.read(config) if config else {}
    except Usage as error:
        raise BadField("config", error.message, error.hint) from error
    chosen |= {"epochs": _number(draft, "epochs")} if draft.text("epochs") else {}
    chosen |= {"architecture": draft.text("architecture")} if draft.text("architecture") else {}
    if folder:
        path = Path(folder).expanduser().absolute()
        if not path.is_dir():
            raise BadField("data_directory", f"there is no folder {folder}", "Tab completes a path")
        chosen["data_directory"] = str(path)
    try:
        table = configurations.job_table({**chosen, **options}, config or "this run")
    except BadJob as error:
        raise _field_error(error, "regress") from error
    settings: dict[str, Any] = table["regress"]
    if not settings.get("data_directory"):
        settings.setdefault("image_size", REGRESS_IMAGES)
    return settings, table["options"]


def _exec(draft: Draft) -> dict[str, Any]:
    try:
        words = shlex.split(draft.text("command"))
    except ValueError as error:
        raise BadField("command", f"cannot be read as a command: {error}".lower()) from error
    if not words:
        raise BadField("command", "the command is missing", "for example: python train.py")
    folder = Path(draft.text("cwd").strip() or ".").expanduser().absolute()
    if not folder.is_dir():
        raise BadField("cwd", f"there is no folder {folder}", "Tab completes a path")
    return {"command": words, "cwd": str(folder)}


_SETTINGS = {"train": _train, "tracin": _tracin, "exec": _exec}


def _number(draft: Draft, name: str) -> int:
    value = draft.number(name)
    if value is None:
        raise BadField(name, f"expected a whole number, found {draft.text(name)!r:.40}")
    return value


def _field_error(error: BadJob, workload: str) -> BadField:
    """The first problem as an error of its field; of the first field where the form has no such field."""
    where, _, what = error.problems[0].partition(": ")
    name = where.rpartition(".")[2]
    fields = [field.name for field in FIELDS[workload]]
    return BadField(name if name in OPTIONS or name in fields else fields[0], what or where)
