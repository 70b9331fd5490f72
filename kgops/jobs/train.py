"""The workload `train`: it trains one model on one knowledge graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kgops.jobs.workload import Workload
from kgops.options.train import FILES, TRAIN_OPTIONS

__all__ = ["TRAIN", "spread_problems"]


def _check(settings: dict[str, Any]) -> list[str]:
    given = [name for name in FILES if settings[name]]
    problems = []
    if settings["dataset"] and given:
        problems.append(f"train.dataset: given together with {', '.join(given)}; choose one or the other")
    if not settings["dataset"] and not settings["train"]:
        problems.append("train.dataset: missing, and so is train.train; name a dataset or a file of triples")
    model, loss = settings["model"], settings["loss"] or ""
    if settings["engine"] == "kgops" and model.lower() != "conve":
        problems.append(f"train.model: kgops trains ConvE itself; for {model!r:.60} choose the engine pykeen")
    if settings["engine"] == "pykeen" and loss.startswith("1vsall"):
        problems.append("train.loss: PyKEEN has no 1vsAll; choose kvsall-bce or kvsall-ce, or leave it out")
    if settings["engine"] == "pykeen" and settings["schedule"] != "constant":
        problems.append("train.schedule: only kgops' own engine changes the learning rate")
    return problems


def spread_problems(settings: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Problems of a job that asks for several devices, found before the worker starts."""
    devices = options.get("devices", 1)
    if settings["engine"] == "kgops" or devices == 1:
        return []
    return [f"options.devices: PyKEEN's pipeline trains on one device, found {devices}; leave it out"]


def _label(settings: dict[str, Any]) -> str:
    path = PurePath(settings["train"] or "")
    data = str(settings["dataset"] or path.parent.name or path.stem)
    return data if settings["engine"] == "kgops" else f"{data} {settings['model']}"


TRAIN = Workload(
    name="train",
    summary="ConvE, or any model of PyKEEN's, on a knowledge graph",
    options=TRAIN_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,  # it resumes bit for bit, so a lost worker costs a minute
    module="kgops.workers.train",
    inputs=FILES,
)
