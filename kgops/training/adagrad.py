"""Adagrad that CUDA graphs can replay: torch's reads its learning rate on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["GpuAdagrad"]


class GpuAdagrad(torch.optim.Adagrad):
    """torch's Adagrad up to rounding, with the learning rate as a tensor.

    `found_inf`, where set, is 1 for a step that must change nothing.
    """

    found_inf: torch.Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the training step has its gradients already"
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            grads: list[torch.Tensor] = [p.grad for p in weights]
            sums = [self.state[p]["sum"] for p in weights]
            if group["weight_decay"]:
                grads = list(torch._foreach_add(grads, weights, alpha=group["weight_decay"]))
            if self.found_inf is not None:
                grads = [g.masked_fill(self.found_inf.bool(), 0) for g in grads]
            torch._foreach_addcmul_(sums, grads, grads, value=1)
            roots = torch._foreach_sqrt(sums)
            torch._foreach_add_(roots, group["eps"])
            steps = torch._foreach_div(grads, roots)
            torch._foreach_mul_(steps, group["lr"])
            torch._foreach_sub_(weights, steps)
