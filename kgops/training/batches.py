"""Training data as index tensors on the device: no label matrix, no collating, no copies a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from kgops.errors import Usage
from kgops.training.losses import Positives

__all__ = ["Batch", "Batches", "Part", "inverse_triples", "own_rows", "query_rows"]


@dataclass(frozen=True)
class Part:
    """Rows from `first` on, of a batch of `of` rows."""

    first: int
    of: int


@dataclass(frozen=True)
class Batch:
    """Queries (head, relation row) and the entities that are true for each; `part` of a larger batch, or all of one."""

    heads: torch.Tensor
    relations: torch.Tensor
    positives: Positives
    part: Part | None = None

    def __len__(self) -> int:
        return len(self.heads)


def query_rows(triples: torch.Tensor, inverse: bool) -> torch.Tensor:
    """Triples with relation ids as the model numbers them: 2r when inverses stand between them."""
    if not inverse:
        return triples
    return torch.stack([triples[:, 0], 2 * triples[:, 1], triples[:, 2]], dim=1)


def inverse_triples(triples: torch.Tensor) -> torch.Tensor:
    """(tail, 2r + 1, head) for each triple."""
    return torch.stack([triples[:, 2], 2 * triples[:, 1] + 1, triples[:, 0]], dim=1)


def own_rows(rows: int, which: int, of: int) -> tuple[int, int]:
    """The `which`th of `of` nearly equal parts; all rows where there are fewer of them than parts."""
    if rows < of:
        return 0, rows
    return rows * which // of, rows * (which + 1) // of


class Batches:
    """An epoch's batches in an order that depends on seed and epoch alone, so that any can be resumed.

    `one_positive` gives a query for every triple (1vsAll); otherwise every distinct (head, relation)
    is one query with all of its tails (KvsAll). With `share` (which, of) each batch is a part of those that
    one process alone would have.
    """

    def __init__(
        self,
        triples: torch.Tensor,
        *,
        inverse: bool,
        one_positive: bool,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        share: tuple[int, int] = (0, 1),
    ) -> None:
        if batch_size < 1:
            raise Usage(f"batch_size is {batch_size}; it must be at least 1.")
        self.batch_size, self.seed, self.device = batch_size, seed, torch.device(device)
        self.share = share
        rows = query_rows(triples, inverse)
        if inverse:
            rows = torch.cat([rows, inverse_triples(triples)])
        rows = rows[_lexicographic(rows)]
        if not one_positive:
            repeats = torch.zeros(len(rows), dtype=torch.bool)
            repeats[1:] = (rows[1:] == rows[:-1]).all(dim=1)
            rows = rows[~repeats]  # a label is true once, however often a file says so
        new = torch.ones(len(rows), dtype=torch.bool)
        if not one_positive:
            new[1:] = (rows[1:, :2] != rows[:-1, :2]).any(dim=1)
        first = new.nonzero()[:, 0]
        self._counts = torch.diff(first, append=torch.tensor([len(rows)]))
        self._queries = rows[first, :2].t().contiguous().to(self.device)
        self._first = first.to(self.device)
        self._tails = rows[:, 2].contiguous().to(self.device)

    @property
    def num_queries(self) -> int:
        return len(self._first)

    @property
    def usual_size(self) -> int:
        """Of all batches but the last, as far as they are this process's."""
        first, stop = own_rows(self._bounds()[1], *self.share)
        return stop - first

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._bounds()) - 1

    def _bounds(self) -> list[int]:
        bounds = [*range(0, self.num_queries, self.batch_size), self.num_queries]
        # Batch norm cannot train on a batch of one, so a last query alone joins the batch before it.
        if len(bounds) > 2 and bounds[-1] - bounds[-2] == 1:
            del bounds[-2]
        return bounds

    def order(self, epoch: int) -> torch.Tensor:
        """The queries in the order of this epoch, on the CPU: the same on every device."""
        digest = hashlib.sha256(f"kgops data order {self.seed} {epoch}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
        return torch.randperm(self.num_queries, generator=generator)

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of this epoch, without the first `skip`."""
        order = self.order(epoch)
        counts = self._counts[order]
        bounds = self._bounds()
        spans = [_own(start, stop, self.share) for start, stop in pairwise(bounds)]
        # Known on the host for the whole epoch, so that no batch has to ask the device for a size.
        positives = _sums(counts, [(start, stop) for start, stop, _ in spans])
        order, counts = order.to(self.device), counts.to(self.device)
        for (start, stop, part), many in list(zip(spans, positives, strict=True))[skip:]:
            yield self._batch(order[start:stop], counts[start:stop], many, part)

    def _batch(self, chosen: torch.Tensor, counts: torch.Tensor, positives: int, part: Part | None) -> Batch:
        heads, relations = self._queries[:, chosen]
        rows = torch.repeat_interleave(counts, output_size=positives)
        before = counts.cumsum(0) - counts
        place = torch.arange(positives, device=self.device) + (self._first[chosen] - before)[rows]
        return Batch(heads, relations, Positives(rows, self._tails[place]), part)


def _sums(counts: torch.Tensor, spans: list[tuple[int, int]]) -> list[int]:
    """Of `counts` from each start to its stop."""
    before = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    ends = torch.tensor(spans, dtype=torch.long).view(-1, 2)
    sums: list[int] = before[ends].diff(dim=1)[:, 0].tolist()
    return sums


def _own(start: int, stop: int, share: tuple[int, int]) -> tuple[int, int, Part | None]:
    first, last = own_rows(stop - start, *share)
    part = None if last - first == stop - start else Part(first, stop - start)
    return start + first, start + last, part


def _lexicographic(rows: torch.Tensor) -> torch.Tensor:
    order = rows[:, 2].argsort(stable=True)
    for column in (1, 0):
        order = order[rows[order, column].argsort(stable=True)]
    return order
