"""`--run 42` of `tracin`, `predict` and `explain`: fills the job with the checkpoints and data of training run 42.

`tracin --from-predictions 43`, and `explain`: fills it with the model, the data and the answers of predict run 43.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from kgops.errors import NoSuchRun, Usage
from kgops.jobs.job import Job
from kgops.jobs.text import with_article
from kgops.settings import Home
from kgops.supervisor.plan_file import read_plan
from kgops.supervisor.run_folder import RunFolder
from kgops.workloads.predict.job import NEW_TRIPLES, TRIPLES
from kgops.workloads.registry import workload_of
from kgops.workloads.results import leaves
from kgops.workloads.tracin.options import DATA
from kgops.workloads.train.job import MODELS
from storage import runs
from storage.database import Connection
from storage.runs import Run

_FROM_PREDICTIONS = ("run", "model_path", "checkpoint_dir", "dataset", *DATA, "edge_map", "node_name_dict")


def names_a_run(job: Job) -> bool:
    """Whether the job names a run whose checkpoints, or whose predictions, are not filled in yet."""
    return _needs_predictions(job) or _needs_checkpoints(job)


def with_run(home: Home, conn: Connection, job: Job) -> Job:
    """The job with what the run has that it names, except what the job names itself."""
    if _needs_predictions(job):
        job = _with_predictions(home, conn, job)
    return _with_training(home, conn, job) if _needs_checkpoints(job) else job


def _needs_checkpoints(job: Job) -> bool:
    settings = job.settings
    return workload_of(job).reads_model and settings["run"] is not None and not settings["checkpoint_dir"]


def _needs_predictions(job: Job) -> bool:
    settings, triples = job.settings, workload_of(job).triples
    return triples is not None and settings["from_predictions"] is not None and not settings[triples]


def _with_predictions(home: Home, conn: Connection, job: Job) -> Job:
    """The answers are test triples, each scored by TracIn against all training triples unless the job asks for less."""
    number = job.settings["from_predictions"]
    if job.settings.get("asked") == "head":
        raise Usage("answers of a predict run bring along which end was asked for", "leave out --asked")
    run, spec = _found(conn, number)
    results = RunFolder(home.runs / run.folder).results
    triples = results / (NEW_TRIPLES if job.settings["new"] else TRIPLES)
    predicted = spec.get("predict")
    if predicted is None and (spec.get("pipeline") or {}).get("predict") is None:
        raise Usage(
            f"run {number} is {with_article(run.workload)} run, not a predict run", "name a predict run"
        )
    if not triples.exists():
        raise Usage(f"run {number} has no predictions ({run.state})", "let it finish, or ask again")
    if not triples.stat().st_size:
        what = "new answers" if job.settings["new"] else "answers"
        raise Usage(f"run {number} has no {what}", "ask for more with --top-k, or leave out --new")
    filled: dict[str, Any] = {str(workload_of(job).triples): str(triples)}
    # The model of a pipeline is its own.
    filled |= {name: predicted.get(name) for name in _FROM_PREDICTIONS} if predicted else {"run": number}
    if "filtering" in workload_of(job).optimizations:
        job = replace(job, options={"filtering": False, **job.options})
    return _filled(job, filled)


def _with_training(home: Home, conn: Connection, job: Job) -> Job:
    number = job.settings["run"]
    run, spec = _found(conn, number)
    trained = spec.get("train") or (spec.get("pipeline") or {}).get("train")
    if not leaves(run.workload, "model") or not trained:
        raise Usage(
            f"run {number} is {with_article(run.workload)} run, not a training run", "name a training run"
        )
    folder = RunFolder(home.runs / run.folder)
    checkpoints = folder.results / "checkpoints"
    model = next((path for name in MODELS if (path := folder.results / name).exists()), None)
    if model is None and not any(checkpoints.glob("checkpoint_epoch_*.pt")):
        raise Usage(f"run {number} has no checkpoints ({run.state})", _why_no_model(run))
    filled = {"checkpoint_dir": str(checkpoints), "model_path": None if model is None else str(model)}
    if not job.settings["train"] and not job.settings["dataset"]:
        filled["dataset"] = trained.get("dataset")
        paths = {name: Path(trained[name]) for name in DATA if trained.get(name)}
        # An imported run's working folder is unknown.
        is_absolute = all(path.is_absolute() for path in paths.values())
        cwd = Path("/") if is_absolute else Path(read_plan(folder).cwd)
        filled |= {name: str(cwd / path) for name, path in paths.items()}
    return _filled(job, filled)


def _why_no_model(run: Run) -> str:
    if run.state == "succeeded":  # it left a model at its end
        return "its files are not here: `kgops pull` brings them from another host, or import its folder"
    return "train with --checkpoint-frequency 2, and let it finish an epoch"


def _found(conn: Connection, number: int) -> tuple[Run, dict[str, Any]]:
    """The run and its job's table."""
    run = runs.get(conn, number)
    if run is None:
        raise NoSuchRun(f"there is no run {number}", "`kgops runs` lists them")
    return run, runs.spec(conn, number).job


def _filled(job: Job, filled: dict[str, Any]) -> Job:
    own = {name: value for name, value in job.settings.items() if value is not None}
    return replace(job, settings={**job.settings, **filled, **own})
