"""The processes that train one model together, each with a part of every batch; or one that trains alone.

All of them have all weights and take the same steps: gradients are summed before each, batch norms see all
rows, and every process draws the dropout of the whole batch and keeps its own rows. So the numbers are those
of one process up to the rounding of sums, and random states are the same everywhere: a training can go on with
another number of processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from kgops.errors import KgopsError
from kgops.models.conve import ConvE
from kgops.models.encoder import grad_of
from kgops.models.whole_batch import WholeBatch
from kgops.training.batches import Batch, Part, own_rows
from kgops.training.evaluate import Evaluation, Evaluator
from kgops.training.rendezvous import under_a_new_word
from kgops.training.shared_norm import shared_norm

__all__ = ["Alone", "PeerLost", "Processes"]

_SMALL = 1 << 16  # numbers; what is smaller is summed in one go
# A lost process breaks its connections at once; this is for one that only takes long, as with a validation.
_PATIENCE = timedelta(days=7)
_WHOLE_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class PeerLost(KgopsError):
    """Another process of this training has ended in the middle; who started them all knows why."""


class Alone(WholeBatch):
    """One process with every batch to itself: nothing to add, nobody to ask."""

    which, of = 0, 1

    @property
    def is_first(self) -> bool:
        """The one that writes and speaks for all."""
        return self.which == 0

    def begin(self, batch: Batch) -> None:
        """What follows is about this batch."""

    @property
    def weight(self) -> float:
        """This process's part of the batch."""
        return 1.0

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Of the whole batch, from that of the rows here."""
        return value

    def sum_gradients(self, gradients: Iterable[torch.Tensor], model: nn.Module) -> None:
        """Over all parts of the batch."""

    def any(self, wish: bool) -> bool:
        """Whether any process has this wish; all hear the same answer."""
        return wish

    def check_same(self, model: nn.Module, when: str) -> None:
        """Raises unless all processes have come here, with the same weights."""

    def evaluate(
        self,
        evaluator: Evaluator,
        model: ConvE,
        triples: torch.Tensor,
        stop_requested: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Evaluation | None:
        """Of all triples; None if any process was asked to stop meanwhile."""
        return evaluator(model, triples, stop_requested=stop_requested, progress=progress)


class Processes(Alone):
    """This process among `of`: gloo on CPUs, NCCL on GPUs.

    They meet at an address as torch has it: of a file that all of them can reach, or `env://`.
    """

    def __init__(self, which: int, of: int, meeting: str, device: torch.device) -> None:
        import torch.distributed  # nobody who trains alone pays for it

        dist: Any = torch.distributed
        if device.type == "cuda":
            torch.cuda.set_device(device)
        self.which, self.of, self._dist, self._device = which, of, dist, device
        self._part: Part | None = None
        place = next(dist.rendezvous(meeting, which, of, timeout=_PATIENCE))[0]
        word = under_a_new_word(place, which, of, patience_s=_PATIENCE.total_seconds())
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=dist.PrefixStore(word, place),
            rank=which,
            world_size=of,
            timeout=_PATIENCE,
        )

    def leave(self) -> None:
        """Once all have come here: whoever closes its connections earlier takes away what others have yet to read."""
        with contextlib.suppress(PeerLost):  # it has ended with nothing left to say to us
            self.any(False)
        self._dist.destroy_process_group()

    def begin(self, batch: Batch) -> None:
        self._part, self._weight = batch.part, 1.0 if batch.part is None else len(batch) / batch.part.of

    @property
    def weight(self) -> float:
        return self._weight

    def count(self, here: int) -> int:
        return here if self._part is None else self._part.of

    def total(self, here: torch.Tensor) -> torch.Tensor:
        return here if self._part is None else self._reduced(here, self._dist.ReduceOp.SUM)

    def largest(self, here: torch.Tensor) -> torch.Tensor:
        return here if self._part is None else self._reduced(here, self._dist.ReduceOp.MAX)

    def drawn(self, draw: Callable[[int], torch.Tensor], here: int) -> torch.Tensor:
        if self._part is None:
            return draw(here)
        return draw(self._part.of)[self._part.first : self._part.first + here]

    def dropout(self, x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
        if self._part is None or not (training and p):
            return F.dropout(x, p, training)
        return x * self.drawn(lambda rows: F.dropout(x.new_ones(rows, *x.shape[1:]), p), len(x))

    def norm(self, module: nn.BatchNorm1d | nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
        return super().norm(module, x) if self._part is None else shared_norm(self, module, x)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        return self._of_first(value) if self._part is None else self.total(value * self._weight)

    def sum_gradients(self, gradients: Iterable[torch.Tensor], model: nn.Module) -> None:
        if self._part is None:
            # Fewer rows than processes: each has done all of them, and what the first has found counts.
            for tensor in (*(grad_of(p) for p in model.parameters()), *model.buffers()):
                self._of_first(tensor)
            return
        small = []
        for gradient in gradients:
            if gradient.numel() < _SMALL:
                small.append(gradient)
            else:
                self.total(gradient)
        flat = self.total(torch.cat([gradient.flatten() for gradient in small]))
        pieces = torch.split(flat, [gradient.numel() for gradient in small])
        for gradient, summed in zip(small, pieces, strict=True):
            gradient.copy_(summed.view_as(gradient))

    def any(self, wish: bool) -> bool:
        return bool(self._reduced(torch.tensor(int(wish)), self._dist.ReduceOp.MAX))

    def check_same(self, model: nn.Module, when: str) -> None:
        own = torch.stack([_fingerprint(tensor) for tensor in model.state_dict().values()]).cpu()
        both = self._reduced(torch.stack([own, -own]), self._dist.ReduceOp.MAX)
        if not torch.equal(both[0], -both[1]):
            raise KgopsError(
                f"the {self.of} processes of this training have different weights {when}.",
                hint="train with --devices 1; resumed, the run goes on from its last checkpoint.",
            )

    def evaluate(
        self,
        evaluator: Evaluator,
        model: ConvE,
        triples: torch.Tensor,
        stop_requested: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Evaluation | None:
        first, stop = own_rows(len(triples), self.which, self.of)
        found = super().evaluate(evaluator, model, triples[first:stop], stop_requested, progress)
        if self.any(found is None) or found is None:
            return None
        if stop - first == len(triples):
            return found
        ranks = torch.zeros(2, len(triples), dtype=torch.float64)
        ranks[:, first:stop] = torch.stack([found.head_ranks, found.tail_ranks])
        heads, tails = self._reduced(ranks, self._dist.ReduceOp.SUM)
        return Evaluation(heads, tails)

    def _reduced(self, tensor: torch.Tensor, how: Any) -> torch.Tensor:
        try:
            self._dist.all_reduce(tensor, how)
        except RuntimeError as error:
            raise PeerLost(f"process {self.which} of {self.of} waits for one that is gone.") from error
        return tensor

    def _of_first(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            self._dist.broadcast(tensor, 0)
        except RuntimeError as error:
            raise PeerLost(f"process {self.which} of {self.of} waits for one that is gone.") from error
        return tensor


def _fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """Of its bits: sums of whole numbers do not depend on their order."""
    return tensor.detach().contiguous().view(_WHOLE_NUMBERS[tensor.element_size()]).sum(dtype=torch.int64)
