"""Questions to the model of a run, and explanations of its answers: as jobs, and as the runs that have them already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from kgops.errors import NoSuchRun, Usage
from kgops.jobs.job import Job
from kgops.jobs.text import with_article
from kgops.present.influences import settings_of
from kgops.present.predictions import AnsweredQuestion
from kgops.settings import Home
from kgops.supervisor.plan_file import read_plan
from kgops.supervisor.run_folder import RunFolder
from kgops.workloads.job_files import read_job
from kgops.workloads.predict.job import NEW_TRIPLES, PREDICTED_TRIPLES
from kgops.workloads.registry import workload_of
from kgops.workloads.results import leaves
from kgops.workloads.shared_options import TRIPLES
from kgops.workloads.train.job import MODELS
from storage import run_list, runs
from storage.database import Connection
from storage.run_list import Filter
from storage.runs import Run

_MODEL = (
    "run",
    "model_path",
    "checkpoint_dir",
    "trust_pickle",
    "dataset",
    *TRIPLES,
    "edge_map",
    "node_name_dict",
)
_ALIVE = ("queued", "starting", "running", "succeeded")
_MOST_RUNS = 200  # newest ones in which an earlier answer is looked for
# What makes a job another one: the model, what is asked, and what limits or changes the result.
_SAME = {
    "predict": (
        *("model_path", "checkpoint_dir", "head", "relation", "tail", "queries", "best", "new"),
        *("candidates", "candidate_type", "each", "mark"),
    ),
    "explain": (
        "model_path",
        "checkpoint_dir",
        "triple",
        "triples",
        "asked",
        "max_facts",
        "sufficient",
    ),
}


@dataclass(frozen=True, slots=True)
class Question:
    """Head and relation, or relation and tail, by name."""

    entity: str = ""
    relation: str = ""
    asks_heads: bool = False

    @property
    def is_complete(self) -> bool:
        return bool(self.entity and self.relation)

    @property
    def triple(self) -> tuple[str, str, str]:
        """With ? for what is asked, and … for what is not chosen yet."""
        entity, relation = self.entity or "…", self.relation or "…"
        return ("?", relation, entity) if self.asks_heads else (entity, relation, "?")


@dataclass(frozen=True, slots=True)
class Asking:
    """The model of a run by settings, for jobs; and the question of that run, if it was one."""

    model: Mapping[str, Any]
    question: Question


def model_of(home: Home, run: Run) -> Asking:
    """Of a training run, or of a predict run. Raises Usage for another."""
    if leaves(run.workload, "model"):
        return Asking({"run": run.id}, Question())
    if not leaves(run.workload, "answers"):
        raise Usage(
            f"run {run.id} is {with_article(run.workload)} run: it has no model to ask", "open a training run"
        )
    settings = settings_of(home, run)
    model = {name: settings[name] for name in _MODEL if settings.get(name) is not None}
    return Asking(model, _question_of(settings))


def question_of(answered: AnsweredQuestion) -> Question:
    """By labels, which are never ambiguous; of pairs only the relation."""
    first, asks_heads = answered.answers[0], answered.asked == "head"
    head, relation, tail = first.labels
    entity = {"head": tail, "tail": head}.get(answered.asked, "")
    return Question(entity, relation, asks_heads)


def predict_job(model: Mapping[str, Any], question: Question) -> Job:
    side = "tail" if question.asks_heads else "head"
    asked = {side: question.entity, "relation": question.relation}
    return read_job({"workload": "predict", "predict": {**model, **asked}}, "this question")


def limits_of(settings: Mapping[str, Any], answers: int) -> str:
    """The limits of the answers of a predict run, of which there are so many; empty where there are none."""
    limits = []
    if path := settings.get("candidates"):
        limits.append(f"among the candidates of {PurePath(str(path)).name}")
    if kind := settings.get("candidate_type"):
        limits.append(f"of type {kind}")
    if settings.get("new"):
        limits.append("new ones alone")
    most = settings.get("top_k")
    if isinstance(most, int) and answers >= most:
        limits.append(f"the first {most:,}")
    return ", ".join(limits)


def explain_job(model: Mapping[str, Any], triple: tuple[str, str, str], *, asks_head: bool = False) -> Job:
    """Of labels, which are never ambiguous."""
    settings = {**model, "triple": "\t".join(triple), "asked": "head" if asks_head else "tail"}
    return read_job({"workload": "explain", "explain": settings}, "this explanation")


def earlier(home: Home, conn: Connection, job: Job) -> Run | None:
    """The newest run that answers the same with the same model, or is about to."""
    if names_a_run(job):
        job = with_run(home, conn, job)
    wanted = _identity(job.workload, job.settings)
    found = run_list.page(conn, Filter(states=_ALIVE, workload=job.workload), limit=_MOST_RUNS)
    own = (run for run in found if _identity(job.workload, _settings(conn, run)) == wanted)
    return next(own, None)


def _settings(conn: Connection, run: Run) -> Mapping[str, Any]:
    return runs.spec(conn, run.id).job.get(run.workload) or {}


def _identity(workload: str, settings: Mapping[str, Any]) -> list[Any]:
    """Names in any case, and no difference between an option left out and its default of none."""
    values = (settings.get(name) or None for name in _SAME[workload])
    return [value.casefold() if isinstance(value, str) else value for value in values]


def _question_of(settings: Mapping[str, Any]) -> Question:
    asks_heads = not settings.get("head")
    entity = settings.get("tail" if asks_heads else "head")
    return Question(str(entity or ""), str(settings.get("relation") or ""), asks_heads and bool(entity))


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
    triples = results / (NEW_TRIPLES if job.settings["new"] else PREDICTED_TRIPLES)
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
    filled |= (
        {name: predicted.get(name) for name in _MODEL if name != "trust_pickle"}
        if predicted
        else {"run": number}
    )
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
        paths = {name: Path(trained[name]) for name in TRIPLES if trained.get(name)}
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
