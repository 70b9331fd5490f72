"""Import an output folder of training or TracIn scripts (or of `--output-dir`) as a run.

Submission time, machine and command stay unknown. The run ends at the time of its newest file, and counts as
succeeded only where its files show that it finished.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgops.errors import BadInput, Usage
from kgops.interchange.import_folder import must_be_files
from kgops.interchange.import_scores import Scores, is_scores, traces, trouble_of
from kgops.jobs import manifest
from kgops.jobs.events import is_metric
from kgops.jobs.files import NotAFile
from kgops.jobs.json_checks import read_any, read_table
from kgops.jobs.option_reading import DOCUMENTED
from kgops.jobs.run_options import LONGEST_LABEL
from kgops.jobs.text import one_line
from kgops.workloads.catalog import effect_of
from kgops.workloads.registry import WORKLOADS
from storage.runs import COLUMNS
from storage.transfer import TABLES, Curve, Rows

CONFIG, HISTORY, TEST = "config.json", "training_history.json", "test_results.json"
SUMMARY = "batch_tracin_summary.json"
_KINDS = {
    CONFIG: "config",
    HISTORY: "history",
    TEST: "metrics",
    SUMMARY: "summary",
    "best_model.pt": "best_model",
    "final_model.pt": "model",
    "trained_model.pkl": "model",
}
_BY_SUFFIX = {".csv": "influences", ".json": "influences", ".parquet": "influences", ".tsv": "triples"}
_SECTIONS = ("model", "training", "data", "args")  # tables of settings in a config
_EPOCH = ("epoch", "epochs", "step", "steps")
_WHOLE = "both"  # of head and tail ranks: the usual meaning of `mrr`


@dataclass(slots=True)
class Output:
    """The contents of an output folder; `files` are the run's files below it."""

    folder: Path
    files: list[tuple[Path, str]]  # with the kind of each
    rows: Rows
    digest: str  # of all its files: recognises a folder that was imported before
    troubles: list[str] = field(default_factory=list)

    @property
    def what(self) -> str:
        run = self.rows.run
        return f"{run['workload']} output, {run['state']}: {run['label']}"


def is_output(folder: Path) -> bool:
    return bool({HISTORY, TEST, SUMMARY} & {path.name for path in folder.iterdir()}) or any(
        kind == "influences" and path.suffix == ".csv" and is_scores(path) for path, kind in _files(folder)
    )


def read_output(folder: Path) -> Output:
    """Reads an output folder. Raises BadInput with the file that cannot be read, and why."""
    must_be_files(folder / name for name in (CONFIG, HISTORY, TEST, SUMMARY))
    files = _files(folder)
    newest = max((path.stat().st_mtime for path, _ in files), default=0.0)
    contents = _Contents(folder, newest)
    contents.troubles += _left_out(folder)
    contents.read({path.name: path for path, _ in files if path.parent == folder})
    for path, kind in files:
        if kind == "influences" and path.suffix == ".csv" and is_scores(path):
            contents.scores.read(path)
            contents.traced = True
    if not (contents.trained or contents.traced):
        raise Usage(f"{folder} has neither training output nor TracIn output")
    artifacts, digest = _artifacts(folder, files)
    rows = contents.rows(artifacts)
    return Output(folder, files, rows, digest, contents.troubles)


_ONE_TEST = "its scores of one test triple are whole; no summary says whether more were asked for"


