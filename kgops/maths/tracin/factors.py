"""Gradients of a block of triples as factors: the vectors whose outer products they are, never the gradients.

A dense layer's gradient is an outer product, so the inner product of two of them is a product of two numbers. A block
has *groups*, the distinct (head, relation). The *samples* of a group differ by their tail. They share the forward pass
and most of the gradient at the scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kgops.jobs.on_device import rounded_rows
from kgops.maths.tracin.encoder import Encoded, Encoder
from kgops.maths.tracin.entity_pass import OutputPass, Places, Positives, output_pass, own_weight, scale_of
from kgops.maths.tracin.loss import TracinLoss


@dataclass
class OtherSide:
    """The factors on the other side of the product, as far as a block's pass over the entities needs them."""

    delta: torch.Tensor | None
    wanted: Places | None
    samples: int


@dataclass
class Factors:
    """The factors of a block of rows. Gradient at the scores of sample s, in units of `scale`: the shared part of its
    group, plus `own`[s] at its tail.

    `shared` is None where the loss reads only the tail's score, so that nothing is shared. The gradients before the
    feature maps (`conv`, `heads_in`, `relations_in`) are None where they were not computed.
    """

    encoded: Encoded
    heads: torch.Tensor  # of groups
    relations: torch.Tensor  # of groups
    group: torch.Tensor  # of samples
    tails: torch.Tensor  # of samples
    own: torch.Tensor  # of samples
    one_to_one: bool  # whether sample i is group i
    sample: torch.Tensor | None  # of rows, where rows share samples
    shared: OutputPass | None
    u: torch.Tensor
    norm: torch.Tensor | None  # gradient of the output norm's parameters
    conv: torch.Tensor | None
    heads_in: torch.Tensor | None
    relations_in: torch.Tensor | None
    pulled: bool
    scale: float
    positives: Positives | None = None  # of the shared part, to compute it at other entities
    # What biases multiply, by group, where it is not 1: the entities' and the projection's.
    x_one: torch.Tensor | None = None
    maps_one: torch.Tensor | None = None

    def spread(self, by_group: torch.Tensor) -> torch.Tensor:
        """Rows for groups → rows for samples."""
        return by_group if self.one_to_one else by_group.index_select(0, self.group)

    def spread_columns(self, by_group: torch.Tensor) -> torch.Tensor:
        return by_group if self.one_to_one else by_group.index_select(1, self.group)

    def as_other_side(self, chunk: int, total: int) -> OtherSide:
        """The part of these factors that the other side needs. They were made with `keep`."""
        delta = None if self.shared is None else self.shared.delta
        # Entities where these samples read the other side's gradient at the scores: tails, then heads.
        places = Places(torch.cat([self.tails, self.heads]), None, chunk, total)
        return OtherSide(delta, places, len(self.group))


@dataclass(frozen=True)
class _Grouping:
    heads: torch.Tensor
    relations: torch.Tensor
    group: torch.Tensor
    tails: torch.Tensor
    own: torch.Tensor
    sample: torch.Tensor | None
    positives: Positives
    one_to_one: bool


