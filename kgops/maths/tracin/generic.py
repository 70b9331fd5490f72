"""TracIn engine for any PyKEEN model: per-triple gradients, sparse where a triple reads rows of an embedding matrix.

The model's own scoring sees only the rows of each embedding matrix that a triple reads. So the gradient holds those
rows and never the matrix. Under `target` the score is the triple's (`score_hrt`). Otherwise the scores are all tails'
(`score_t`), and the gradient of the entity vectors is dense. `PairwiseEngine` is the base of the engines for PyKEEN
models: directions, learning rate, and chunks that bound memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from pykeen.nn import Embedding
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from kgops.maths.models.products import mm
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint, rows_of
from kgops.maths.tracin.loss import TracinLoss
from kgops.maths.tracin.models import all_parameters, facts_of

BlockGradients = TypeVar("BlockGradients")


@dataclass
class TestGradients(Generic[BlockGradients]):
    """Gradients of the test triples, in chunks; with both directions, followed by the inverses."""

    chunks: list[BlockGradients]
    triples: int


class PairwiseEngine(ABC, Generic[BlockGradients]):
    """`names`: parameters whose gradients count, None for all. A chunk has `at_once` rows."""

    at_once: int

    def __init__(
        self,
        checkpoint: TracinCheckpoint,
        loss: TracinLoss,
        settings: Settings,
        names: Collection[str] | None = None,
    ) -> None:
        self.checkpoint, self.loss, self.settings = checkpoint, loss, settings
        self.names = all_parameters(checkpoint.model) if names is None else frozenset(names)
        self.total = facts_of(checkpoint.model).entities
        self.at_once = settings.block

    @property
    @abstractmethod
    def floats_per_test(self) -> int: ...

    @abstractmethod
    def gradients(self, rows: torch.Tensor, *, keep: bool = False) -> BlockGradients:
        """Gradients at `rows`, or their factors; `keep` for the test side."""

    @abstractmethod
    def pairs(self, train: BlockGradients, test: BlockGradients) -> torch.Tensor:
        """(train rows, test rows) of ⟨∇, ∇'⟩; `test` was made with `keep`."""

    @abstractmethod
    def rowwise_products(self, some: BlockGradients, others: BlockGradients) -> torch.Tensor:
        """⟨∇, ∇'⟩ of row i of `some` with row i of `others`; both made with `keep`."""

    def keep(self, tests: torch.Tensor) -> TestGradients[BlockGradients]:
        rows = rows_of(self.checkpoint.model, tests, self.settings.both_directions)
        return TestGradients(
            [self.gradients(chunk, keep=True) for chunk in torch.split(rows, self.at_once)], len(tests)
        )

    def scores(self, kept: TestGradients[BlockGradients], train: torch.Tensor) -> torch.Tensor:
        """(tests, trains) times the learning rate."""
        rows = rows_of(self.checkpoint.model, train, self.settings.both_directions)
        blocks = []
        for chunk in torch.split(rows, self.at_once):
            block = self.gradients(chunk)
            blocks.append(torch.cat([self.pairs(block, test) for test in kept.chunks], dim=1))
        pairs = torch.cat(blocks)
        if self.settings.both_directions:
            pairs = pairs.view(2, len(train), 2, kept.triples).sum((0, 2))
        return pairs.t() * self.checkpoint.learning_rate

    def self_scores(self, triples: torch.Tensor) -> torch.Tensor:
        blocks = []
        for chunk in torch.split(triples, self.at_once):
            rows = rows_of(self.checkpoint.model, chunk, self.settings.both_directions)
            sides = [self.gradients(side, keep=True) for side in torch.split(rows, len(chunk))]
            own = sum(self.rowwise_products(side, side) for side in sides)
            if len(sides) == 2:
                own = own + 2 * self.rowwise_products(sides[0], sides[1])
            assert isinstance(own, torch.Tensor)
            blocks.append(own)
        return torch.cat(blocks) * self.checkpoint.learning_rate


def labels_of(loss: TracinLoss, rows: torch.Tensor, total: int, like: torch.Tensor) -> torch.Tensor:
    """(rows, entities): labels of the loss."""
    n, s = len(rows), loss.smoothing
    index = torch.arange(n, device=rows.device)
    which, tails = (index, rows[:, 2]) if loss.known is None else loss.known.positives(rows)
    if loss.kind == "bce":
        negative, positive = loss.targets(total)
        labels = like.new_full((n, total), negative)
        labels[which, tails] = positive
        return labels
    size = like.new_zeros(n).index_add_(0, which, like.new_ones(len(which)))
    labels = like.new_full((n, total), s / total)
    labels[which, tails] += (1 - s) / size[which]
    return labels


