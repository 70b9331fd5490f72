"""The checkpoints a TracIn run sums over: found, read, checked against the graph, with their rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.graphs.triples import Graph
from kgops.models.conve import ConvE
from kgops.models.pykeen_bridge import KEPT_FORMAT, load_pykeen
from kgops.tracin.blocks import Point
from kgops.tracin.models import facts_of
from kgops.training.checkpoints import BadCheckpoint, kept_checkpoints, read_checkpoint

__all__ = ["Loaded", "find_checkpoints", "load_point"]


@dataclass(frozen=True)
class Loaded:
    """A checkpoint ready to score with; `loss` and `settings` are those of its training, where it says so."""

    path: Path
    point: Point
    loss: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    epoch: int | None = None


def find_checkpoints(model_path: Path | None, folder: Path | None, last: int | None) -> list[Path]:
    """The kept checkpoints of `folder`, oldest first, or the one model where there is no folder."""
    if folder is None:
        if model_path is None:
            raise BadInput("no model is named.", hint="give --checkpoint-dir or --model-path.")
        return [model_path]
    found = kept_checkpoints(folder) or sorted(p for p in folder.glob("*.pt") if not p.match("resume_*"))
    if not found:
        if model_path is not None:
            return [model_path]
        raise BadInput(
            f"{folder} holds no checkpoints.",
            hint="train with --checkpoint-frequency 2, or give one model by --model-path.",
        )
    return found if last is None else found[-last:]


def load_point(
    path: Path,
    graph: Graph,
    *,
    device: torch.device,
    learning_rate: float | None = None,
    trust_pickle: bool = False,
) -> Loaded:
    """A checkpoint of kgops', or weights that PyKEEN wrote; refused where it does not fit the graph.

    `learning_rate` stands in where the checkpoint has none.
    """
    try:
        saved = read_checkpoint(path, device)
    except BadCheckpoint as not_ours:
        if path.with_name(path.name + ".sha256").exists():
            raise  # written by kgops, and damaged
        try:
            found = _from_pykeen(path, graph, trust_pickle)
        except BadInput as neither:
            raise neither from not_ours
        model = found.model.to(device)
        _must_fit(path, model, graph)
        rate = _known(found.learning_rate if learning_rate is None else learning_rate, path)
        return Loaded(path, Point(model, rate), found.loss, None, found.epoch)
    model = saved.build_model()
    _must_fit(path, model, graph)
    _must_number_alike(path, graph, saved.entities_digest, saved.relations_digest)
    return Loaded(path, Point(model, saved.learning_rate), saved.loss, saved.settings, saved.epoch)


@dataclass(frozen=True)
class _Found:
    model: ConvE | Any
    learning_rate: float | None
    loss: Mapping[str, Any] | None = None
    epoch: int | None = None


def _from_pykeen(path: Path, graph: Graph, trust_pickle: bool) -> _Found:
    """ConvE from its weights alone; any other model from what its run, or PyKEEN's pickle, says of it."""
    told = _safely_read(path)
    if told.get("format") != KEPT_FORMAT:
        try:
            return _Found(_conve(path, graph, trust_pickle), _recorded_rate(told))
        except BadInput as no_conve:
            if not trust_pickle and not told:
                raise no_conve  # a pickle, or nothing torch saved
    from kgops.models.pykeen_models import load_pykeen_model  # PyKEEN takes seconds to load

    found = load_pykeen_model(path, trust_pickle=trust_pickle, triples=graph.train)
    _must_number_alike(path, graph, found.entities_digest, found.relations_digest)
    return _Found(found.model, found.learning_rate, found.loss, found.epoch)


def _conve(path: Path, graph: Graph, trust_pickle: bool) -> ConvE:
    # A state dict does not say whether relations are doubled; the graph tells how many there are.
    model = load_pykeen(path, trust_pickle=trust_pickle, inverse=False)
    if not model.config.inverse and model.config.num_relations == 2 * graph.num_relations:
        model = load_pykeen(path, trust_pickle=trust_pickle, inverse=True)
    return model


def _safely_read(path: Path) -> Mapping[str, Any]:
    """What the file says without running code; nothing where it cannot be read that way."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whoever really loads it says what is wrong
        return {}
    return saved if isinstance(saved, Mapping) else {}


def _recorded_rate(saved: Mapping[str, Any]) -> float | None:
    """What the optimizer of a checkpoint stood at, where the file has one."""
    optimizer = saved.get("optimizer_state_dict")
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    rate = groups[0].get("lr") if groups else None
    return float(rate) if isinstance(rate, int | float) else None


def _known(rate: float | None, path: Path) -> float:
    if rate is None:
        raise BadInput(
            f"{path} does not say the learning rate it was trained with, and scores are weighed by it.",
            hint="pass --learning-rate.",
        )
    return rate


def _must_number_alike(path: Path, graph: Graph, entities: str | None, relations: str | None) -> None:
    """By the digests a checkpoint has of its vocabularies; None where it has none."""
    for digest, vocabulary, kind in (
        (entities, graph.entities, "entities"),
        (relations, graph.relations, "relations"),
    ):
        if digest is not None and digest != vocabulary.digest:
            raise BadInput(
                f"{path} was trained with {kind} numbered otherwise than here.",
                hint="give the very files, or the dataset, that it was trained with.",
            )


def _must_fit(path: Path, model: ConvE | Any, graph: Graph) -> None:
    facts = facts_of(model)
    for have, want, kind in (
        (facts.entities, graph.num_entities, "entities"),
        (facts.relations, graph.num_relations, "relations"),
    ):
        if have != want:
            raise BadInput(
                f"{path} is a model of {have:,} {kind}; the graph has {want:,}.",
                hint="give the training file and the vocabularies the model was trained with.",
            )
