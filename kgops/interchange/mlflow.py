"""Export runs to an MLflow file store: `mlflow ui --backend-store-uri ./mlruns`."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kgops.interchange.tensorboard import whole_steps
from kgops.jobs.cluster import must_be_free, plain_name
from kgops.jobs.files import NotAFile, read_regular
from kgops.jobs.numbers import finite_json
from kgops.jobs.text import is_timestamp, one_line
from kgops.supervisor.run_json import write_runs
from storage.transfer import Rows

__all__ = ["write_mlflow"]

_EXPERIMENT = "kgops"
_EXPERIMENT_ID = "716000042"  # the first number tried
_STATUS = {"succeeded": 3, "cancelled": 5, "interrupted": 5, "queued": 2, "starting": 1, "running": 1}
_FAILED = 4
_LARGEST_META = 1 << 16
_LOCAL = 4  # MLflow's source type LOCAL: not a project, notebook or job
# YAML does not allow these characters, even escaped as in JSON.
_NOT_PRINTABLE = re.compile("[^\t\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_mlflow(runs: Iterator[Rows], target: Path, *, force: bool) -> None:
    """Adds runs to a store; a run that it has already is overwritten only with `force`."""
    experiment = _experiment(target)
    for rows in runs:
        _write_run(rows, experiment, force=force)


def _experiment(target: Path) -> Path:
    """The folder of the experiment `kgops`, created where missing."""
    for meta in sorted(target.glob("*/meta.yaml")):
        if re.search(rf"^name: ['\"]?{_EXPERIMENT}['\"]?$", _text(meta), re.MULTILINE):
            return meta.parent
    number = int(_EXPERIMENT_ID)
    while (target / str(number)).exists():
        number += 1
    folder = target / str(number)
    folder.mkdir(parents=True)
    meta_data = {
        "artifact_location": folder.absolute().as_uri(),
        "experiment_id": str(number),
        "lifecycle_stage": "active",
        "name": _EXPERIMENT,
    }
    (folder / "meta.yaml").write_text(_yaml(meta_data), encoding="utf-8")
    return folder


def _text(meta: Path) -> str:
    """A meta file's text; empty where it is not a regular file, since others write to the store too."""
    try:
        return read_regular(meta, at_most=_LARGEST_META, follow=True).decode("utf-8", "replace")
    except NotAFile:
        return ""


def _write_run(rows: Rows, experiment: Path, *, force: bool) -> None:
    """Writes to a temporary folder and renames it: MLflow lists every folder it finds."""
    run = rows.run
    identity = f"{run['submitted_at']!r} {run['workload']} {run['label']} {run['folder']}"
    uuid = hashlib.sha256(identity.encode()).hexdigest()[:32]
    folder, temporary = experiment / uuid, experiment / f".{uuid}.part"
    must_be_free(folder, force=force)
    shutil.rmtree(temporary, ignore_errors=True)
    for name in ("metrics", "params", "tags", "artifacts"):
        (temporary / name).mkdir(parents=True)
    meta = _meta(rows, uuid, experiment.name, folder)
    (temporary / "meta.yaml").write_text(_yaml(meta), encoding="utf-8")
    _write_metrics(rows, temporary / "metrics")
    _write_all(temporary / "params", _params(rows))
    _write_all(temporary / "tags", _tags(rows))
    with (temporary / "artifacts" / "kgops-run.json").open("w", encoding="utf-8") as file:
        file.writelines(write_runs(iter([rows])))
    if folder.exists():
        shutil.rmtree(folder)
    temporary.rename(folder)


def _meta(rows: Rows, uuid: str, experiment: str, folder: Path) -> dict[str, Any]:
    run = rows.run
    return {
        "artifact_uri": (folder / "artifacts").absolute().as_uri(),
        "end_time": _ms(run["ended_at"]),
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": uuid,
        "run_name": f"{run['id']} {run['label']}",
        "run_uuid": uuid,
        "source_name": "",
        "source_type": _LOCAL,
        "source_version": "",
        "start_time": _ms(run["started_at"] or run["submitted_at"]),
        "status": _STATUS.get(run["state"], _FAILED),
        "tags": [],
        "user_id": "",
    }


def _write_metrics(rows: Rows, folder: Path) -> None:
    names: set[str] = set()
    began = _ms(rows.run["submitted_at"]) or 0
    for curve in rows.curves:
        points = zip(curve.times, curve.values, whole_steps(curve), strict=True)
        lines = (f"{_ms(at) or began} {math.nan if v is None else v!r} {step}\n" for at, v, step in points)
        (folder / plain_name(curve.name, names)).write_text("".join(lines), encoding="utf-8")
    at = _ms(rows.run["ended_at"]) or began
    for row in rows.tables["metric"]:
        name = row["name"] if plain_name(row["name"], set()) not in names else f"{row['name']} final"
        (folder / plain_name(name, names)).write_text(f"{at} {row['value']!r} 0\n", encoding="utf-8")


def _params(rows: Rows) -> Iterator[tuple[str, str]]:
    """The job's settings, and the applied value of each option."""
    yield from _flat(rows.spec["job"], "")
    newest = max((row["attempt"] for row in rows.tables["option"]), default=0)
    for row in rows.tables["option"]:
        if row["attempt"] == newest:
            yield f"option.{row['name']}", row["applied"] or "n/a"


def _tags(rows: Rows) -> Iterator[tuple[str, str]]:
    run = rows.run
    yield "mlflow.runName", f"{run['id']} {run['label']}"
    yield "mlflow.source.type", "LOCAL"
    yield "kgops.state", run["state"]
    yield "kgops.run", str(run["id"])
    if run["reason"]:
        yield "kgops.reason", run["reason"]
    if rows.tables["tag"]:
        yield "kgops.tags", " ".join(row["tag"] for row in rows.tables["tag"])
    if rows.tables["note"]:
        yield "mlflow.note.content", "\n\n".join(row["text"] for row in rows.tables["note"])


def _flat(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        where = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            yield from _flat(value, where)
        else:
            yield where, value if isinstance(value, str) else json.dumps(finite_json(value))


def _write_all(folder: Path, entries: Iterator[tuple[str, str]]) -> None:
    names: set[str] = set()
    for name, text in entries:
        (folder / plain_name(name, names)).write_text(text, encoding="utf-8")


def _ms(at: float | None) -> int | None:
    return None if at is None or not is_timestamp(at) else int(at * 1000)


def _yaml(table: Mapping[str, Any]) -> str:
    """YAML with JSON values, without unprintable characters."""
    lines = (f"{name}: {json.dumps(_printable(v), ensure_ascii=False)}\n" for name, v in table.items())
    return "".join(lines)


def _printable(value: Any) -> Any:
    return _NOT_PRINTABLE.sub("�", one_line(value)) if isinstance(value, str) else value
