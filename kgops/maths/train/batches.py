"""Training batches from index tensors on the device, without a label matrix, collating or a copy per batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from kgops.maths.train.losses import Positives


@dataclass(frozen=True)
class Batch:
    """Queries (head, relation row) and the true entities of each."""

    heads: torch.Tensor
    relations: torch.Tensor
    positives: Positives

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


class Batches:
    """An epoch's batches in an order that depends only on seed and epoch, so that any can be resumed.

    `one_positive` gives a query for every triple (1vsAll). Otherwise every distinct (head, relation) is one query with
    all of its tails (KvsAll). If it has more than `largest_group` tails, it is several queries of nearly equal size.
    """

    def __init__(
        self,
        triples: torch.Tensor,
        *,
        inverse: bool,
        one_positive: bool,
        largest_group: int | None = None,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.batch_size, self.seed, self.device = batch_size, seed, torch.device(device)
        rows = query_rows(triples, inverse)
        if inverse:
            rows = torch.cat([rows, inverse_triples(triples)])
        rows = rows[lexicographic(rows)]
        if not one_positive:
            repeats = torch.zeros(len(rows), dtype=torch.bool)
            repeats[1:] = (rows[1:] == rows[:-1]).all(dim=1)
            rows = rows[~repeats]  # a label is true once, however often a file repeats it
        new = torch.ones(len(rows), dtype=torch.bool)
        if not one_positive:
            new[1:] = (rows[1:, :2] != rows[:-1, :2]).any(dim=1)
        first = new.nonzero()[:, 0]
        if largest_group is not None:
            first = _divided(first, len(rows), largest_group)
        self._counts = torch.diff(first, append=torch.tensor([len(rows)]))
        self._queries = rows[first, :2].t().contiguous().to(self.device)
        self._first = first.to(self.device)
        self._tails = rows[:, 2].contiguous().to(self.device)

    @property
    def num_queries(self) -> int:
        return len(self._first)

    @property
    def positives_a_query(self) -> float:
        return len(self._tails) / max(self.num_queries, 1)

    @property
    def usual_size(self) -> int:
        """Rows of every batch but the last."""
        return self._bounds()[1]

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._bounds()) - 1

    def _bounds(self) -> list[int]:
        bounds = [*range(0, self.num_queries, self.batch_size), self.num_queries]
        # Batch norm cannot train on a batch of one, so a single last query joins the batch before it.
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
        spans = list(pairwise(self._bounds()))
        # Computed on the host for the whole epoch, so that no batch has to wait for a size from the device.
        positives = _sums(counts, spans)
        order, counts = order.to(self.device), counts.to(self.device)
        for (start, stop), many in list(zip(spans, positives, strict=True))[skip:]:
            yield self._batch(order[start:stop], counts[start:stop], many)

    def _batch(self, chosen: torch.Tensor, counts: torch.Tensor, positives: int) -> Batch:
        heads, relations = self._queries[:, chosen]
        rows = torch.repeat_interleave(counts, output_size=positives)
        before = counts.cumsum(0) - counts
        indices = torch.arange(positives, device=self.device) + (self._first[chosen] - before)[rows]
        return Batch(heads, relations, Positives(rows, self._tails[indices]))


def _divided(first: torch.Tensor, rows: int, largest: int) -> torch.Tensor:
    """First rows of the groups after each of more than `largest` rows was divided evenly."""
    sizes = torch.diff(first, append=torch.tensor([rows]))
    parts = (sizes + largest - 1) // largest
    number = torch.arange(int(parts.sum())) - (parts.cumsum(0) - parts).repeat_interleave(parts)
    return first.repeat_interleave(parts) + number * sizes.repeat_interleave(
        parts
    ) // parts.repeat_interleave(parts)


def _sums(counts: torch.Tensor, spans: list[tuple[int, int]]) -> list[int]:
    """Sums of `counts` from each start to its stop."""
    before = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    ends = torch.tensor(spans, dtype=torch.long).view(-1, 2)
    sums: list[int] = before[ends].diff(dim=1)[:, 0].tolist()
    return sums


def lexicographic(rows: torch.Tensor) -> torch.Tensor:
    """The order of triples by head, relation and tail."""
    order = rows[:, 2].argsort(stable=True)
    for column in (1, 0):
        order = order[rows[order, column].argsort(stable=True)]
    return order
