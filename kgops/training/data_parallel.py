"""Training in several processes: rank assignment, rendezvous, sums of gradients, batch norm over all ranks' rows."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F

from kgops.errors import KgopsError
from kgops.models.conve import ConvE, WholeBatch
from kgops.models.encoder import grad_of
from kgops.training.batches import Batch, RankRows, rows_of_rank
from kgops.training.evaluate import Evaluation, Evaluator

__all__ = ["DistributedGroup", "PeerLost", "SingleProcess", "Store", "agree_on_prefix"]

_LOOK_S = 0.02


class Store(Protocol):
    """The methods used of torch's stores."""

    def set(self, key: str, value: str, /) -> None: ...

    def get(self, key: str, /) -> bytes:
        """Waits until the key is set."""
        ...

    def check(self, keys: Sequence[str], /) -> bool: ...


def agree_on_prefix(store: Store, rank: int, world_size: int, *, patience_s: float) -> str:
    """A key prefix that all `world_size` current ranks agree on and that no earlier rank knew."""
    token = uuid.uuid4().hex
    if rank > 0:
        store.set(f"here/{rank}", token)
        prefix = store.get(f"answer/{token}").decode()  # waits for it
        store.set(f"heard/{prefix}/{rank}", "")
        return prefix
    deadline = time.monotonic() + patience_s
    answered = set()
    while missing := [peer for peer in range(1, world_size) if not store.check([f"heard/{token}/{peer}"])]:
        for (
            peer
        ) in missing:  # an announcement may be of a rank that has ended; its successor announces itself anew
            if not store.check([f"here/{peer}"]):
                continue
            greeting = store.get(f"here/{peer}").decode()
            if greeting not in answered:
                store.set(f"answer/{greeting}", token)
                answered.add(greeting)
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank {missing[0]} of {world_size} has not joined")
        time.sleep(_LOOK_S)
    return token


_SMALL = 1 << 16  # elements; smaller gradients are summed in one all-reduce
# A rank that dies breaks its connections at once; this limit is for slow ranks, such as during a validation.
_PATIENCE = timedelta(days=7)
_INT_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class PeerLost(KgopsError):
    """Another rank has ended during training; the process that started the ranks reports why."""


