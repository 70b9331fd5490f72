"""Converts weights from and to PyKEEN.

PyKEEN keeps ConvE's layers in two Sequentials whose numbering depends on whether batch norms are there.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.maths.models.build import build_model
from kgops.maths.models.conve import ConvE
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.vectors import VectorModel
from kgops.workloads.train.models import ConvEConfig, VectorConfig
from kgops.workloads.train.options import VECTOR_MODELS

# Format of checkpoints that a run of PyKEEN's pipeline keeps; see `pykeen_models`.
KEPT_FORMAT = "kgops pykeen checkpoint"

ENTITIES = "entity_representations.0._embeddings.weight"
_BIASES = "entity_representations.1._embeddings.weight"
RELATIONS = "relation_representations.0._embeddings.weight"
_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def _keys(batch_norm: bool) -> dict[str, str]:
    """kgops key → PyKEEN key."""
    names = {"entities": ENTITIES, "biases": _BIASES, "relations": RELATIONS}
    conv = 2 if batch_norm else 1
    layers = {"conv": f"interaction.hr2d.{conv}", "project": "interaction.hr1d.0"}
    names |= {f"{own}.{part}": f"{far}.{part}" for own, far in layers.items() for part in ("weight", "bias")}
    if batch_norm:
        norms = {
            "input_norm": "interaction.hr2d.0",
            "feature_norm": "interaction.hr2d.3",
            "output_norm": "interaction.hr1d.2",
        }
        names |= {f"{own}.{part}": f"{far}.{part}" for own, far in norms.items() for part in _NORM}
    return names


def to_pykeen_state(model: EntityModel) -> dict[str, torch.Tensor]:
    """A state dict that PyKEEN's model of this name and equal sizes can load."""
    own = model.state_dict()
    if isinstance(model, VectorModel):
        tables = {ENTITIES: own["entities"], RELATIONS: own["relations"]}
        return {name: model.interleaved(table).clone() for name, table in tables.items()}
    assert isinstance(model, ConvE)
    state = {far: own[name].detach().clone() for name, far in _keys(model.config.batch_norm).items()}
    bias = state[_BIASES]
    state[_BIASES] = bias.view(-1, 1)  # PyKEEN stores each entity's bias as a row of one
    return state


def own_vectors(model: Any) -> EntityModel | None:
    """kgops' model with the vectors of PyKEEN's, if it has one whose scores are the same; on its device."""
    name = type(model).__name__
    tables = dict(model.named_parameters())
    if name not in VECTOR_MODELS or tables.keys() != {ENTITIES, RELATIONS}:
        return None
    if any(one.normalizer for one in (*model.entity_representations, *model.relation_representations)):
        return None
    entities, relations = tables[ENTITIES], tables[RELATIONS]
    rank = entities.shape[1] // VECTOR_MODELS[name]
    inverse = bool(model.use_inverse_triples)
    config = VectorConfig(len(entities), int(model.num_real_relations), inverse, rank, name)
    own = build_model(config).to(entities.device, entities.dtype)
    assert isinstance(own, VectorModel)
    own.load_state_dict({"entities": own.separated(entities), "relations": own.separated(relations)})
    return own.eval()


def from_pykeen_state(
    state: Mapping[str, torch.Tensor],
    *,
    inverse: bool,
    embedding_height: int | None = None,
    embedding_width: int | None = None,
    **dropout: float,
) -> ConvE:
    """kgops' ConvE with PyKEEN's weights, in evaluation mode.

    A state dict determines all sizes but the image's height and width, and whether there are inverse relations.
    Without height and width the image is the only one that fits, or PyKEEN's default.
    """
    for key in (ENTITIES, _BIASES, RELATIONS, "interaction.hr1d.0.weight"):
        if key not in state:
            raise BadInput(
                f"this is not a PyKEEN ConvE: '{key}' is missing.",
                hint="run other models in PyKEEN's pipeline: --engine pykeen.",
            )
    batch_norm = "interaction.hr2d.0.running_mean" in state
    names = _keys(batch_norm)
    _same_keys(set(names.values()), set(state))
    config = _config(state, names, batch_norm, inverse, embedding_height, embedding_width, dropout)
    model = ConvE(config).to(state[ENTITIES].dtype)
    own = model.state_dict()
    ours = {name: state[far].detach().reshape(own[name].shape) for name, far in names.items()}
    model.load_state_dict(ours)
    return model.eval()


@dataclass(frozen=True)
class PykeenCheckpoint:
    """A model in evaluation mode, with the training facts in its file; None where they are missing."""

    model: EntityModel | Any
    epoch: int | None = None
    learning_rate: float | None = None
    loss: Mapping[str, Any] | None = None
    entities_digest: str | None = None
    relations_digest: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)  # digests of the graph


