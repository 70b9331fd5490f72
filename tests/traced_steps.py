"""Training steps on `meta`, traced: a second judge of memory estimates, with autocast as on a GPU.

Casts within C++ are not seen: they are made where Python calls an operator, by the lists below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from kgops.maths.train.meta_trace import Traced, trace_peak


def trace_step(
    make: Callable[[], nn.Module],
    loss_of: Callable[[nn.Module], torch.Tensor],
    *,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None,
    autocast: torch.dtype | None = None,
    steps: int = 2,
) -> Traced:
    """Peaks of two training steps of `make`'s module: `loss_of` it, backward and update; the second step starts with
    the first one's gradients and moments. Both run on `meta` by default; `autocast` is that of a GPU."""

    def work() -> None:
        module = make().train()
        with torch.device("cpu"):  # an optimizer reads its step counter
            moved = None if optimizer is None else optimizer(module.parameters())
        for _ in range(steps):
            module.zero_grad()
            if autocast is None:
                loss = loss_of(module)
            else:
                with _Autocast(autocast):
                    loss = loss_of(module)
            loss.backward()  # type: ignore[no-untyped-call]
            del loss
            if moved is not None:
                moved.step()

    with torch.device("meta"):
        return trace_peak(work)


# Operators that torch's GPU autocast runs in low precision, and those it runs in float32.
_LOW = {
    *(
        "linear",
        "matmul",
        "__matmul__",
        "__rmatmul__",
        "mm",
        "bmm",
        "mv",
        "addmm",
        "addmv",
        "addbmm",
        "baddbmm",
    ),
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "prelu"),
    *("chain_matmul", "einsum", "scaled_dot_product_attention"),
}
_WIDE = {
    *(
        "softmax",
        "log_softmax",
        "cross_entropy",
        "nll_loss",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "kl_div",
    ),
    *(
        "binary_cross_entropy_with_logits",
        "cosine_embedding_loss",
        "layer_norm",
        "group_norm",
        "norm",
        "dist",
    ),
    *(
        "exp",
        "log",
        "log1p",
        "log2",
        "log10",
        "expm1",
        "pow",
        "rsqrt",
        "reciprocal",
        "softplus",
        "sum",
        "prod",
    ),
    *("cumsum", "cumprod", "renorm", "cdist", "logsumexp", "softmin", "poisson_nll_loss", "huber_loss"),
}


class _Autocast(TorchFunctionMode):
    """Autocast for `meta`, which torch lacks: casts operands, and each weight once while it is on."""

    def __init__(self, low: torch.dtype) -> None:
        super().__init__()
        self._low = low
        self._weights: dict[int, torch.Tensor] = {}
        self._inside = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in _LOW:
            args, kwargs = tree_map(self._rounded, (args, kwargs))
        elif name in _WIDE:
            args, kwargs = tree_map(_widened, (args, kwargs))
        return func(*args, **kwargs)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._weights.clear()

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(self._low)
        if id(value) not in self._weights:
            self._weights[id(value)] = value.to(self._low)
        return self._weights[id(value)]


def _widened(value: Any) -> Any:
    low = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if low else value
