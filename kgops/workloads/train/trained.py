"""The trained model that a job reads, known without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgops.jobs.files import read_json
from kgops.jobs.job import Job
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.plan import Count, unknown_data
from kgops.workloads.train.conve_weights import model_of_config
from kgops.workloads.train.job import ConvEConfig

_UNKNOWN_MODEL = (
    "there is no config.json next to the model, and only torch could read the model's size from its weights"
)


def trained_model(job: Job, count: Count) -> tuple[ConvEConfig, Mapping[str, Any], Counts] | str:
    """The model that a job reads, the settings of its training, and the counts of its graph."""
    config = config_beside(job.settings)
    model = model_of_config(config) if config is not None else None
    if config is None or model is None:
        return _UNKNOWN_MODEL
    counts = count(job.settings)
    if counts is None:
        return unknown_data(job.settings)
    training = config.get("training")
    return model, {"loss": None, **(training if isinstance(training, dict) else {})}, counts


def config_beside(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config.json that training wrote next to its models or next to the folder of its checkpoints."""
    candidates = []
    if settings["checkpoint_dir"]:
        folder = Path(settings["checkpoint_dir"])
        candidates += [folder.parent / "config.json", folder / "config.json"]
    if settings["model_path"]:
        candidates.append(Path(settings["model_path"]).parent / "config.json")
    for path in candidates:
        table = read_json(path, follow=True)
        if isinstance(table, dict):
            return table
    return None