class _Contents:
    """The combined contents of a folder's files."""

    def __init__(self, folder: Path, newest: float) -> None:
        self.folder, self.newest = folder, newest
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.curves: list[Curve] = []
        self.metrics: dict[str, float] = {}
        self.scores = Scores()
        self.troubles: list[str] = []
        self.trained = self.traced = self.has_final = False

    def read(self, named: Mapping[str, Path]) -> None:
        self.trained = any(name in named for name in (HISTORY, TEST))
        self.traced = SUMMARY in named
        self.has_final = "final_model.pt" in named or TEST in named
        if CONFIG in named:
            self.config = read_table(named[CONFIG])
        if HISTORY in named:
            path = named[HISTORY]
            try:
                read = _history_in(read_any(path), path.stat().st_mtime)
            except ValueError as error:
                raise BadInput(f"{path}: {error}") from error
            self.curves, self.metrics = read.curves, read.metrics
            self.troubles += [f"{HISTORY}: {trouble}" for trouble in read.troubles]
        if TEST in named:
            self.metrics |= _metrics_in(read_table(named[TEST]), "test")
        if SUMMARY in named:
            self.summary = read_table(named[SUMMARY])
            self.metrics |= _metrics_in({k: v for k, v in self.summary.items() if not isinstance(v, dict)})

    @property
    def workload(self) -> str:
        return "pipeline" if self.trained and self.traced else "train" if self.trained else "tracin"

    @property
    def _listed(self) -> list[dict[str, Any]]:
        """The summary's entries, one for each test triple."""
        results = self.summary.get("results")
        return [line for line in results if isinstance(line, dict)] if isinstance(results, list) else []

    def _tell_what_is_missing(self) -> None:
        if self.scores.left_out:
            self.troubles.append(
                f"{self.scores.left_out:,} rows of further test triples stay only in its files"
            )
        if self.scores.not_numbers:
            self.troubles.append(f"{self.scores.not_numbers:,} scores are NaN or infinite: not imported")

    def rows(self, artifacts: list[dict[str, Any]]) -> Rows:
        label = one_line(self.folder.resolve().name, LONGEST_LABEL) or "imported"
        state, reason = self._end()
        known = {"label": label, "state": state, "reason": reason, "workload": self.workload}
        traced, influence = traces(self._listed, self.scores)
        self._tell_what_is_missing()
        tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        tables["metric"] = [{"name": name, "value": value} for name, value in sorted(self.metrics.items())]
        tables["artifact"] = artifacts
        tables["option"] = self._options()
        tables["test_triple"], tables["influence"] = traced, influence
        names = sorted(self.scores.kept_names().items())
        tables["readable"] = [{"label": label, "name": name} for label, name in names]
        stages = WORKLOADS[self.workload].stages
        settings = self._settings() if stages is None else {stages[0]: self._settings()}
        job = {"workload": self.workload, "label": label, self.workload: settings}
        spec = {"job": job, "plan": {}, "environment": {}}
        return Rows({**_UNKNOWN, **known, **self._headline()}, spec, tables, self.curves)

    def _headline(self) -> dict[str, Any]:
        metric = next((n for n in ("test_mrr", "valid_mrr", "loss") if n in self.metrics), None)
        return {
            "submitted_at": self.newest,
            "ended_at": self.newest,
            "metric": metric,
            "metric_value": self.metrics[metric] if metric else None,
        }

    def _end(self) -> tuple[str, str | None]:
        """The run's state and reason, as far as its files show them."""
        if self.summary:
            if self._listed and all(map(trouble_of, self._listed)):
                return "failed", f"its summary says that all {len(self._listed)} test triples failed"
            return "succeeded", None
        if self.trained and not self.traced and self.has_final:
            return "succeeded", None
        if not self.trained and len(self.scores.tests) == 1 and not self.scores.is_cut:
            return (
                "succeeded",
                _ONE_TEST,
            )  # the script writes the file of one test triple when it has all scores
        return "interrupted", "its files do not show that it finished"

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for name, value in self.config.items():
            if name == "optimizations" or name in DOCUMENTED:
                continue  # options
            if name in _SECTIONS and isinstance(value, dict):
                settings |= {
                    inner: inner_value for inner, inner_value in value.items() if inner not in DOCUMENTED
                }
            else:
                settings[name] = value
        return {name: value for name, value in settings.items() if value is not None}

    def _options(self) -> list[dict[str, Any]]:
        table = _option_values(self.config)
        return [_option(name, value) for name, value in sorted(table.items())]


_UNKNOWN: dict[str, Any] = {**dict.fromkeys(COLUMNS), "id": 0, "folder": "", "attempts": 0, "exclusive": 0}


def _option_values(config: dict[str, Any]) -> dict[str, Any]:
    """The config's option values by name; the documented booleans from any section.

    Where kgops wrote an option with more detail, the boolean is the applied value and is ignored.
    """
    named = config.get("optimizations")
    table = dict(named) if isinstance(named, dict) else {}
    tables = [config, *(config[name] for name in _SECTIONS if isinstance(config.get(name), dict))]
    for name, option in DOCUMENTED.items():
        detailed = table.get(option)
        if isinstance(detailed, dict) and "applied" in detailed:
            table.pop(name, None)
            table.pop(f"{name}_requested", None)
            continue
        for section in tables:
            if name in section:
                table.setdefault(name, section[name])
    return table


def _option(name: str, value: Any) -> dict[str, Any]:
    """A row of `option`: requested and applied value as kgops wrote them, or only the value that scripts requested."""
    effect = effect_of(DOCUMENTED.get(name, name))
    row = {"attempt": 0, "name": name, "effect": effect, "chosen_by": None}
    if isinstance(value, dict) and "applied" in value:
        reason = value.get("reason")
        values = {
            "requested": _shown(value.get("requested", value.get("asked"))),
            "applied": _shown(value["applied"]),
        }
        return {**row, **values, "reason": reason if isinstance(reason, str) else None}
    reason = f"requested in {CONFIG}; whether it was applied is unknown"
    if value is False:
        reason = f"not requested in {CONFIG}"
    return {**row, "requested": _shown(value), "applied": None, "reason": reason}


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else json.dumps(value)