class SingleProcess(WholeBatch):
    """Training in a single process: no communication."""

    rank, world_size = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and reports."""
        return self.rank == 0

    def begin(self, batch: Batch) -> None:
        """Sets the batch that the following calls refer to."""

    @property
    def weight(self) -> float:
        """This rank's rows over all rows of the batch."""
        return 1.0

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Mean over the whole batch, from the mean of this rank's rows."""
        return value

    def sum_gradients(self, gradients: Iterable[torch.Tensor], model: nn.Module) -> None:
        """Sums gradients over all ranks."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; all ranks get the same answer."""
        return flag

    def check_same(self, model: nn.Module, when: str) -> None:
        """Waits for all ranks; raises if their weights differ."""

    def evaluate(
        self,
        evaluator: Evaluator,
        model: ConvE,
        triples: torch.Tensor,
        stop_requested: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Evaluation | None:
        """Evaluates all triples; None if a stop was requested on any rank."""
        return evaluator(model, triples, stop_requested=stop_requested, progress=progress)


class DistributedGroup(SingleProcess):
    """One rank of `world_size`, over gloo on CPUs and NCCL on GPUs.

    `rendezvous` is an init method of torch: a file that all ranks can reach, or `env://`.
    """

    def __init__(self, rank: int, world_size: int, rendezvous: str, device: torch.device) -> None:
        import torch.distributed  # slow to import, and not needed by a single process

        dist: Any = torch.distributed
        if device.type == "cuda":
            torch.cuda.set_device(device)
        self.rank, self.world_size, self._dist, self._device = rank, world_size, dist, device
        self._rank_rows: RankRows | None = None
        store = next(dist.rendezvous(rendezvous, rank, world_size, timeout=_PATIENCE))[0]
        prefix = agree_on_prefix(store, rank, world_size, patience_s=_PATIENCE.total_seconds())
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=dist.PrefixStore(prefix, store),
            rank=rank,
            world_size=world_size,
            timeout=_PATIENCE,
        )

    def leave(self) -> None:
        """Waits for all ranks, then closes: closing earlier would lose data that other ranks have yet to read."""
        with contextlib.suppress(PeerLost):  # that rank has finished and has nothing left to send
            self.any(False)
        self._dist.destroy_process_group()

    def begin(self, batch: Batch) -> None:
        self._rank_rows, self._weight = (
            batch.rank_rows,
            1.0 if batch.rank_rows is None else len(batch) / batch.rank_rows.batch_size,
        )

    @property
    def weight(self) -> float:
        return self._weight

    def count(self, local: int) -> int:
        return local if self._rank_rows is None else self._rank_rows.batch_size

    def total(self, local: torch.Tensor) -> torch.Tensor:
        return local if self._rank_rows is None else self._all_reduced(local, self._dist.ReduceOp.SUM)

    def largest(self, local: torch.Tensor) -> torch.Tensor:
        return local if self._rank_rows is None else self._all_reduced(local, self._dist.ReduceOp.MAX)

    def draw_rows(self, draw: Callable[[int], torch.Tensor], local: int) -> torch.Tensor:
        if self._rank_rows is None:
            return draw(local)
        return draw(self._rank_rows.batch_size)[self._rank_rows.first : self._rank_rows.first + local]

    def dropout(self, x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
        if self._rank_rows is None or not (training and p):
            return F.dropout(x, p, training)
        return x * self.draw_rows(lambda rows: F.dropout(x.new_ones(rows, *x.shape[1:]), p), len(x))

    def norm(self, module: nn.BatchNorm1d | nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
        return super().norm(module, x) if self._rank_rows is None else _shared_norm(self, module, x)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        return self._from_rank_0(value) if self._rank_rows is None else self.total(value * self._weight)

    def sum_gradients(self, gradients: Iterable[torch.Tensor], model: nn.Module) -> None:
        if self._rank_rows is None:
            # Fewer rows than ranks: each rank has computed all rows, and rank 0's result counts.
            for tensor in (*(grad_of(p) for p in model.parameters()), *model.buffers()):
                self._from_rank_0(tensor)
            return
        small = []
        for gradient in gradients:
            if gradient.numel() < _SMALL:
                small.append(gradient)
            else:
                self.total(gradient)
        flat = self.total(torch.cat([gradient.flatten() for gradient in small]))
        sums = torch.split(flat, [gradient.numel() for gradient in small])
        for gradient, summed in zip(small, sums, strict=True):
            gradient.copy_(summed.view_as(gradient))

    def any(self, flag: bool) -> bool:
        return bool(self._all_reduced(torch.tensor(int(flag)), self._dist.ReduceOp.MAX))

    def check_same(self, model: nn.Module, when: str) -> None:
        fingerprints = torch.stack([_fingerprint(tensor) for tensor in model.state_dict().values()]).cpu()
        extremes = self._all_reduced(torch.stack([fingerprints, -fingerprints]), self._dist.ReduceOp.MAX)
        if not torch.equal(extremes[0], -extremes[1]):
            raise KgopsError(
                f"the {self.world_size} processes of this training have different weights {when}.",
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
        first, stop = rows_of_rank(len(triples), self.rank, self.world_size)
        evaluation = super().evaluate(evaluator, model, triples[first:stop], stop_requested, progress)
        if self.any(evaluation is None) or evaluation is None:
            return None
        if stop - first == len(triples):
            return evaluation
        ranks = torch.zeros(2, len(triples), dtype=torch.float64)
        ranks[:, first:stop] = torch.stack([evaluation.head_ranks, evaluation.tail_ranks])
        heads, tails = self._all_reduced(ranks, self._dist.ReduceOp.SUM)
        return Evaluation(heads, tails)

    def _all_reduced(self, tensor: torch.Tensor, how: Any) -> torch.Tensor:
        try:
            self._dist.all_reduce(tensor, how)
        except RuntimeError as error:
            raise PeerLost(
                f"rank {self.rank} of {self.world_size} lost its connection to another rank."
            ) from error
        return tensor

    def _from_rank_0(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            self._dist.broadcast(tensor, 0)
        except RuntimeError as error:
            raise PeerLost(
                f"rank {self.rank} of {self.world_size} lost its connection to another rank."
            ) from error
        return tensor


def _fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """Sum of its bits as integers, which does not depend on the order of summation."""
    return tensor.detach().contiguous().view(_INT_OF_SIZE[tensor.element_size()]).sum(dtype=torch.int64)


def _shared_norm(whole: WholeBatch, module: nn.BatchNorm1d | nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    """Training-mode output of `module` for this rank's rows, with statistics over all ranks."""
    count = whole.count(len(x)) * (x.numel() // (len(x) * x.shape[1]))
    sums = whole.total(torch.stack([x.detach().sum(_all_but_channels(x), dtype=torch.float64), _squares(x)]))
    mean = sums[0] / count
    variance = (sums[1] / count - mean**2).clamp_min(0)
    _update_running(module, mean, variance * (count / max(count - 1, 1)))
    normed: torch.Tensor = _Norm.apply(  # type: ignore[no-untyped-call]
        x, module.weight, module.bias, mean, torch.rsqrt(variance + module.eps), count, whole
    )
    return normed


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        gain: torch.Tensor,
        shift: torch.Tensor,
        mean: torch.Tensor,
        inverse: torch.Tensor,
        count: int,
        whole: WholeBatch,
    ) -> torch.Tensor:
        shape = _per_channel(x)
        centred = (x - mean.to(x).view(shape)) * inverse.to(x).view(shape)
        ctx.save_for_backward(centred, gain, inverse)
        ctx.count, ctx.whole = count, whole
        return centred * gain.view(shape) + shift.view(shape)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        """Parameter gradients are of this rank's rows only; they are summed with all other gradients."""
        centred, gain, inverse = ctx.saved_tensors
        shape, others = _per_channel(grad), _all_but_channels(grad)
        own = torch.stack([grad.sum(others), (grad * centred).sum(others)])
        mean = ctx.whole.total(own.to(torch.float64, copy=True)).to(grad) / ctx.count
        through = grad - mean[0].view(shape) - centred * mean[1].view(shape)
        d_x = through * (gain * inverse.to(gain)).view(shape)
        return d_x, own[1], own[0], None, None, None, None


def _update_running(
    module: nn.BatchNorm1d | nn.BatchNorm2d, mean: torch.Tensor, unbiased_variance: torch.Tensor
) -> None:
    assert module.running_mean is not None and module.running_var is not None
    assert module.momentum is not None and module.num_batches_tracked is not None
    module.running_mean.lerp_(mean.to(module.running_mean), module.momentum)
    module.running_var.lerp_(unbiased_variance.to(module.running_var), module.momentum)
    module.num_batches_tracked.add_(1)


def _squares(x: torch.Tensor) -> torch.Tensor:
    return x.detach().double().square().sum(_all_but_channels(x))


def _all_but_channels(x: torch.Tensor) -> list[int]:
    """All dimensions except the channels."""
    return [dim for dim in range(x.dim()) if dim != 1]


def _per_channel(x: torch.Tensor) -> list[int]:
    return [1, -1] + [1] * (x.dim() - 2)
