"""PyKEEN's models that measure a distance, against all entities: TransE and RotatE.

    score(h, r, t) = -|q(h, r) - t|

The gradient at the vector of entity e is a_e (q - t_e), a number times a difference, so for Euclidean
distances the inner product of two gradients is again a few products of matrices:

    Σ a_e a'_e (q - t_e)·(q' - t_e) = (q·q') (a·a') + (a (|t|² - q·t)) · a' - a · (a' (q'·t))

For the sum of absolute values it is δ_e sign(q - t_e), and signs do not come apart: there all signs meet,
entities x width numbers a pair, in chunks that fit. Exact, with a large factor more to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from pykeen.nn.modules import RotatEInteraction, TransEInteraction

from kgops.tracin.blocks import Point, Settings
from kgops.tracin.embeddings import ENTITIES, RELATIONS, two_tables
from kgops.tracin.loss import TracinLoss
from kgops.tracin.pairwise import PairwiseEngine, add_equal, labels_of

__all__ = ["Differences", "DistanceEngine", "is_distance"]

_CHUNK_MIB = 16
# Below this share of the vectors' lengths the difference of large numbers is too coarse for a distance.
_NEAR = 0.05
Query = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def is_distance(model: Any) -> bool:
    kind = type(model.interaction)
    known = kind is RotatEInteraction or (kind is TransEInteraction and model.interaction.p in (1, 2))
    return known and two_tables(model)


@dataclass
class Differences:
    """Of each row: the query, the weights of its differences to all entities, and the vectors' gradients."""

    query: torch.Tensor
    weight: torch.Tensor  # a: (rows, entities)
    along: torch.Tensor | None  # q·t of each entity; Euclidean alone
    ids: torch.Tensor
    head: torch.Tensor
    relation: torch.Tensor
    weighted: torch.Tensor | None  # a (q·t), of the side that stays

    def __len__(self) -> int:
        return len(self.query)