def losses_of(loss: TracinLoss, scores: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    """The loss of each row of scores; under `target` a row has one score."""
    if loss.kind == "target":
        return F.softplus(-scores[:, 0])
    assert labels is not None
    if loss.kind == "bce":
        return F.binary_cross_entropy_with_logits(scores, labels, reduction="none").mean(1)
    return F.cross_entropy(scores, labels, reduction="none")


def add_equal(
    out: torch.Tensor, ids: torch.Tensor, a: torch.Tensor, other_ids: torch.Tensor, b: torch.Tensor
) -> None:
    """Adds to `out` the products of sparse gradients of a matrix, where both sides have an equal row id.

    Ids are (places, samples), vectors (places, samples, width). Few pairs match, so usually only these are multiplied.
    """
    samples, others = out.shape
    a, b = a.flatten(0, 1), b.flatten(0, 1)
    same = ids.flatten()[:, None] == other_ids.flatten()[None, :]
    where = same.nonzero()
    if 8 * len(where) < same.numel():
        i, j = where[:, 0], where[:, 1]
        at = (i % samples) * others + j % others
        out.view(-1).index_add_(0, at, (a[i] * b[j]).sum(1))
        return
    product = mm(a, b.t()).mul_(same)
    out += product.view(-1, samples, len(other_ids), others).sum((0, 2))


def products_where_equal(
    ids: torch.Tensor, a: torch.Tensor, other_ids: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """(samples,): `add_equal` of sample i with only sample i."""
    same = ids[:, None] == other_ids[None, :]
    return ((a[:, None] * b[None, :]).sum(3) * same).sum((0, 1))


_CHUNK_MIB = 64
Parameters = dict[str, torch.Tensor]


@dataclass
class Gradients:
    """`rows` by matrix: (places, samples) ids, (places, samples, width). `dense`: (samples, numbers)."""

    rows: dict[str, tuple[torch.Tensor, torch.Tensor]]
    dense: torch.Tensor | None


class _Scores(nn.Module):
    """A model as a function of its parameters, for `functional_call`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, all_tails: bool) -> torch.Tensor:
        scores: torch.Tensor = self.model.score_t(ids[:, :2]) if all_tails else self.model.score_hrt(ids)
        return scores


class GenericEngine(PairwiseEngine[Gradients]):
    def __init__(
        self,
        checkpoint: TracinCheckpoint,
        loss: TracinLoss,
        settings: Settings,
        names: Collection[str] | None = None,
    ) -> None:
        super().__init__(checkpoint, loss, settings, names)
        self._function = _Scores(checkpoint.model)
        self._parameters = {name: p.detach() for name, p in checkpoint.model.named_parameters()}
        self._all_tails = loss.kind != "target"
        self._like = facts_of(checkpoint.model).like
        # Entity rows are enough while no other tail is scored; relation rows always are.
        entities = [] if self._all_tails else _tables(checkpoint.model, "entity_representations")
        self._entity_tables, self._relation_tables = (
            entities,
            _tables(checkpoint.model, "relation_representations"),
        )
        self._tables = {*self._entity_tables, *self._relation_tables}
        self._dense = [name for name in self._parameters if name in self.names - self._tables]
        dense = sum(self._parameters[name].numel() for name in self._dense)
        rows = sum(self._width(name) for name in self.names & self._tables)
        self._numbers = dense + rows + (self.total if self._all_tails else 0)
        # In addition to a chunk's gradients, the backward pass keeps a few times their size.
        room = _CHUNK_MIB * 2**20 // (4 * self._numbers * self._like.element_size())
        self.at_once = max(1, min(settings.block, room))
        self._vectorised = True

    @property
    def floats_per_test(self) -> int:
        return self._numbers

    def gradients(self, rows: torch.Tensor, *, keep: bool = False) -> Gradients:
        labels = labels_of(self.loss, rows, self.total, self._like) if self._all_tails else None
        ids, tables = self._local(rows)
        gradients = self._each(ids, tables, labels) if self._dense else self._one_pass(ids, tables, labels)
        sparse = {}
        for name in self.names & self._tables:
            at = rows[:, [0, 2]] if name in self._entity_tables else rows[:, 1:2]
            sparse[name] = at.t().contiguous(), gradients[name].transpose(0, 1).contiguous()
        dense = [gradients[name].flatten(1) for name in self._dense]
        joined = dense[0] if len(dense) == 1 else torch.cat(dense, dim=1) if dense else None
        return Gradients(sparse, joined)

    def pairs(self, train: Gradients, test: Gradients) -> torch.Tensor:
        n, m = _samples(train), _samples(test)
        out = self._like.new_zeros(n, m)
        if train.dense is not None and test.dense is not None:
            out.addmm_(train.dense, test.dense.t())
        for name, (ids, values) in train.rows.items():
            add_equal(out, ids, values, *test.rows[name])
        return out

    def rowwise_products(self, some: Gradients, others: Gradients) -> torch.Tensor:
        out = self._like.new_zeros(_samples(some))
        if some.dense is not None and others.dense is not None:
            out += (some.dense * others.dense).sum(1)
        for name, (ids, values) in some.rows.items():
            out += products_where_equal(ids, values, *others.rows[name])
        return out

    def _width(self, name: str) -> int:
        return self._parameters[name].shape[1] * (2 if name in self._entity_tables else 1)

    def _local(self, rows: torch.Tensor) -> tuple[torch.Tensor, Parameters]:
        """Each sample's local ids, and its small matrices: (samples, 2, width) of entities, (samples, 1, width) of
        relations. Matrices that are read as a whole keep their ids."""
        ids, tables = rows.clone(), {}
        if self._entity_tables:
            ids[:, 0], ids[:, 2] = 0, 1
            tables = {name: self._parameters[name][rows[:, [0, 2]]] for name in self._entity_tables}
        if self._relation_tables:
            ids[:, 1] = 0
            tables |= {name: self._parameters[name][rows[:, 1:2]] for name in self._relation_tables}
        return ids, tables

    def _loss(self, ids: torch.Tensor, parameters: Parameters, labels: torch.Tensor | None) -> torch.Tensor:
        named = {f"model.{name}": p for name, p in parameters.items()}
        _forget(self._function)
        scores = functional_call(self._function, named, (ids, self._all_tails))
        _forget(self._function)
        return losses_of(self.loss, scores, labels).sum()

    def _one_pass(self, ids: torch.Tensor, tables: Parameters, labels: torch.Tensor | None) -> Parameters:
        """One backward pass for all samples: they share no differentiated tensor."""
        n = torch.arange(len(ids), device=ids.device)[:, None]
        ids = ids.clone()
        if self._entity_tables:
            ids[:, [0, 2]] += 2 * n
        if self._relation_tables:
            ids[:, 1:2] += n
        wanted = [name for name in tables if name in self.names]
        leaves = {name: t.flatten(0, 1).requires_grad_(name in wanted) for name, t in tables.items()}
        with torch.enable_grad():
            value = self._loss(ids, {**self._parameters, **leaves}, labels)
            grads = torch.autograd.grad(value, [leaves[name] for name in wanted])
        return {name: g.view(tables[name].shape) for name, g in zip(wanted, grads, strict=True)}

    def _each(self, ids: torch.Tensor, tables: Parameters, labels: torch.Tensor | None) -> Parameters:
        """Each sample's gradient of all chosen parameters, by vmap where the model's operations allow it."""
        shared = {name: self._parameters[name] for name in self._dense}
        own = {name: t for name, t in tables.items() if name in self.names}
        fixed = {name: t for name, t in tables.items() if name not in self.names}

        def value(chosen: Parameters, fixed: Parameters, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            row_labels = y[None] if self._all_tails else None
            return self._loss(i[None], {**self._parameters, **fixed, **chosen}, row_labels)

        y = ids if labels is None else labels
        if self._vectorised:
            dims = (dict.fromkeys(shared) | dict.fromkeys(own, 0), dict.fromkeys(fixed, 0), 0, 0)
            try:
                gradients: Parameters = vmap(grad(value), in_dims=_known(dims))(
                    {**shared, **own}, fixed, ids, y
                )
                return gradients
            except (RuntimeError, ValueError) as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                self._vectorised = False  # an operation without a vmap rule: sample by sample from now on
        return _one_after_another(value, shared, own, fixed, ids, y)


def _one_after_another(
    value: Callable[..., torch.Tensor],
    shared: Parameters,
    own: Parameters,
    fixed: Parameters,
    ids: torch.Tensor,
    y: torch.Tensor,
) -> Parameters:
    gradients: list[Parameters] = []
    for n in range(len(ids)):
        leaves = {**shared, **{name: t[n] for name, t in own.items()}}
        leaves = {name: t.detach().clone().requires_grad_() for name, t in leaves.items()}
        with torch.enable_grad():
            loss = value(leaves, {name: t[n] for name, t in fixed.items()}, ids[n], y[n])
            grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        pairs = zip(leaves.items(), grads, strict=True)
        gradients.append({name: torch.zeros_like(t) if g is None else g for (name, t), g in pairs})
    return {name: torch.stack([one[name] for one in gradients]) for name in gradients[0]}


def _forget(module: nn.Module) -> None:
    """Clears what PyKEEN's graph models cache until the next training step: it was computed from other parameters."""
    for part in module.modules():
        for cache in ("enriched_representations", "enriched_embeddings"):
            if getattr(part, cache, None) is not None:
                setattr(part, cache, None)


def _known(dims: tuple[Any, ...]) -> tuple[Any, ...]:
    """vmap refuses dims for an empty dict."""
    return tuple(None if dim == {} else dim for dim in dims)


def _samples(block: Gradients) -> int:
    if block.dense is not None:
        return len(block.dense)
    ids, _ = next(iter(block.rows.values()))
    return ids.shape[1]


def is_plain(representation: Any) -> bool:
    """Whether the representation of entity or relation i is row i of one matrix."""
    return type(representation) is Embedding


def _tables(model: Any, kind: str) -> list[str]:
    """The embedding matrices of a kind of representation; empty if one is not a plain, unshared matrix."""
    names = {name for name, _ in model.named_parameters()}
    tables = []
    for number, representation in enumerate(getattr(model, kind)):
        name = f"{kind}.{number}._embeddings.weight"
        if not is_plain(representation) or name not in names:
            return []
        tables.append(name)
    return tables
