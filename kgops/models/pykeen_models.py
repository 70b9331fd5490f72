"""Any of PyKEEN's models from what a training run of ours kept of it, read without running code.

A kept checkpoint says how its model is built; beside the bare weights of a run (`final_model.pt`,
`best_model.pt`) its `config.json` says so.
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
from kgops.jobs.files import read_json, write_durably
from kgops.models.conve import ConvE
from kgops.models.pykeen_bridge import KEPT_FORMAT, from_pykeen_state, load_saved

__all__ = ["PykeenCheckpoint", "PykeenRecipe", "load_pykeen_model", "rebuild", "write_kept_pykeen"]

_NEEDS_GRAPH = ("CompGCN", "RGCN", "NodePiece")


@dataclass(frozen=True)
class PykeenRecipe:
    """How a model is built before its weights are put in; `num_relations` as files number them."""

    name: str
    kwargs: Mapping[str, Any]
    num_entities: int
    num_relations: int
    inverse: bool


@dataclass(frozen=True)
class PykeenCheckpoint:
    """A model in evaluation mode, and what its file says of its training; None where it says nothing."""

    model: ConvE | Any
    epoch: int | None = None
    learning_rate: float | None = None
    loss: Mapping[str, Any] | None = None
    entities_digest: str | None = None
    relations_digest: str | None = None


def rebuild(
    recipe: PykeenRecipe, state: Mapping[str, torch.Tensor], triples: torch.Tensor | None = None
) -> ConvE | Any:
    """The model with these weights: kgops' own ConvE for PyKEEN's, which scores the same, else PyKEEN's.

    Models that look at the graph itself need its training `triples` as well.
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
        # What a regulariser remembers has no part in scores.
        said = ", ".join(key for key in wrong if ".regularizer." not in key)
    except RuntimeError as error:
        said = " ".join(str(error).split())
    if said:
        raise BadInput(
            f"these weights are not those of a {recipe.name} built as its run says: {said[:300]}.",
            hint="load them with the PyKEEN version they were trained with, and with the run's config.json.",
        )
    return model.eval()


def load_pykeen_model(
    path: Path,
    *,
    trust_pickle: bool = False,
    recipe: PykeenRecipe | None = None,
    triples: torch.Tensor | None = None,
) -> PykeenCheckpoint:
    """From a kept checkpoint, from weights beside their run's `config.json` or with a `recipe`, or from
    PyKEEN's `trained_model.pkl`, which runs code as it is read and so needs `trust_pickle`."""
    saved = load_saved(path, trust_pickle)
    if isinstance(saved, ERModel):
        return PykeenCheckpoint(_native(saved))
    if isinstance(saved, Mapping) and saved.get("format") == KEPT_FORMAT:
        told = {name: saved[name] for name in ("epoch", "learning_rate", "loss")}
        digests = {name: saved[name] for name in ("entities_digest", "relations_digest")}
        built = rebuild(recipe or PykeenRecipe(**saved["recipe"]), saved["model_state_dict"], triples)
        return PykeenCheckpoint(built, **told, **digests)
    if isinstance(saved, Mapping) and isinstance(saved.get("model_state_dict"), Mapping):
        saved = saved["model_state_dict"]
    if not isinstance(saved, Mapping) or not all(isinstance(v, torch.Tensor) for v in saved.values()):
        raise BadInput(
            f"{path} holds no model.", hint="give a checkpoint, trained_model.pkl or a state dict."
        )
    config = _config_near(path)
    if recipe is None and config is None:
        raise BadInput(
            f"{path} holds weights alone, and no config.json of its run lies beside it: which model is it?",
            hint="give the file where the run left it, or PyKEEN's trained_model.pkl with --trust-pickle.",
        )
    training = config["training"] if config is not None else {}
    built = rebuild(recipe or _recipe_of(config or {}, path), saved, triples)
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
) -> None:
    """What TracIn needs of this epoch, whole or not at all."""
    body = {
        "format": KEPT_FORMAT,
        "recipe": {**asdict(recipe), "kwargs": dict(recipe.kwargs)},
        "epoch": epoch,
        "learning_rate": learning_rate,
        "loss": None if loss is None else dict(loss),
        "entities_digest": entities_digest,
        "relations_digest": relations_digest,
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
            f"{cls.__name__} looks at the graph it was trained on, and there are no triples to build it with.",
            hint="give the training file.",
        )
    try:
        with torch.random.fork_rng(devices=[]):  # the weights it starts from are drawn, and written over
            return cls(triples_factory=facts, random_seed=NoRandomSeedNecessary, **recipe.kwargs)
    except (TypeError, ValueError, KeyError) as error:
        raise BadInput(
            f"{recipe.name} cannot be built from {dict(recipe.kwargs)!r:.200}: {str(error)[:200]}.",
            hint="use the PyKEEN version it was trained with.",
        ) from error


def _config_near(path: Path) -> dict[str, Any] | None:
    """The run's config.json: beside its final weights, one folder above its checkpoints."""
    for folder in (path.parent, path.parent.parent):
        config = read_json(folder / "config.json", follow=True)
        if isinstance(config, dict) and {"model", "training"} <= config.keys():
            return config
    return None


def _recipe_of(config: Mapping[str, Any], path: Path) -> PykeenRecipe:
    told = dict(config["model"])
    missing = [
        f"'{name}'" for name in ("name", "num_entities", "num_relations", "inverse") if name not in told
    ]
    if missing:
        raise BadInput(
            f"the config.json of {path} does not say the model's {', '.join(missing)}.",
            hint="the run was made by an older kgops: use its pykeen/trained_model.pkl with --trust-pickle.",
        )
    facts = {name: told.pop(name) for name in ("name", "num_entities", "num_relations", "inverse")}
    return PykeenRecipe(kwargs=told, **facts)


def _native(model: Any) -> ConvE | Any:
    shape = getattr(model.interaction, "shape_info", None)
    if shape is None or not hasattr(model.interaction, "hr2d"):
        return model.eval()
    return from_pykeen_state(
        model.state_dict(),
        inverse=bool(model.use_inverse_triples),
        embedding_height=shape.image_height,
        embedding_width=shape.image_width,
    )