class DistanceEngine(PairwiseEngine[Differences]):
    def __init__(
        self, point: Point, loss: TracinLoss, settings: Settings, names: Collection[str] | None = None
    ) -> None:
        super().__init__(point, loss, settings, names)
        model: Any = point.model
        interaction = model.interaction
        tables: dict[str, torch.Tensor] = dict(model.named_parameters())
        self._raw, self._relations = tables[ENTITIES].detach(), tables[RELATIONS].detach()
        # RotatE's score has the plain Euclidean norm whatever its settings say.
        turned = isinstance(interaction, RotatEInteraction)
        self._query: Query = _turned if turned else torch.add
        self._euclidean: bool = turned or interaction.p == 2
        self._squared: bool = not turned and self._euclidean and interaction.power_norm
        # Distances do not change when all is moved, and near the origin products lose fewest digits.
        self._centre = self._raw.mean(0) if self._euclidean else torch.zeros_like(self._raw[0])
        self._entities = self._raw - self._centre
        self._lengths = (self._entities**2).sum(1)
        self._with_entities, self._with_relations = ENTITIES in self.names, RELATIONS in self.names

    @property
    def numbers_each_test(self) -> int:
        return 3 * self.total + 4 * self._raw.shape[1]

    @torch.no_grad()
    def made(self, rows: torch.Tensor, *, keep: bool = False) -> Differences:
        h, r = self._raw[rows[:, 0]], self._relations[rows[:, 1]]
        q = self._query(h, r) - self._centre
        along = q @ self._entities.t() if self._euclidean else None
        distances = self._distances(q, along)
        weight = self._to_gradient(rows, distances)
        if self._euclidean and not self._squared:
            weight = torch.where(distances > 0, weight / distances, 0)
        elif self._squared:
            weight *= 2
        head, relation = _back(self._query, h, r, self._at_query(q, weight))
        weighted = weight * along if keep and along is not None else None
        return Differences(q, weight, along, rows, head, relation, weighted)

    @torch.no_grad()
    def pairs(self, train: Differences, test: Differences) -> torch.Tensor:
        out = self._raw.new_zeros(len(train), len(test))
        if self._with_relations:
            add_equal(
                out, train.ids[None, :, 1], train.relation[None], test.ids[None, :, 1], test.relation[None]
            )
        if not self._with_entities:
            return out
        add_equal(out, train.ids[None, :, 0], train.head[None], test.ids[None, :, 0], test.head[None])
        out += self._heads_with_tails(train, test)
        out += self._heads_with_tails(test, train).t()
        if train.along is None or test.weighted is None:
            return self._add_signs(out, train, test)
        out.addcmul_(train.query @ test.query.t(), train.weight @ test.weight.t())
        out.addmm_((self._lengths - train.along).mul_(train.weight), test.weight.t())
        return out.addmm_(train.weight, test.weighted.t(), alpha=-1)

    @torch.no_grad()
    def one_by_one(self, some: Differences, others: Differences) -> torch.Tensor:
        out = self._raw.new_zeros(len(some))
        if self._with_relations:
            out += (some.relation * others.relation).sum(1) * (some.ids[:, 1] == others.ids[:, 1])
        if not self._with_entities:
            return out
        out += (some.head * others.head).sum(1) * (some.ids[:, 0] == others.ids[:, 0])
        for a, b in ((some, others), (others, some)):
            at = a.ids[:, 0]
            difference = b.query - self._entities[at]
            difference = difference if self._euclidean else difference.sign()
            out += (a.head * difference).sum(1) * b.weight.gather(1, at[:, None])[:, 0]
        if some.along is None or others.along is None:
            return out + self._signs_one_by_one(some, others)
        both = some.weight * others.weight
        inner = (some.query * others.query).sum(1)[:, None] + self._lengths - some.along - others.along
        return out + (both * inner).sum(1)

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
        """δ: the loss's gradient at the scores, which are the distances with a minus."""
        labels = labels_of(self.loss, rows, self.total, self._raw)
        if self.loss.kind == "bce":
            return torch.sigmoid(-distances).sub_(labels).div_(self.total)
        return torch.softmax(-distances, dim=1).sub_(labels)

    def _at_query(self, q: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self._euclidean:
            return torch.addmm(-weight.sum(1)[:, None] * q, weight, self._entities)
        found = torch.zeros_like(q)
        for part in self._chunks(len(q)):
            signs = (q[:, None] - self._entities[part]).sign_()
            found -= torch.bmm(weight[:, None, part], signs)[:, 0]
        return found

    def _heads_with_tails(self, a: Differences, b: Differences) -> torch.Tensor:
        """(rows of a, rows of b): a's head vector where b has it as one of all tails."""
        at = a.ids[:, 0]
        weight = b.weight[:, at].t()
        if self._euclidean:
            own = (a.head * self._entities[at]).sum(1)[:, None]
            return (a.head @ b.query.t()).sub_(own).mul_(weight)
        out = torch.empty_like(weight)
        for j in range(len(b)):
            out[:, j] = (a.head * (b.query[j] - self._entities[at]).sign_()).sum(1)
        return out.mul_(weight)

    def _add_signs(self, out: torch.Tensor, train: Differences, test: Differences) -> torch.Tensor:
        for part in self._chunks(len(train) + len(test)):
            ours, theirs = (
                (side.query[:, None] - self._entities[part]).sign_().mul_(side.weight[:, part, None])
                for side in (train, test)
            )
            out.addmm_(ours.flatten(1), theirs.flatten(1).t())
        return out

    def _signs_one_by_one(self, some: Differences, others: Differences) -> torch.Tensor:
        out = self._raw.new_zeros(len(some))
        for part in self._chunks(len(some)):
            signs = [(side.query[:, None] - self._entities[part]).sign_() for side in (some, others)]
            both = some.weight[:, part] * others.weight[:, part]
            out += ((signs[0] * signs[1]).sum(2) * both).sum(1)
        return out

    def _chunks(self, rows: int) -> list[slice]:
        """Of entities, so that all their differences to so many rows fit."""
        each = rows * self._raw.shape[1] * self._raw.element_size()
        size = max(1, _CHUNK_MIB * 2**20 // each)
        return [slice(start, min(start + size, self.total)) for start in range(0, self.total, size)]


def _turned(h: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """RotatE's query; complex numbers lie as pairs in a row."""
    pairs = (torch.view_as_complex(x.view(len(x), -1, 2)) for x in (h, r))
    head, relation = pairs
    return torch.view_as_real(head * relation).flatten(1)


def _back(
    query: Query, h: torch.Tensor, r: torch.Tensor, at_query: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if query is not _turned:
        return at_query, at_query
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (h, r)]
        head, relation = torch.autograd.grad(query(*leaves), leaves, at_query)
    return head, relation
