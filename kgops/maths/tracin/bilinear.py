"""TracIn for models without layers whose score is linear in the tail: kgops' own vectors, and PyKEEN's bilinear models.

Their score is q(h, r) · t, which is ConvE without layers and biases, so ConvE's factors and engine serve them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kgops.maths.models.encoder import Buffers
from kgops.maths.tracin.encoder import Encoded, Encoder, Pulled

Score = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class BilinearEncoder(Encoder):
    """The query q and its backward pass. `score` takes vectors of heads, relations and tails; `names` are of the two
    tables, `entities` and `relations`. Complex vectors count as pairs of real numbers."""

    has_layers = False

    def __init__(
        self,
        entities: torch.Tensor,
        relations: torch.Tensor,
        score: Score,
        names: frozenset[str],
        *,
        low: torch.dtype | None = None,
    ) -> None:
        # No super().__init__: there are no ConvE layers.
        self.entities, self.relations, self._score, self.names = entities, relations, score, names
        self.low = low
        self.entities_low = None if low is None else entities.to(low)
        self.biases = entities.new_zeros(len(entities))
        self.buffers = Buffers(entities.device)
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
            return torch.autograd.grad(self._score(*leaves).sum(), [leaves[i] for i in wanted])
