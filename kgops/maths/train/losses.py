"""Losses over all entities that never hold a score for every entity at once.

Entities are processed in chunks. For each chunk the scores are computed and turned into their gradient in place. That
gradient is multiplied into the gradients of the entities and of the queries. So only one chunk is stored. Scores have
shape (entity, query), so that every large product reads and writes whole rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kgops.maths.models.encoder import Buffers
from kgops.maths.models.products import add_product, addmm, column_maxima, column_sums, mm_into

# In what a checkpoint records of its loss; without it, as PyKEEN trains, smoothing leaves out the positive.
SMOOTHED_OVER = "smoothed_over"
ALL = "all entities"


@dataclass(frozen=True)
class Positives:
    """Which entities are true for which query: pairs (row of the batch, entity), each pair once.

    A pair whose entity is past the graph's last one is ignored.
    """

    rows: torch.Tensor
    entities: torch.Tensor

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class LossResult:
    """The mean loss, if requested, and the gradient of the queries."""

    value: torch.Tensor | None
    d_queries: torch.Tensor


def _sigmoid_above(plane: torch.Tensor, zero: float) -> None:
    plane.sigmoid_()
    if zero:
        plane.sub_(zero)


def _share_above(
    plane: torch.Tensor, highest: torch.Tensor, inverse: torch.Tensor, smoothing: float | torch.Tensor | None
) -> None:
    # Not exp(score - log of the sum): the logarithm's rounding error would scale the whole row.
    plane.sub_(highest).exp_().mul_(inverse)
    if smoothing is not None:
        plane.sub_(smoothing)


def _round(plane: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """The plane in lower precision, and the sums of its rows."""
    low.copy_(plane)
    return plane.sum(1)


@dataclass(frozen=True)
class ScoreKernels:
    """Elementwise passes over a chunk of scores, each of which torch.compile fuses into one kernel."""

    sigmoid_above: Callable[..., Any] = _sigmoid_above
    share_above: Callable[..., Any] = _share_above
    round: Callable[..., Any] = _round

    @classmethod
    def of(cls, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> ScoreKernels:
        return cls(wrap(_sigmoid_above), wrap(_share_above), wrap(_round))


@dataclass(frozen=True)
class EntityLoss:
    """Binary cross-entropy (mean over queries and entities) or softmax cross-entropy (mean over queries).

    Under softmax the positives of a query share the target evenly. `smoothing` s spreads a share s of each label over
    all K entities, as ConvE's authors and torch do. Ones become 1 - s + s / K, zeros s / K. The large products use
    `dtype`; sums over chunks keep the queries' dtype.

    With `positives_a_query`, the mean number over the whole graph, softmax weights a query by its positives. Each has
    the same cross-entropy as in a query with one answer, and the loss is their mean.
    """

    kind: Literal["bce", "softmax"] = "bce"
    smoothing: float = 0.0
    chunk: int = 1024
    dtype: torch.dtype = torch.float32
    positives_a_query: float | None = None

    @torch.no_grad()
    def __call__(
        self,
        queries: torch.Tensor,
        entities: torch.Tensor,
        biases: torch.Tensor,
        positives: Positives,
        d_entities: torch.Tensor,
        d_biases: torch.Tensor | None,
        *,
        want_value: bool = True,
        buffers: Buffers | None = None,
        kernels: ScoreKernels | None = None,
    ) -> LossResult:
        """Writes the gradient into `d_entities` and, if they are trained, `d_biases`; returns the queries' gradient."""
        buffers, kernels = buffers or Buffers(queries.device), kernels or ScoreKernels()
        walk = _Walk(self, queries, entities, biases, positives, buffers, kernels)
        if self.kind == "bce":
            return _bce(walk, d_entities, d_biases, want_value)
        return _softmax(walk, d_entities, d_biases, want_value)


