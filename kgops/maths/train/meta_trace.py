"""Predicts the peak memory of any work, such as a training step, by running it on the `meta` device.

It follows every storage from allocation to release, for models without a memory formula and to check formulas.
It does not see the following, and may then be too low:

- Temporaries within kernels: products of non-contiguous tensors, sorting, convolutions in 16 bits, workspaces. It
  counts temporaries only for the operators in `_INSIDE` and `_PRIVATE`, which are measured on a CPU.
- Operators that depend on values. `nonzero`, boolean masks, `unique`, `.item()` raise on `meta`.
- Fused and foreach optimizers. `meta` lacks them, or they allocate other temporaries than the plain loop.
- Rounding, segments and context of a GPU's allocator. It counts live bytes, not reserved ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kgops.maths.train.convolution_memory import inside_backward, inside_forward

_aten: Any = torch.ops.aten


class Traced(NamedTuple):
    """Peak of live bytes, and the operator that reached it.

    `private` of them are a library's temporaries in that operator, at most; some CPUs need less.
    """

    peak: int
    operator: str
    private: int = 0


def trace_peak(work: Callable[[], object]) -> Traced:
    """Peak of the tensors that `work` allocates, on any device; earlier tensors do not count."""
    life = _Life()
    with life:
        work()
    life.settle()
    return Traced(life.peak, life.operator, life.private)


class _Life(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks every storage that an operator returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak, self.operator, self.private = 0, "", 0
        self._live = 0
        self._alive: dict[int, int] = {}
        self._added: tuple[int, int, str] | None = None  # an accumulated gradient, as below

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.settle()
        out = func(*args, **(kwargs or {}))
        before = self._live
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._follow(tensor)
        if self._live > before and _adds_gradients(func, args):
            self._added = args[0].untyped_storage()._cdata, self._live, str(func)
            return out
        inside, private = (
            0 if table.get(func) is None else table[func](*args, **(kwargs or {}))
            for table in (_INSIDE, _PRIVATE)
        )
        self._note(self._live + inside + private, func, private)
        return out

    def settle(self) -> None:
        """Autograd accumulates gradients in place, but not under a dispatch mode: there it allocates a third tensor
        and frees the first. The third counts only where the first one was kept."""
        if self._added is not None:
            first, live, name = self._added
            self._added = None
            if first in self._alive:
                self._note(live, name)

    def _follow(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if size and key not in self._alive:
            self._alive[key] = size
            self._live += size
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self._live -= self._alive.pop(key, 0)

    def _note(self, live: int, operator: Any, private: int = 0) -> None:
        if live > self.peak:
            self.peak, self.operator, self.private = live, str(operator), private


def _adds_gradients(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this is an accumulation in the backward pass: two tensors of equal shape, with grad mode off."""
    if func is not _aten.add.Tensor or torch.is_grad_enabled() or torch._C._current_graph_task_id() == -1:
        return False
    first, second = args[:2]
    return (
        isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor) and first.shape == second.shape
    )


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _unreduced(scores: torch.Tensor, *rest: Any, **more: Any) -> int:
    return _bytes(scores)


def _twice_unreduced(scores: torch.Tensor, *rest: Any, **more: Any) -> int:
    return 2 * _bytes(scores)


def _copied(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_contiguous() else _bytes(tensor)


def _logits(scores: torch.Tensor, *rest: Any, **more: Any) -> int:
    return 2 * _bytes(scores) + _copied(scores)  # log-sigmoid has a buffer and needs contiguous input


def _in_one_piece(scores: torch.Tensor, *rest: Any, **more: Any) -> int:
    return _copied(scores)


def _conjugated(*factors: torch.Tensor, **more: Any) -> int:
    """Products copy conjugated operands, except transposed matrices."""
    return sum(
        _bytes(factor)
        for factor in factors
        if factor.is_conj() and (factor.dim() > 2 or factor.stride(0) != 1)
    )


def _promoted(*both: Any, **more: Any) -> int:
    """Operands of another dtype than the result are converted first, except scalars."""
    tensors = [one for one in both if isinstance(one, torch.Tensor)]
    if len(tensors) < 2 or tensors[0].dtype == tensors[1].dtype:
        return 0
    common = torch.result_type(*tensors)
    return sum(one.numel() * common.itemsize for one in tensors if one.dim() and one.dtype != common)


def _converted(summed: torch.Tensor, *rest: Any, dtype: torch.dtype | None = None, **more: Any) -> int:
    return 0 if dtype in (None, summed.dtype) else summed.numel() * dtype.itemsize


# Temporaries of operators, measured on a CPU: they call other operators that are not dispatched.
_INSIDE: dict[Any, Callable[..., int]] = {
    _aten.binary_cross_entropy_with_logits.default: _logits,
    _aten.binary_cross_entropy.default: _unreduced,
    _aten.add.Tensor: _promoted,
    _aten.sub.Tensor: _promoted,
    _aten.mul.Tensor: _promoted,
    _aten.div.Tensor: _promoted,
    _aten.log_sigmoid_forward.default: _in_one_piece,
    _aten.mm.default: _conjugated,
    _aten.bmm.default: _conjugated,
    _aten.mse_loss.default: _twice_unreduced,
    _aten.smooth_l1_loss.default: _twice_unreduced,
    _aten.sum.default: _converted,
    _aten.sum.dim_IntList: _converted,
    _aten.native_batch_norm_backward.default: _unreduced,  # its result is allocated twice
}
# Upper bound of a library's temporaries on any CPU.
_PRIVATE: dict[Any, Callable[..., int]] = {
    _aten.convolution.default: inside_forward,
    _aten.convolution_backward.default: inside_backward,
}
