"""`tracin --run 42`: fills a TracIn job with the checkpoints and data of training run 42."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kgops.errors import NoSuchRun, Usage
from kgops.jobs.job import Job
from kgops.options.tracin import DATA
from kgops.settings import Home
from kgops.supervisor.plan_file import read_plan
from kgops.supervisor.run_folder import RunFolder
from storage import runs
from storage.database import Connection


def names_a_run(job: Job) -> bool:
    """Whether the job names a training run whose checkpoints are not filled in yet."""
    settings = job.settings
    return job.workload == "tracin" and settings["run"] is not None and not settings["checkpoint_dir"]


def with_run(home: Home, conn: Connection, job: Job) -> Job:
    """The job with the training run's checkpoints and data, except those it names itself."""
    number = job.settings["run"]
    run = runs.get(conn, number)
    if run is None:
        raise NoSuchRun(f"there is no run {number}", "`kgops runs` lists them")
    spec = runs.spec(conn, number).job
    trained = spec.get("train") or (spec.get("pipeline") or {}).get("train")
    if run.workload not in ("train", "pipeline") or not trained:
        raise Usage(f"run {number} is a {run.workload} run, not a training run", "name a training run")
    folder = RunFolder(home.runs / run.folder)
    checkpoints, best = folder.results / "checkpoints", folder.results / "best_model.pt"
    if not any(checkpoints.glob("checkpoint_epoch_*.pt")) and not best.exists():
        raise Usage(
            f"run {number} has no checkpoints ({run.state})",
            "train with --checkpoint-frequency 2, and let it finish an epoch",
        )
    filled = {"checkpoint_dir": str(checkpoints), "model_path": str(best) if best.exists() else None}
    if not job.settings["train"] and not job.settings["dataset"]:
        filled["dataset"] = trained.get("dataset")
        paths = {name: Path(trained[name]) for name in DATA if trained.get(name)}
        # An imported run's working folder is unknown.
        is_absolute = all(path.is_absolute() for path in paths.values())
        cwd = Path("/") if is_absolute else Path(read_plan(folder).cwd)
        filled |= {name: str(cwd / path) for name, path in paths.items()}
    own = {name: value for name, value in job.settings.items() if value is not None}
    return replace(job, settings={**job.settings, **filled, **own})
