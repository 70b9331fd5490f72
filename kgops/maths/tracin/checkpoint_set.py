"""Finds and loads the checkpoints that TracIn sums over, with learning rates; checks them against the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.data_digests import text_table
from kgops.jobs.files import read_json
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.pykeen_bridge import KEPT_FORMAT, PykeenCheckpoint, conve_of, load_saved
from kgops.maths.tracin.blocks import TracinCheckpoint
from kgops.maths.tracin.models import facts_of
from kgops.maths.train.checkpoints import BadCheckpoint, kept_checkpoints, read_checkpoint
from kgops.maths.train.settings import TrainSettings


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint ready to score with; `loss` and `settings` of its training, None where it has none. `data` are the
    digests of what it was trained on, where they are known."""

    path: Path
    checkpoint: TracinCheckpoint
    loss: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    epoch: int | None = None
    data: Mapping[str, str] = field(default_factory=dict)

    def training(self, option: str) -> TrainSettings:
        """How it was trained, up to this checkpoint; `option` asks to train again."""
        if self.settings is None or self.epoch is None:
            raise BadInput(
                f"{self.path} has no training settings, so it cannot be retrained.",
                hint=f"{option} needs checkpoints of a kgops training.",
            )
        return TrainSettings(**{**self.settings, "num_epochs": self.epoch})


def find_checkpoints(model_path: Path | None, folder: Path | None, last: int | None) -> list[Path]:
    """The checkpoints of `folder`, oldest first. Without a folder, the one model."""
    if folder is None:
        if model_path is None:
            raise BadInput("no model is named.", hint="give --checkpoint-dir or --model-path.")
        return [model_path]
    paths = kept_checkpoints(folder) or sorted(p for p in folder.glob("*.pt") if not p.match("resume_*"))
    if not paths:
        if model_path is not None:
            return [model_path]
        raise BadInput(
            f"{folder} holds no checkpoints.",
            hint="train with --checkpoint-frequency 2, or give one model by --model-path.",
        )
    return paths if last is None else paths[-last:]


def load_checkpoint(
    path: Path,
    graph: Graph,
    *,
    device: torch.device,
    learning_rate: float | None = None,
    trust_pickle: bool = False,
) -> LoadedCheckpoint:
    """Loads a kgops checkpoint or PyKEEN weights; refuses one that does not fit the graph.

    `learning_rate` is used where the checkpoint has none.
    """
    try:
        saved = read_checkpoint(path, device)
    except BadCheckpoint as not_ours:
        if path.with_name(path.name + ".sha256").exists():
            raise  # written by kgops, and damaged
        try:
            loaded = _from_pykeen(path, graph, trust_pickle)
        except BadInput as not_pykeen:
            raise not_pykeen from not_ours
        model = loaded.model.to(device)
        _check_sizes(path, model, graph)
        rate = _known(learning_rate if loaded.learning_rate is None else loaded.learning_rate, path)
        point = TracinCheckpoint(model, rate)
        return LoadedCheckpoint(path, point, loaded.loss, None, loaded.epoch, loaded.data)
    model = saved.build_model()
    _check_sizes(path, model, graph)
    _check_vocabularies(path, graph, saved.entities_digest, saved.relations_digest)
    point = TracinCheckpoint(model, saved.learning_rate)
    return LoadedCheckpoint(path, point, saved.loss, saved.settings, saved.epoch, saved.data)


def _from_pykeen(path: Path, graph: Graph, trust_pickle: bool) -> PykeenCheckpoint:
    """Reads ConvE from only its weights, other models from the recipe that kgops kept or from PyKEEN's pickle."""
    saved = load_saved(path, trust_pickle)
    if not isinstance(saved, Mapping) or saved.get("format") != KEPT_FORMAT:
        try:
            model = conve_of(path, saved, graph.num_relations)
            return PykeenCheckpoint(model, learning_rate=_recorded_rate(saved), data=_data_beside(path))
        except BadInput:
            if not isinstance(saved, Mapping | torch.nn.Module):
                raise
    from kgops.maths.models.pykeen_models import model_of  # PyKEEN takes seconds to load

    loaded = model_of(path, saved, graph.train)
    _check_vocabularies(path, graph, loaded.entities_digest, loaded.relations_digest)
    return replace(loaded, data=loaded.data or _data_beside(path))


def _data_beside(path: Path) -> Mapping[str, str]:
    """The digests in the config.json of the PyKEEN training that wrote this model; empty where there are none."""
    if path.name not in ("best_model.pt", "final_model.pt", "trained_model.pkl"):
        return {}
    for folder in (path.parent, path.parent.parent):
        config = read_json(folder / "config.json", follow=True)
        if isinstance(config, dict) and config.get("engine") == "pykeen":
            return text_table(config.get("digests"))
    return {}


def _recorded_rate(saved: Any) -> float | None:
    """The learning rate in the checkpoint's optimizer state, if it has one."""
    optimizer = saved.get("optimizer_state_dict") if isinstance(saved, Mapping) else None
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    rate = groups[0].get("lr") if groups else None
    return float(rate) if isinstance(rate, int | float) else None


def _known(rate: float | None, path: Path) -> float:
    if rate is None:
        raise BadInput(
            f"{path} has no learning rate, and TracIn weights scores by it.",
            hint="pass --learning-rate.",
        )
    return rate


def _check_vocabularies(path: Path, graph: Graph, entities: str | None, relations: str | None) -> None:
    """Compares vocabulary digests; None where the checkpoint has none."""
    for digest, vocabulary, kind in (
        (entities, graph.entities, "entities"),
        (relations, graph.relations, "relations"),
    ):
        if digest is not None and digest != vocabulary.digest:
            raise BadInput(
                f"{path} was trained with other {kind} ids than this graph's.",
                hint="give the files or the dataset it was trained with.",
            )


def _check_sizes(path: Path, model: EntityModel | Any, graph: Graph) -> None:
    facts = facts_of(model)
    for have, want, kind in (
        (facts.entities, graph.num_entities, "entities"),
        (facts.relations, graph.num_relations, "relations"),
    ):
        if have != want:
            raise BadInput(
                f"{path} is a model of {have:,} {kind}; the graph has {want:,}.",
                hint="give the files the model was trained with; test triples of another file by --test-triples.",
            )