def conve_of(path: Path, saved: Any, relations: int) -> ConvE:
    """A ConvE from what `load_saved` read of a file that PyKEEN wrote: a state dict, a checkpoint, or a whole model.

    A state dict does not say whether it has inverse relations; the number of the graph's `relations` does.
    """
    if isinstance(saved, torch.nn.Module):
        return _from_module(path, saved)
    state = weights_in(saved)
    if state is None or not all(map(_is_whole, state.values())):
        raise BadInput(
            f"{path} holds no state dict.", hint="give PyKEEN's trained_model.pkl or a state dict."
        )
    try:
        inverse = RELATIONS in state and len(state[RELATIONS]) == 2 * relations
        return from_pykeen_state(state, inverse=inverse)
    except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise BadInput(
            f"{path} has weights whose sizes or types are not those of a ConvE.", hint="is the file complete?"
        ) from error


def weights_in(saved: Any) -> Mapping[str, torch.Tensor] | None:
    """The state dict that a file is, or has; None where it has none."""
    if isinstance(saved, Mapping) and isinstance(saved.get("model_state_dict"), Mapping):
        saved = saved["model_state_dict"]
    if not isinstance(saved, Mapping) or not all(isinstance(one, torch.Tensor) for one in saved.values()):
        return None
    return saved


def _is_whole(value: torch.Tensor) -> bool:
    """Whether all its data are in the file."""
    return value.layout == torch.strided and value.nbytes <= value.untyped_storage().nbytes()


def load_saved(path: Path, trust_pickle: bool) -> Any:
    """Loads a torch file, by torch's safe reader unless the pickle is trusted."""
    try:
        with warnings.catch_warnings():
            # A newer pickle protocol than torch's default either loads or is refused below.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            return torch.load(path, map_location="cpu", weights_only=not trust_pickle)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.", hint="check the path.") from error
    except pickle.UnpicklingError as error:
        if not trust_pickle and zipfile.is_zipfile(path):
            raise BadInput(
                f"{path} is a pickle that torch's safe reader refuses; loading it would run the code in it.",
                hint="if you trust its source, pass --trust-pickle.",
            ) from error
        raise BadInput(f"{path} is not a file that torch saved.", hint="is the file complete?") from error
    except MemoryError:
        raise
    except Exception as error:  # damaged file or missing class: unpickling may raise any exception
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadInput(f"{path} cannot be loaded: {reason}.", hint="is the file complete?") from error


def _from_module(path: Path, module: torch.nn.Module) -> ConvE:
    interaction: Any = getattr(module, "interaction", None)
    shape = getattr(interaction, "shape_info", None)
    if shape is None or not hasattr(interaction, "hr2d"):
        raise BadInput(
            f"{path} holds a {type(module).__name__}, not a ConvE.",
            hint="run other models in PyKEEN's pipeline: --engine pykeen.",
        )
    rates = [m.p for m in interaction.modules() if isinstance(m, torch.nn.Dropout | torch.nn.Dropout2d)]
    names = ("input_dropout", "feature_map_dropout", "output_dropout")
    return from_pykeen_state(
        module.state_dict(),
        inverse=bool(getattr(module, "use_inverse_triples", False)),
        embedding_height=shape.image_height,
        embedding_width=shape.image_width,
        **dict(zip(names, rates, strict=True)),
    )


def _config(
    state: Mapping[str, torch.Tensor],
    names: Mapping[str, str],
    batch_norm: bool,
    inverse: bool,
    height: int | None,
    width: int | None,
    dropout: Mapping[str, float],
) -> ConvEConfig:
    num_entities, dim = state[ENTITIES].shape
    out_channels, channels, kernel_height, kernel_width = state[names["conv.weight"]].shape
    features = state["interaction.hr1d.0.weight"].shape[1]
    relations = state[RELATIONS].shape[0]
    if inverse and relations % 2:
        raise BadInput(
            f"{relations} relation vectors cannot be relations and their inverses.",
            hint="it was trained without inverse triples.",
        )
    if height is None or width is None:
        height, width = _image(dim // channels, kernel_height, kernel_width, features // out_channels)
    return ConvEConfig(
        num_entities,
        relations // 2 if inverse else relations,
        inverse,
        dim,
        channels,
        height,
        width,
        out_channels,
        kernel_height,
        kernel_width,
        batch_norm=batch_norm,
        **dropout,
    )


def _image(area: int, kernel_height: int, kernel_width: int, positions: int) -> tuple[int, int]:
    """Height and width whose feature map has `positions` entries; the most square of several."""
    fits = [
        (h, area // h)
        for h in range(1, area + 1)
        if area % h == 0 and (2 * h - kernel_height + 1) * (area // h - kernel_width + 1) == positions
    ]
    if not fits:
        raise BadInput("no image of the vectors' length gives feature maps of this size.")
    return min(fits, key=lambda hw: (abs(hw[0] - hw[1]), hw[0]))


def _same_keys(expected: set[str], present: set[str]) -> None:
    extra = sorted(key for key in present - expected if not key.startswith("regularizer"))
    missing = sorted(expected - present)
    if extra or missing:
        differences = [
            f"{word} {', '.join(keys[:3])}"
            for word, keys in (("lacks", missing), ("has also", extra))
            if keys
        ]
        raise BadInput(
            f"these weights are not a ConvE as PyKEEN 1.11 writes it: it {' and '.join(differences)}.",
            hint="load it with the PyKEEN version that wrote it and save its state dict again.",
        )
