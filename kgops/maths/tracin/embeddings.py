"""TracIn encoder for PyKEEN's bilinear models: DistMult, ComplEx, RESCAL and HolE.

    score(h, r, t) = q(h, r) · t

is ConvE without layers and biases, so ConvE's factors and engine serve them when scored against all entities.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from pykeen.nn import Embedding
from pykeen.nn.modules import ComplExInteraction, DistMultInteraction, HolEInteraction, RESCALInteraction

from kgops.maths.models.encoder import Buffers
from kgops.maths.tracin.encoder import Encoded, Encoder, Pulled

ENTITIES = "entity_representations.0._embeddings.weight"
RELATIONS = "relation_representations.0._embeddings.weight"
_BILINEAR = (DistMultInteraction, ComplExInteraction, RESCALInteraction, HolEInteraction)


def is_bilinear(model: Any) -> bool:
    return type(model.interaction) in _BILINEAR and two_tables(model)


def two_tables(model: Any) -> bool:
    """Whether the model has just one vector per entity and one per relation, used without a normalizer."""
    tables = (*model.entity_representations, *model.relation_representations)
    own = {name for name, _ in model.named_parameters()}
    return own == {ENTITIES, RELATIONS} and all(is_plain(t) and t.normalizer is None for t in tables)


def is_plain(representation: Any) -> bool:
    """Whether the representation of entity or relation i is row i of one matrix."""
    return type(representation) is Embedding


def vectors(representation: Any, rows: torch.Tensor) -> torch.Tensor:
    """Rows of the matrix in the shape that the interaction takes: complex or matrices where needed."""
    shaped = rows.view(len(rows), *representation._shape)
    return torch.view_as_complex(shaped) if representation.is_complex else shaped


class BilinearEncoder(Encoder):
    """The query q and its backward pass. Complex vectors count as pairs of real numbers, as PyKEEN stores them."""

    has_layers = False

    def __init__(self, model: Any, names: Collection[str] | None = None) -> None:
        # No super().__init__: there are no ConvE layers.
        self.interaction = model.interaction
        self.entity, self.relation = model.entity_representations[0], model.relation_representations[0]
        self.entities = self.entity._embeddings.weight.detach()
        self.relations = self.relation._embeddings.weight.detach()
        self.biases = self.entities.new_zeros(len(self.entities))
        ours = {ENTITIES: "entities", RELATIONS: "relations"}
        self.names = frozenset(own for far, own in ours.items() if names is None or far in names)
        self.buffers = Buffers(self.entities.device)
        self.wants_maps = True

    def encode(self, heads: torch.Tensor, relations: torch.Tensor, *, keep: bool = False) -> Encoded:
        h, r = self.entities[heads], self.relations[relations]
        # The score is linear in the tail, so its gradient there is the query.
        (x,) = self._gradients(h, r, torch.zeros_like(h), wanted=(2,))
        return Encoded(h, r, x.new_empty(len(x), 0), x, x)

    def output_gradients(
        self, encoded: Encoded, group: torch.Tensor, d_x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return d_x, None

    def pull(self, encoded: Encoded, group: torch.Tensor, u: torch.Tensor) -> Pulled:
        # Σ over tails of δ · score is the score of Σ δ · tail, which is u.
        h, r = encoded.image.index_select(0, group), encoded.patches.index_select(0, group)
        d_h, d_r = self._gradients(h, r, u, wanted=(0, 1))
        return Pulled(
            None, d_h if "entities" in self.names else None, d_r if "relations" in self.names else None
        )

    def _gradients(
        self, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, wanted: tuple[int, ...]
    ) -> tuple[torch.Tensor, ...]:
        """Gradients of each score by its vectors; scores are independent, so one backward pass gives all."""
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(i in wanted) for i, x in enumerate((h, r, t))]
            shaped = (
                vectors(kind, x)
                for kind, x in zip((self.entity, self.relation, self.entity), leaves, strict=True)
            )
            total = self.interaction(*shaped).sum()
            return torch.autograd.grad(total, [leaves[i] for i in wanted])