@torch.no_grad()
def factors_of(
    encoder: Encoder,
    loss: TracinLoss,
    rows: torch.Tensor,
    *,
    chunk: int,
    keep: bool = False,
    others: OtherSide | None = None,
    rounded: bool = False,
) -> Factors:
    """Factors of `rows` (head, relation row, tail). `keep` for the test side, which stays in memory; the training side
    may leave the backward pass through the convolution to `tangents`. `rounded`: for one block of many."""
    total = len(encoder.entities)
    g = _grouped(loss, rows, total, encoder.entities, chunk)
    if rounded:
        g = _rounded(g, encoder.entities)
    encoded = encoder.encode(g.heads, g.relations, keep=keep)
    shared = None
    if not loss.all_scores:
        vectors = encoder.entities.index_select(0, g.tails)
        scores = (encoded.x.index_select(0, g.group) * vectors).sum(1) + encoder.biases[g.tails]
        own = -torch.sigmoid(-scores) if loss.kind == "target" else -torch.ones_like(scores)
        d_x = vectors * own[:, None]
    else:
        shared = output_pass(
            loss,
            encoded.x,
            encoder.entities,
            encoder.biases,
            g.positives,
            chunk=chunk,
            buffers=encoder.buffers,
            keep=keep,
            against=None if others is None else others.delta,
            wanted=None if others is None else others.wanted,
            entities_low=encoder.entities_low,
        )
        own = g.own
        d_x = shared.d_x.index_select(0, g.group)
        if g.sample is None:
            d_x += own[:, None] * encoder.entities.index_select(0, g.tails)
    u, norm = encoder.output_gradients(encoded, g.group, d_x)
    # A forward pass along each test's gradient costs one pass for each (group, test); see `tangents`.
    few = encoder.has_layers and others is not None and len(g.heads) * others.samples < len(g.group)
    pulled = None if few else encoder.pull(encoded, g.group, u)
    return Factors(
        encoded,
        g.heads,
        g.relations,
        g.group,
        g.tails,
        own,
        g.one_to_one,
        g.sample,
        shared,
        u,
        norm,
        None if pulled is None else pulled.conv,
        None if pulled is None else pulled.heads,
        None if pulled is None else pulled.relations,
        pulled is not None,
        scale_of(loss, total),
        positives=None if shared is None else g.positives,
    )


def _rounded(g: _Grouping, like: torch.Tensor) -> _Grouping:
    """With groups that no sample is of, where products want their numbers rounded."""
    is_alone = g.one_to_one and g.sample is None
    if is_alone or like.dtype != torch.float32 or like.device.type != "cpu":
        return g
    more = rounded_rows(len(g.heads)) - len(g.heads)
    some = replace(g, heads=_repeated(g.heads, more), relations=_repeated(g.relations, more))
    if g.sample is None or not more:
        return some
    numbers = torch.arange(len(some.heads), device=like.device)
    return replace(some, group=numbers, tails=_repeated(g.tails, more), own=_repeated(g.own, more))


def _repeated(ids: torch.Tensor, more: int) -> torch.Tensor:
    """With the last one `more` times again."""
    return torch.cat([ids, ids[-1:].expand(more)]) if more else ids


def _grouped(loss: TracinLoss, rows: torch.Tensor, total: int, like: torch.Tensor, chunk: int) -> _Grouping:
    """Groups rows by (head, relation). Under KvsAll the rows of a group are one sample. A row whose tail is unseen in
    training has other labels, so it is a separate group."""
    key = rows[:, 0] * (int(rows[:, 1].max()) + 1) + rows[:, 1]
    if loss.known is not None:
        key = key * (total + 1) + torch.where(loss.known.contains(rows), 0, rows[:, 2] + 1)
    _, group, counts = torch.unique(key, return_inverse=True, return_counts=True)
    number = torch.arange(len(rows), device=rows.device)
    # Any row may represent its group: they agree in everything read from it.
    some = rows[torch.empty_like(counts).scatter_(0, group, number)]
    heads, relations = some[:, 0], some[:, 1]
    if loss.known is not None:
        which, entities = loss.known.positives(some)
        places = Places(entities, which, chunk, total)
        size = torch.zeros(len(some), dtype=like.dtype, device=rows.device)
        size.index_add_(0, which, torch.ones_like(which, dtype=like.dtype))
        share = ((1 - loss.smoothing) / size)[which][places.order]
        own = like.new_zeros(len(some))
        ranks = torch.arange(len(some), device=rows.device)
        return _Grouping(heads, relations, ranks, some[:, 2], own, group, Positives(places, share), True)
    # A group of one puts its tail into the shared part, where its gradient keeps all its digits.
    alone = counts[group] == 1
    places = Places(rows[alone, 2], group[alone], chunk, total)
    share = like.new_full((len(places.entities),), 1 - loss.smoothing)
    own = like.new_full((len(rows),), own_weight(loss, total)).masked_fill_(alone, 0)
    return _Grouping(
        heads,
        relations,
        group,
        rows[:, 2],
        own,
        None,
        Positives(places, share),
        len(some) == len(rows) and bool((group == number).all()),
    )
