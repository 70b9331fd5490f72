"""TracIn for PyKEEN's models of one vector each, scored against all entities: bilinear and distance models.

DistMult, ComplEx, RESCAL and HolE are bilinear (`bilinear`). TransE and RotatE score -|q(h, r) - t|.

The gradient at the vector of entity e is a_e (q - t_e), a number times a difference. So for Euclidean distances the
inner product of two gradients is again a few products of matrices:

    Σ a_e a'_e (q - t_e)·(q' - t_e) = (q·q') (a·a') + (a (|t|² - q·t)) · a' - a · (a' (q'·t))

For the L1 norm the gradient is δ_e sign(q - t_e), which does not factor. All signs are multiplied, entities x width
numbers for each pair, in chunks that fit in memory. This is exact, but far slower.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from pykeen.nn.modules import (
    ComplExInteraction,
    DistMultInteraction,
    HolEInteraction,
    RESCALInteraction,
    RotatEInteraction,
    TransEInteraction,
)

from kgops.maths.models.pykeen_bridge import ENTITIES, RELATIONS
from kgops.maths.tracin.bilinear import BilinearEncoder
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.entity_pass import own_weight, scale_of
from kgops.maths.tracin.generic import PairwiseEngine, add_equal, is_plain, labels_of, products_where_equal
from kgops.maths.tracin.loss import TracinLoss

_BILINEAR = (DistMultInteraction, ComplExInteraction, RESCALInteraction, HolEInteraction)


def is_bilinear(model: Any) -> bool:
    return type(model.interaction) in _BILINEAR and two_tables(model)


def two_tables(model: Any) -> bool:
    """Whether the model has just one vector per entity and one per relation, used without a normalizer."""
    tables = (*model.entity_representations, *model.relation_representations)
    own = {name for name, _ in model.named_parameters()}
    return own == {ENTITIES, RELATIONS} and all(is_plain(t) and t.normalizer is None for t in tables)


def vectors(representation: Any, rows: torch.Tensor) -> torch.Tensor:
    """Rows of the matrix in the shape that the interaction takes: complex or matrices where needed."""
    shaped = rows.view(len(rows), *representation._shape)
    return torch.view_as_complex(shaped) if representation.is_complex else shaped


def bilinear_encoder(model: Any, names: Collection[str]) -> BilinearEncoder:
    """`names` as PyKEEN has them. It stores complex numbers as pairs."""
    interaction = model.interaction
    entity, relation = model.entity_representations[0], model.relation_representations[0]

    def score(h: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = interaction(vectors(entity, h), vectors(relation, r), vectors(entity, t))
        return scores

    entities, relations = (table._embeddings.weight.detach() for table in (entity, relation))
    return BilinearEncoder(entities, relations, score, own_names(names))


def own_names(names: Collection[str]) -> frozenset[str]:
    """kgops' names of PyKEEN's two tables, as far as they are among `names`."""
    ours = {ENTITIES: "entities", RELATIONS: "relations"}
    return frozenset(own for far, own in ours.items() if far in names)


_CHUNK_MIB = 16
# Below this share of the vectors' lengths, cancellation makes the expanded square too inexact: subtract first.
_NEAR = 0.05
Query = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def is_distance(model: Any) -> bool:
    kind = type(model.interaction)
    known = kind is RotatEInteraction or (kind is TransEInteraction and model.interaction.p in (1, 2))
    return known and two_tables(model)


@dataclass
class Differences:
    """Factors of the gradients of a block of rows.

    Rows with equal (head, relation) are a group: they share the query and, except at the tail, the gradient at all
    entities. Each row adds two entity vectors, at its head and at its tail, and one relation vector. Under KvsAll
    the tail's is zero: the rows of a group are one sample.
    """

    query: torch.Tensor  # of groups
    weight: torch.Tensor  # a: (groups, entities)
    along: torch.Tensor | None  # q·t of each entity; Euclidean alone
    weighted: torch.Tensor | None  # a (q·t), of the test side
    group: torch.Tensor  # of rows
    at: torch.Tensor  # (2, rows): heads, tails
    rows_in: torch.Tensor  # (2, rows, width)
    relations: torch.Tensor  # (1, rows)
    relations_in: torch.Tensor  # (1, rows, width)

    def __len__(self) -> int:
        return len(self.group)


class DistanceEngine(PairwiseEngine[Differences]):
    def __init__(
        self,
        checkpoint: TracinCheckpoint,
        loss: TracinLoss,
        settings: Settings,
        names: Collection[str] | None = None,
    ) -> None:
        super().__init__(checkpoint, loss, settings, names)
        model: Any = checkpoint.model
        interaction = model.interaction
        tables: dict[str, torch.Tensor] = dict(model.named_parameters())
        self._raw, self._relations = tables[ENTITIES].detach(), tables[RELATIONS].detach()
        # RotatE always uses the plain Euclidean norm, whatever its settings.
        is_rotate = isinstance(interaction, RotatEInteraction)
        self._query: Query = _rotated if is_rotate else torch.add
        self._euclidean: bool = is_rotate or interaction.p == 2
        self._squared: bool = not is_rotate and self._euclidean and interaction.power_norm
        # Distances do not change under translation, and near the origin products lose fewest digits.
        self._centre = self._raw.mean(0) if self._euclidean else torch.zeros_like(self._raw[0])
        self._entities = self._raw - self._centre
        self._lengths = (self._entities**2).sum(1)
        self._with_entities, self._with_relations = ENTITIES in self.names, RELATIONS in self.names

    @property
    def floats_per_test(self) -> int:
        return 3 * self.total + 5 * self._raw.shape[1]

    @torch.no_grad()
    def gradients(self, rows: torch.Tensor, *, keep: bool = False) -> Differences:
        some, group, own = self._grouped(rows)
        h, r = self._raw[some[:, 0]], self._relations[some[:, 1]]
        q = self._query(h, r) - self._centre
        along = q @ self._entities.t() if self._euclidean else None
        distances = self._distances(q, along)
        weight = self._over_distance(self._to_gradient(some, distances), distances)
        tails = rows[:, 2]
        own = self._over_distance(own, distances[group, tails])
        at_tails = own[:, None] * self._differences(q[group], self._entities[tails])
        at_query = self._at_query(q, weight)[group] - at_tails
        head, relation = _back(self._query, h[group], r[group], at_query)
        return Differences(
            q,
            weight,
            along,
            weight * along if keep and along is not None else None,
            group,
            rows[:, [0, 2]].t(),
            torch.stack([head, at_tails]),
            rows[None, :, 1],
            relation[None],
        )

    @torch.no_grad()
    def pairs(self, train: Differences, test: Differences) -> torch.Tensor:
        out = self._raw.new_zeros(len(train), len(test))
        if self._with_relations:
            ours, theirs = ((side.relations, side.relations_in) for side in (train, test))
            add_equal(out, *ours, *theirs)
        if not self._with_entities:
            return out
        add_equal(out, train.at, train.rows_in, test.at, test.rows_in)
        out += self._rows_with_all(train, test)
        out += self._rows_with_all(test, train).t()
        return out.add_(self._all_with_all(train, test)[train.group][:, test.group])

    @torch.no_grad()
    def rowwise_products(self, some: Differences, others: Differences) -> torch.Tensor:
        out = self._raw.new_zeros(len(some))
        if self._with_relations:
            ours, theirs = ((side.relations, side.relations_in) for side in (some, others))
            out += products_where_equal(*ours, *theirs)
        if not self._with_entities:
            return out
        out += products_where_equal(some.at, some.rows_in, others.at, others.rows_in)
        for a, b in ((some, others), (others, some)):
            there = self._differences(b.query[b.group], self._entities[a.at])
            out += ((a.rows_in * there).sum(2) * b.weight[b.group, a.at]).sum(0)
        i, j = some.group, others.group
        if some.along is None or others.along is None:
            return out + self._signs_one_by_one(some, others)
        both = some.weight[i] * others.weight[j]
        inner = (some.query[i] * others.query[j]).sum(1)[:, None] + self._lengths
        return out + both.mul_(inner.sub_(some.along[i]).sub_(others.along[j])).sum(1)

    def _grouped(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One row for each group, each row's group, and what its tail adds to the gradient there."""
        key = rows[:, 0] * (int(rows[:, 1].max()) + 1) + rows[:, 1]
        known = self.loss.known
        if known is not None:  # a tail unseen in training has other labels
            key = key * (self.total + 1) + torch.where(known.contains(rows), 0, rows[:, 2] + 1)
        _, group, counts = torch.unique(key, return_inverse=True, return_counts=True)
        number = torch.arange(len(rows), device=rows.device)
        some = rows[torch.empty_like(counts).scatter_(0, group, number)]
        own = (
            0.0 if known is not None else own_weight(self.loss, self.total) * scale_of(self.loss, self.total)
        )
        return some, group, self._raw.new_full((len(rows),), own)

    def _distances(self, q: torch.Tensor, along: torch.Tensor | None) -> torch.Tensor:
        if along is None:
            return torch.cdist(q, self._entities, p=1)
        lengths = (q**2).sum(1)[:, None] + self._lengths
        squared = lengths - 2 * along
        i, j = (squared < _NEAR * lengths).nonzero(as_tuple=True)
        for some in torch.split(torch.arange(len(i), device=i.device), 65536):
            squared[i[some], j[some]] = ((q[i[some]] - self._entities[j[some]]) ** 2).sum(1)
        return squared if self._squared else squared.sqrt_()

    def _to_gradient(self, rows: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        """δ: the loss's gradient at the scores, which are the negated distances. Without known tails, the tail counts
        as a negative here."""
        if self.loss.known is None:
            is_bce = self.loss.kind == "bce"
            label = self.loss.targets(self.total)[0] if is_bce else self.loss.smoothing / self.total
            labels = self._raw.new_tensor(label)
        else:
            labels = labels_of(self.loss, rows, self.total, self._raw)
        if self.loss.kind == "bce":
            return torch.sigmoid(-distances).sub_(labels).mul_(scale_of(self.loss, self.total))
        return torch.softmax(-distances, dim=1).sub_(labels)

    def _over_distance(self, delta: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        """a: the factor of a difference, or of its signs. At distance 0 the gradient is zero, as in torch."""
        if not self._euclidean:
            return delta
        return delta * 2 if self._squared else (delta / distances).masked_fill_(distances == 0, 0)

    def _differences(self, q: torch.Tensor, entities: torch.Tensor) -> torch.Tensor:
        difference = q - entities
        return difference if self._euclidean else difference.sign_()

    def _at_query(self, q: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self._euclidean:
            return torch.addmm(-weight.sum(1)[:, None] * q, weight, self._entities)
        gradient = torch.zeros_like(q)
        for chunk in self._chunks(len(q)):
            signs = self._differences(q[:, None], self._entities[chunk])
            gradient -= torch.bmm(weight[:, None, chunk], signs)[:, 0]
        return gradient

    def _rows_with_all(self, a: Differences, b: Differences) -> torch.Tensor:
        """(rows of a, rows of b): a's vectors at its head and tail times the gradient of b's group there."""
        at, own = a.at.flatten(), a.rows_in.flatten(0, 1)
        if self._euclidean:
            out = (own @ b.query.t()).sub_((own * self._entities[at]).sum(1)[:, None])
        else:
            out = torch.stack(
                [(own * self._differences(q, self._entities[at])).sum(1) for q in b.query], dim=1
            )
        out *= b.weight[:, at].t()
        return out.view(2, len(a), -1).sum(0)[:, b.group]

    def _all_with_all(self, train: Differences, test: Differences) -> torch.Tensor:
        """(train groups, test groups): over all entities."""
        if train.along is None or test.weighted is None:
            return self._signs(train, test)
        out = (train.query @ test.query.t()).mul_(train.weight @ test.weight.t())
        out.addmm_((self._lengths - train.along).mul_(train.weight), test.weight.t())
        return out.addmm_(train.weight, test.weighted.t(), alpha=-1)

    def _signs(self, train: Differences, test: Differences) -> torch.Tensor:
        out = self._raw.new_zeros(len(train.query), len(test.query))
        for chunk in self._chunks(len(train.query) + len(test.query)):
            ours, theirs = (
                self._differences(side.query[:, None], self._entities[chunk]).mul_(
                    side.weight[:, chunk, None]
                )
                for side in (train, test)
            )
            out.addmm_(ours.flatten(1), theirs.flatten(1).t())
        return out

    def _signs_one_by_one(self, some: Differences, others: Differences) -> torch.Tensor:
        out, i, j = self._raw.new_zeros(len(some)), some.group, others.group
        for chunk in self._chunks(2 * len(some)):
            ours, theirs = (
                self._differences(side.query[side.group][:, None], self._entities[chunk])
                for side in (some, others)
            )
            out += ((ours * theirs).sum(2) * some.weight[i, chunk] * others.weight[j, chunk]).sum(1)
        return out

    def _chunks(self, rows: int) -> list[slice]:
        """Slices of entities whose differences to that many rows fit in memory."""
        each = rows * self._raw.shape[1] * self._raw.element_size()
        size = max(1, _CHUNK_MIB * 2**20 // each)
        return [slice(start, min(start + size, self.total)) for start in range(0, self.total, size)]


def _rotated(h: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """RotatE's query; complex numbers are stored as pairs in a row."""
    pairs = (torch.view_as_complex(x.view(len(x), -1, 2)) for x in (h, r))
    head, relation = pairs
    return torch.view_as_real(head * relation).flatten(1)


def _back(
    query: Query, h: torch.Tensor, r: torch.Tensor, at_query: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if query is not _rotated:
        return at_query, at_query
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (h, r)]
        head, relation = torch.autograd.grad(query(*leaves), leaves, at_query)
    return head, relation