class _Walk:
    """Pass over the entities by chunks: computes scores and takes their gradients."""

    def __init__(
        self,
        loss: EntityLoss,
        queries: torch.Tensor,
        entities: torch.Tensor,
        biases: torch.Tensor,
        positives: Positives,
        buffers: Buffers,
        kernels: ScoreKernels,
    ) -> None:
        self.loss, self.buffers, self.kernels = loss, buffers, kernels
        self.queries, self.entities, self.biases = queries, entities, biases
        self.batch, self.total = len(queries), len(entities)
        self.rows = positives.rows
        # Row-major index of each positive in the (entity, query) plane.
        self.flat = positives.entities * self.batch + positives.rows
        self.low = loss.dtype != queries.dtype
        self.small = queries.to(loss.dtype) if self.low else queries
        self.d_queries = torch.zeros_like(queries)

    def starts(self) -> range:
        return range(0, self.total, self.loss.chunk)

    def scores(self, start: int) -> torch.Tensor:
        """(entities of the chunk, queries), in the queries' dtype, in a buffer the caller may change."""
        stop = min(start + self.loss.chunk, self.total)
        shape = (stop - start, self.batch)
        entities, bias = self.entities[start:stop], self.biases[start:stop, None]
        plane = self.buffers.take("scores", shape, self.queries.dtype)
        if self.low:
            return torch.add(self._product(self._low(entities), self.small.t()), bias, out=plane)
        return addmm(bias, entities, self.queries.t(), out=plane)

    def at_positives(self, start: int, plane: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Index of each positive in the flattened chunk, and whether it is inside the chunk.

        Positives outside get index 0 with weight 0, so that the host need not wait for the device
        to count those inside.
        """
        index = self.flat - start * self.batch
        inside = (index >= 0) & (index < plane.numel())
        return index * inside, inside

    def add(
        self,
        start: int,
        plane: torch.Tensor,
        d_entities: torch.Tensor,
        d_biases: torch.Tensor | None,
        scale: float,
    ) -> None:
        """Entity, bias and query gradients from the chunk's score gradients times `scale`."""
        stop = start + len(plane)
        entities, own = self.entities[start:stop], d_entities[start:stop]
        if not self.low:
            if d_biases is not None:
                torch.mul(plane.sum(1), scale, out=d_biases[start:stop])
            add_product(self.d_queries, plane.t(), entities)
            mm_into(own, plane, self.queries, scale=scale)
            return
        low_plane = self.buffers.take("low_scores", tuple(plane.shape), self.loss.dtype)
        sums = self.kernels.round(plane, low_plane)
        if d_biases is not None:
            torch.mul(sums, scale, out=d_biases[start:stop])
        # Scaled after the product and in the wide type: inside, half-precision gradients vanish.
        own.copy_(self._product(low_plane, self.small)).mul_(scale)
        self.d_queries += self._product(low_plane.t(), self._low(entities))

    def _product(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.is_cuda and a.dtype in (torch.float16, torch.bfloat16):
            # The product's sum over a chunk of entities stays in float32, never rounded to fp16.
            return torch.mm(a, b, out_dtype=torch.float32)
        if a.dtype == torch.float16:
            # A CPU sums fp16 products in fp16, which loses small gradients.
            return torch.mm(a.float(), b.float())
        out = self.buffers.take("low_product", (a.shape[0], b.shape[1]), a.dtype)
        return torch.mm(a, b, out=out)

    def _low(self, entities: torch.Tensor) -> torch.Tensor:
        if not self.low:
            return entities
        return self.buffers.take("low_entities", tuple(entities.shape), self.loss.dtype).copy_(entities)


def _bce(
    walk: _Walk,
    d_entities: torch.Tensor,
    d_biases: torch.Tensor | None,
    want_value: bool,
) -> LossResult:
    zero = walk.loss.smoothing / walk.total
    more = 1 - walk.loss.smoothing  # how far a positive's target is above a negative's
    per_score = 1 / (walk.batch * walk.total)
    value = torch.zeros((), dtype=torch.float64, device=walk.queries.device)
    for start in walk.starts():
        plane = walk.scores(start)
        flat = plane.view(-1)
        index, inside = walk.at_positives(start, plane)
        if want_value:
            value += _total(torch.nn.functional.softplus(plane))
            value -= more * (flat[index] * inside).sum(dtype=torch.float64)
            if zero:
                value -= zero * _total(plane)
        walk.kernels.sigmoid_above(plane, zero)
        flat.index_add_(0, index, inside * torch.full((), -more, dtype=plane.dtype, device=plane.device))
        walk.add(start, plane, d_entities, d_biases, per_score)
    walk.d_queries *= per_score
    return LossResult((value * per_score).to(walk.queries.dtype) if want_value else None, walk.d_queries)


def _total(plane: torch.Tensor) -> torch.Tensor:
    """Sum in float64 over sums of rows, since torch would first copy the whole plane to float64."""
    return plane.sum(1).sum(dtype=torch.float64)


def _softmax(
    walk: _Walk,
    d_entities: torch.Tensor,
    d_biases: torch.Tensor | None,
    want_value: bool,
) -> LossResult:
    smoothing = walk.loss.smoothing
    queries = walk.queries
    counts = torch.zeros(walk.batch, dtype=queries.dtype, device=queries.device)
    counts.index_add_(0, walk.rows, (walk.flat < walk.total * walk.batch).to(queries.dtype))
    share = (1 - smoothing) / counts[walk.rows]
    # Of each query; the mean over the graph, not the batch's own, so that ranks with a part of a batch agree.
    weight = None if walk.loss.positives_a_query is None else counts / walk.loss.positives_a_query
    if weight is not None:
        share *= weight[walk.rows]
    highest, total, value = _sum_exp(walk, share, weight, want_value)
    inverse = total.reciprocal()
    low: float | torch.Tensor | None = smoothing / walk.total if smoothing else None
    if weight is not None:
        inverse *= weight
        low = weight * low if low is not None else None
    for start in walk.starts():
        plane = walk.scores(start)
        walk.kernels.share_above(plane, highest, inverse, low)
        index, inside = walk.at_positives(start, plane)
        plane.view(-1).index_add_(0, index, -share * inside)
        walk.add(start, plane, d_entities, d_biases, 1 / walk.batch)
    walk.d_queries /= walk.batch
    if value is None:
        return LossResult(None, walk.d_queries)
    logsumexp = highest + total.log()
    if weight is not None:
        logsumexp *= weight
    mean = (logsumexp.sum(dtype=torch.float64) - value) / walk.batch
    return LossResult(mean.to(queries.dtype), walk.d_queries)


def _sum_exp(
    walk: _Walk, share: torch.Tensor, weight: torch.Tensor | None, want_value: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """For each query its highest score and Σ exp(score - highest); and the total Σ target · score."""
    queries, smoothing = walk.queries, walk.loss.smoothing
    highest = torch.full((walk.batch,), -torch.inf, dtype=queries.dtype, device=queries.device)
    total = torch.zeros_like(highest)
    value = torch.zeros((), dtype=torch.float64, device=queries.device) if want_value else None
    for start in walk.starts():
        plane = walk.scores(start)
        if value is not None:
            index, inside = walk.at_positives(start, plane)
            value += (plane.view(-1)[index] * (share * inside)).sum(dtype=torch.float64)
            if smoothing:
                scores = (
                    _total(plane)
                    if weight is None
                    else (column_sums(plane) * weight).sum(dtype=torch.float64)
                )
                value += smoothing / walk.total * scores
        higher = torch.maximum(highest, column_maxima(plane))
        total *= (highest - higher).exp_()
        total += column_sums(plane.sub_(higher).exp_())
        highest = higher
    return highest, total, value
