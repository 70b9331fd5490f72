"""Loads any PyKEEN model from the files of a kgops run, without running code.

A checkpoint contains the recipe of its model; for bare weights (`final_model.pt`, `best_model.pt`) it is in the
run's `config.json`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pykeen.models import ERModel, model_resolver
from pykeen.triples import CoreTriplesFactory, KGInfo
from pykeen.utils import NoRandomSeedNecessary

from kgops.errors import BadInput
from kgops.jobs.data_digests import text_table
from kgops.jobs.files import read_json, write_durably
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import KEPT_FORMAT, PykeenCheckpoint, from_pykeen_state, weights_in

_NEEDS_GRAPH = ("CompGCN", "RGCN", "NodePiece")


@dataclass(frozen=True)
class PykeenRecipe:
    """How to build a model before its weights are loaded; `num_relations` without inverses."""

    name: str
    kwargs: Mapping[str, Any]
    num_entities: int
    num_relations: int
    inverse: bool


def rebuild(
    recipe: PykeenRecipe, state: Mapping[str, torch.Tensor], triples: torch.Tensor | None = None
) -> ConvE | Any:
    """The model with these weights. ConvE becomes kgops' own, with equal scores; others stay PyKEEN's.

    Models that use the graph itself also need its training `triples`.
    """
    if recipe.name.lower() == "conve":
        height, width = (recipe.kwargs.get(f"embedding_{side}") for side in ("height", "width"))
        return from_pykeen_state(
            state, inverse=recipe.inverse, embedding_height=height, embedding_width=width
        )
    model = _built(recipe, triples)
    dtype = next((value.dtype for value in state.values() if value.is_floating_point()), torch.float32)
    model = model.to(dtype)
    try:
        keys = model.load_state_dict(dict(state), strict=False)
        wrong = [f"lacks '{k}'" for k in keys.missing_keys] + [f"has '{k}'" for k in keys.unexpected_keys]
        # A regulariser's state does not affect scores.
        differences = ", ".join(key for key in wrong if ".regularizer." not in key)
    except RuntimeError as error:
        differences = " ".join(str(error).split())
    if differences:
        raise BadInput(
            f"these weights do not fit the {recipe.name} that its run describes: {differences[:300]}.",
            hint="load them with the PyKEEN version they were trained with, and with the run's config.json.",
        )
    return model.eval()


def model_of(path: Path, saved: Any, triples: torch.Tensor | None = None) -> PykeenCheckpoint:
    """From what `load_saved` read: a kept checkpoint, weights whose run has a `config.json`, or a whole model."""
    if isinstance(saved, ERModel):
        return PykeenCheckpoint(saved.eval())
    if isinstance(saved, Mapping) and saved.get("format") == KEPT_FORMAT:
        training = {name: saved[name] for name in ("epoch", "learning_rate", "loss")}
        digests = {name: saved[name] for name in ("entities_digest", "relations_digest")}
        built = rebuild(PykeenRecipe(**saved["recipe"]), saved["model_state_dict"], triples)
        return PykeenCheckpoint(built, **training, **digests, data=text_table(saved.get("data")))
    state = weights_in(saved)
    if state is None:
        raise BadInput(
            f"{path} holds no model.", hint="give a checkpoint, trained_model.pkl or a state dict."
        )
    config = _config_beside(path)
    if config is None:
        raise BadInput(
            f"{path} holds only weights, and the config.json of its run is not beside it.",
            hint="give the file in its run's folder, or PyKEEN's trained_model.pkl with --trust-pickle.",
        )
    training = config["training"]
    built = rebuild(_recipe_of(config, path), state, triples)
    loss = training.get("loss")
    smoothing = training.get("label_smoothing") or 0.0
    return PykeenCheckpoint(
        built,
        learning_rate=training.get("learning_rate"),
        loss={"name": loss, "label_smoothing": smoothing} if loss else None,
    )


def write_kept_pykeen(
    path: Path,
    model: Any,
    recipe: PykeenRecipe,
    *,
    epoch: int,
    learning_rate: float,
    loss: Mapping[str, Any] | None,
    entities_digest: str,
    relations_digest: str,
    data: Mapping[str, str],
) -> None:
    """Writes this epoch's checkpoint for TracIn, atomically."""
    body = {
        "format": KEPT_FORMAT,
        "recipe": {**asdict(recipe), "kwargs": dict(recipe.kwargs)},
        "epoch": epoch,
        "learning_rate": learning_rate,
        "loss": None if loss is None else dict(loss),
        "entities_digest": entities_digest,
        "relations_digest": relations_digest,
        "data": dict(data),
        "model_state_dict": {name: value.detach().cpu() for name, value in model.state_dict().items()},
    }
    content = io.BytesIO()
    torch.save(body, content)
    write_durably(path, content.getvalue(), 0o644)


def _built(recipe: PykeenRecipe, triples: torch.Tensor | None) -> Any:
    try:
        cls = model_resolver.lookup(recipe.name)
    except (KeyError, ValueError) as error:
        raise BadInput(
            f"PyKEEN has no model '{recipe.name}'.", hint="use the PyKEEN version it was trained with."
        ) from error
    size = {"num_entities": recipe.num_entities, "num_relations": recipe.num_relations}
    facts = KGInfo(**size, create_inverse_triples=recipe.inverse)
    if triples is not None:
        facts = CoreTriplesFactory(triples, **size, create_inverse_triples=recipe.inverse)
    elif cls.__name__ in _NEEDS_GRAPH:
        raise BadInput(
            f"{cls.__name__} needs the graph it was trained on, and no triples were given.",
            hint="give the training file.",
        )
    try:
        with torch.random.fork_rng(devices=[]):  # its initial weights are random and then overwritten
            return cls(triples_factory=facts, random_seed=NoRandomSeedNecessary, **recipe.kwargs)
    except (TypeError, ValueError, KeyError) as error:
        raise BadInput(
            f"{recipe.name} cannot be built from {dict(recipe.kwargs)!r:.200}: {str(error)[:200]}.",
            hint="use the PyKEEN version it was trained with.",
        ) from error


def _config_beside(path: Path) -> dict[str, Any] | None:
    """The run's config.json: in the folder of its final weights, or one folder above its checkpoints."""
    for folder in (path.parent, path.parent.parent):
        config = read_json(folder / "config.json", follow=True)
        if isinstance(config, dict) and {"model", "training"} <= config.keys():
            return config
    return None


def _recipe_of(config: Mapping[str, Any], path: Path) -> PykeenRecipe:
    model_settings = dict(config["model"])
    missing = [
        f"'{name}'"
        for name in ("name", "num_entities", "num_relations", "inverse")
        if name not in model_settings
    ]
    if missing:
        raise BadInput(
            f"the config.json of {path} does not say the model's {', '.join(missing)}.",
            hint="use the run's pykeen/trained_model.pkl with --trust-pickle.",
        )
    facts = {name: model_settings.pop(name) for name in ("name", "num_entities", "num_relations", "inverse")}
    return PykeenRecipe(kwargs=model_settings, **facts)
