"""A draft of a job, as entered in the new-run form: its fields, their validation and their completions."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kgops.errors import BadJob, Usage
from kgops.gpus.known import known_by_short_name
from kgops.jobs.bundled import BUNDLED
from kgops.jobs.job import Job
from kgops.planning.resolve import on_the_cpu
from kgops.present.draft_fields import (
    DRAFT_OPTIONS,
    FIELDS,
    FILTER_FIELDS,
    MORE,
    STRICT,
    BadField,
    more_of,
    more_text,
    shown,
    value_of,
)
from kgops.workloads import configurations
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.job_files import read_job
from kgops.workloads.registry import WORKLOADS
from kgops.workloads.regress.options import REGRESS_IMAGES
from kgops.workloads.results import leaves
from kgops.workloads.tracin.options import FILTERS
from kgops.workloads.train.options import CONVE, OWN_MODELS
from storage import run_list, runs
from storage.database import Connection
from storage.run_list import Filter

_SPLITS = ("train", "valid", "test")
_VOCABULARIES = ("entity_to_id", "relation_to_id")
_ENDINGS = (".txt", ".tsv", ".txt.gz", ".tsv.gz", "")
_OF_TRACIN = ("test_triple", "max_triples", "top_k", *FILTERS)  # settings of a pipeline's second stage
_MOST_RUNS = 60  # newest runs whose data are offered again


@dataclass(frozen=True, slots=True)
class Draft:
    """`fields` by name, empty for the default; `gpu` is `cpu`, a GPU's index, or a known GPU's short name. `where` is a
    host's name, and None for this machine."""

    workload: str = "train"
    fields: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: str | None = None
    gpu: str | None = None
    where: str | None = None

    def text(self, name: str) -> str:
        return self.fields.get(name, "")

    def with_choice(self, name: str, value: str | None) -> Draft:
        """Sets the workload, profile, GPU or host."""
        changed: dict[str, Any] = {name: value}
        return replace(self, **changed)

    def with_field(self, name: str, text: str) -> Draft:
        return replace(self, fields={**self.fields, name: text})

    def with_option(self, name: str, value: Any) -> Draft:
        """Sets an option; None leaves it to the profile and the planner."""
        rest = {option: v for option, v in self.options.items() if option != name}
        return replace(self, options=rest if value is None else {**rest, name: value})


def is_what_if(draft: Draft) -> bool:
    """Whether the draft is planned for a known GPU that this machine does not have."""
    return draft.where is None and draft.gpu is not None and known_by_short_name(draft.gpu) is not None


def filters(draft: Draft) -> bool:
    """Whether a field turns filtering on."""
    names = {field.name for field in FIELDS[draft.workload]}
    return any(draft.text(field.name).strip() for field in FILTER_FIELDS if field.name in names)


def can_filter(draft: Draft) -> bool:
    """Whether the form offers filtering of one TracIn run, whose counts a preview can show."""
    return WORKLOADS[draft.workload].triples is not None and FILTER_FIELDS[0] in FIELDS[draft.workload]


def job_of(draft: Draft) -> Job:
    """The draft as a job. Raises BadField, which names the wrong field."""
    options = {name: v for name, v in draft.options.items() if name in DRAFT_OPTIONS[draft.workload]}
    if WORKLOADS[draft.workload].has_configuration:
        settings, options = _regress(draft, options)
    else:
        settings = _SETTINGS[draft.workload](draft)
        options |= {"filtering": True} if filters(draft) else {}
    gpu = None if draft.where or draft.gpu == "cpu" or is_what_if(draft) else draft.gpu
    label = draft.text("label").strip()
    table = {
        "workload": draft.workload,
        **({"label": label} if label else {}),
        draft.workload: settings,
        "options": options,
        "gpu": {"wanted": gpu} if gpu else {},
        **({"profile": draft.profile} if draft.profile else {}),
    }
    try:
        job = read_job(table, "this run")
    except BadJob as error:
        raise _field_error(error, draft.workload) from error
    return on_the_cpu(job) if draft.gpu == "cpu" and draft.where is None else job