def _files(folder: Path) -> list[tuple[Path, str]]:
    """Regular files with known names and their kinds; others do not belong to the run."""
    return [(path, kind) for path, kind in _named(folder) if stat.S_ISREG(path.lstat().st_mode)]


def _left_out(folder: Path) -> list[str]:
    """Messages about known names that are not regular files."""
    return [
        f"{path.relative_to(folder)} is not imported: {NotAFile(path, mode).strerror}"
        for path, _ in _named(folder)
        if not stat.S_ISREG(mode := path.lstat().st_mode)
    ]


def _named(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.iterdir()):
        name = path.name
        is_traced = name.startswith("triple_") or "tracin" in name or "influence" in name
        if kind := _KINDS.get(name) or (_BY_SUFFIX.get(path.suffix) if is_traced else None):
            yield path, kind
    checkpoints = folder / "checkpoints"
    if checkpoints.is_symlink() or (checkpoints.exists() and not checkpoints.is_dir()):
        yield checkpoints, "checkpoint"
    else:
        yield from ((path, "checkpoint") for path in sorted(checkpoints.glob("*.pt")))


def _artifacts(folder: Path, files: list[tuple[Path, str]]) -> tuple[list[dict[str, Any]], str]:
    rows, whole = [], hashlib.sha256()
    for path, kind in files:
        digest, size = manifest.digest_of(path)
        name = path.relative_to(folder).as_posix()
        whole.update(f"{name}\0{digest}\n".encode("utf-8", "surrogateescape"))
        row = {"path": one_line(f"results/{name}"), "kind": kind, "sha256": digest, "bytes": size}
        rows.append({**row, "at": path.stat().st_mtime})
    return rows, whole.hexdigest()


@dataclass(slots=True)
class _Read:
    curves: list[Curve] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


def _metrics_in(table: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Every number, named by its path: `test` and `{"both": {"mrr": …}}` give `test_mrr`."""
    return {name: float(value) for name, value in _flat(table, prefix) if is_metric(value)}


def _history_in(body: Any, at: float) -> _Read:
    """`body`: a list with a table per epoch, or a table of lists; raises ValueError where it is neither. All values get
    the time `at`: a history has none."""
    if isinstance(body, list):
        return _of_epochs(body, at)
    if isinstance(body, dict):
        return _of_lists(body, at)
    raise ValueError("neither a list of epochs nor a table of lists")


def _of_epochs(body: Sequence[Any], at: float) -> _Read:
    points: dict[str, list[tuple[float, float | None]]] = {}
    for n, entry in enumerate(body, 1):
        if not isinstance(entry, dict):
            raise ValueError(f"entry {n} is not a table")
        step = next((entry[name] for name in _EPOCH if is_metric(entry.get(name))), n)
        for name, value in _flat({k: v for k, v in entry.items() if k not in _EPOCH}, ""):
            if value is None or is_metric(value):
                points.setdefault(name, []).append((float(step), None if value is None else float(value)))
    known = {name: pairs for name, pairs in points.items() if any(value is not None for _, value in pairs)}
    return _Read([_curve(name, pairs, at) for name, pairs in known.items()])


def _of_lists(body: Mapping[str, Any], at: float) -> _Read:
    history = _Read(metrics=_metrics_in(body))
    lists = dict(_lists(body, ""))
    epochs = next((lists.pop(name) for name in _EPOCH if _counts(lists.get(name))), None)
    longest = max(map(len, lists.values()), default=0)
    for name, values in lists.items():
        steps = epochs if epochs is not None and len(epochs) == len(values) else range(1, len(values) + 1)
        if len(values) < longest and steps is not epochs:
            history.troubles.append(
                f"{name} has {len(values)} values for {longest} epochs and names no epochs: numbered from 1"
            )
        entries = [{"epoch": step, name: value} for step, value in zip(steps, values, strict=True)]
        history.curves += _of_epochs(entries, at).curves
    return history


def _lists(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, list[Any]]]:
    for name, value in table.items():
        if isinstance(value, list) and value:
            yield prefix + name, value
        elif isinstance(value, dict):
            yield from _lists(value, f"{prefix}{name}_")


def _counts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(map(is_metric, values))


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        path = prefix if name == _WHOLE else f"{prefix}_{name}".strip("_") if prefix else name
        if isinstance(value, dict):
            yield from _flat(value, path)
        else:
            yield path or name, value


def _curve(name: str, points: Sequence[tuple[float, float | None]], at: float) -> Curve:
    return Curve(name, [step for step, _ in points], [value for _, value in points], [at] * len(points))