def draft_of(job: Job) -> tuple[Draft, str]:
    """The job in the form, and the names of the settings for which the form has no field. An empty form for a job of a
    workload that the form does not have."""
    if (workload := job.workload) not in FIELDS:
        return Draft(), ""
    stages = WORKLOADS[workload].stage_settings(job.settings).values()
    settings = {name: value for stage in stages for name, value in stage.items() if value is not None}
    fields = {
        field.name: shown(settings[field.option.name])
        for field in FIELDS[workload]
        if field.option is not None and field.option.name in settings
    }
    if job.options.get("filtering") is not True:
        fields = {
            name: text for name, text in fields.items() if name not in {one.name for one in FILTER_FIELDS}
        }
    else:
        switched = {name for names in STRICT.values() for name in names if settings.get(name)}
        fields["strict"] = next((word for word, names in STRICT.items() if set(names) == switched), "")
        if not settings.get("path_filtering"):
            fields.pop("max_total_path_length", None)
    if settings.get("dataset") or settings.get("train"):
        fields["data"] = settings.get("dataset") or _named(Path(settings["train"]))
    if "command" in settings:
        fields["command"] = shlex.join(settings["command"])
    fields |= {name: str(settings[name]) for name in ("data_directory", "cwd") if name in settings}
    options = {name: v for name, v in job.options.items() if name in DRAFT_OPTIONS[workload]}
    draft = Draft(workload, {**fields, "label": job.label}, options, job.profile)
    if MORE in FIELDS[workload]:
        more = {name: job.settings.get(name) for name in _left_out(job, draft)}
        named = {name: value for name, value in more.items() if isinstance(value, str | int | float)}
        draft = draft.with_field(MORE.name, more_text(named))
    return draft, ", ".join(_left_out(job, draft))


def _left_out(job: Job, draft: Draft) -> Iterator[str]:
    """What the form would start otherwise."""
    try:
        formed = job_of(draft)
    except BadField as error:
        yield error.field
        return
    for asked, again in ((job.settings, formed.settings), (job.options, formed.options)):
        for name in sorted(asked.keys() | again.keys()):
            if asked.get(name) != again.get(name):
                yield name


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
    for run in run_list.page(conn, limit=_MOST_RUNS):
        spec = runs.spec(conn, run.id) if leaves(run.workload, "model") else None
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
    for run in run_list.page(conn, Filter(workload="regress"), limit=_MOST_RUNS):
        folder = (runs.spec(conn, run.id).job.get("regress") or {}).get("data_directory")
        if folder:
            folders[str(folder)] = None
    return list(folders)


def trained_runs(conn: Connection) -> list[str]:
    """Numbers of training runs that TracIn can use, newest first."""
    succeeded = run_list.page(conn, Filter(states=("succeeded",)), limit=_MOST_RUNS)
    return [str(run.id) for run in succeeded if leaves(run.workload, "model")]


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
    """The folder, where its train file would be found by name; otherwise the file."""
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
    settings = {**files_of(draft.text("data")), **_values(draft), **more_of("train", draft.text("more"))}
    if settings.get("model", CONVE).lower() not in OWN_MODELS:
        settings["engine"] = "pykeen"
    return settings


def _tracin(draft: Draft) -> dict[str, Any]:
    if not draft.text("run").strip():
        raise BadField("run", "the training run is missing", "train a model first, or enter a run's number")
    return {**_values(draft), **_paths(draft), **more_of("tracin", draft.text("more"))}


def _pipeline(draft: Draft) -> dict[str, Any]:
    values = {**_values(draft), **_paths(draft)}
    tracin = {name: values.pop(name) for name in _OF_TRACIN if name in values}
    return {"train": {**files_of(draft.text("data")), **values}, "tracin": tracin}


def _paths(draft: Draft) -> dict[str, Any]:
    """Settings that the fields of filtering imply."""
    has_paths, strict = bool(draft.text("max_total_path_length").strip()), draft.text("strict").strip()
    if strict not in ("", *STRICT):
        raise BadField("strict", f"expected {', '.join(STRICT)} or nothing, found {strict!r:.40}")
    switched = STRICT.get(strict, ())
    if "strict_path_filtering" in switched and not has_paths:
        raise BadField("strict", "strict paths need a path length", "enter a path length")
    return {**({"path_filtering": True} if has_paths else {}), **dict.fromkeys(switched, True)}


def _values(draft: Draft) -> dict[str, Any]:
    """Settings of the fields, but for the label, which every workload has."""
    return {
        field.name: value_of(field, text)
        for field in FIELDS[draft.workload]
        if field.option is not None and field.name != "label" and (text := draft.text(field.name).strip())
    }


def _regress(draft: Draft, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and options of the configuration, overridden by the draft's fields."""
    config, folder = draft.text("config").strip(), draft.text("data_directory").strip()
    try:
        chosen = configurations.read(config) if config else {}
    except Usage as error:
        raise BadField("config", error.message, error.hint) from error
    chosen |= _values(draft)
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
    if draft.where is None and not folder.is_dir():
        raise BadField("cwd", f"there is no folder {folder}", "Tab completes a path")
    return {"command": words, "cwd": str(folder)}


_SETTINGS = {"train": _train, "tracin": _tracin, "pipeline": _pipeline, "exec": _exec}


def _field_error(error: BadJob, workload: str) -> BadField:
    """The first problem as an error of its field; of the first field where the form has no such field."""
    where, _, what = error.problems[0].partition(": ")
    name = where.rpartition(".")[2]
    fields = [field.name for field in FIELDS[workload]]
    return BadField(name if name in OPTIONS or name in fields else fields[0], what or where)
