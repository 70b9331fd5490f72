"""Optimizers and learning-rate schedules by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.maths.models.entity_model import EntityModel


class GpuAdagrad(torch.optim.Adagrad):
    """torch's Adagrad up to rounding, with the learning rate as a tensor.

    `found_inf`, where set, is 1 for a step that must change nothing; `grad_scale`, what gradients are divided by.
    """

    found_inf: torch.Tensor | None = None
    _step_supports_amp_scaling = True  # GradScaler sets both, instead of reading on the host whether to step

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the training step has its gradients already"
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            grads: list[torch.Tensor] = [p.grad for p in weights]
            sums = [self.state[p]["sum"] for p in weights]
            grad_scale: torch.Tensor | None = getattr(self, "grad_scale", None)
            if grad_scale is not None:
                grads = list(torch._foreach_div(grads, grad_scale))
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


def _uncompiled(kind: type[torch.optim.Optimizer]) -> Any:
    """`kind` with methods that do not load torch.compile, which takes more than a second and some 72 MiB.

    torch wraps these methods to tell torch.compile that it may not trace them. For that it loads torch.compile at their
    first call. Nothing that kgops compiles calls them.
    """
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    plain: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    step = kind.step if kind is GpuAdagrad else torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**plain, "step": step})


def build_optimizer(
    name: str, model: torch.nn.Module, learning_rate: float, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """Builds an optimizer of what the model trains, fused where torch supports it."""
    untrained = model.untrained if isinstance(model, EntityModel) else ()
    parameters = [weight for name, weight in model.named_parameters() if name not in untrained]
    device = parameters[0].device
    # On a GPU the rate is a device tensor, so that a replayed CUDA graph follows the schedule.
    rate = torch.tensor(learning_rate, device=device) if device.type == "cuda" else learning_rate
    kinds: dict[str, Any] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "adagrad": GpuAdagrad if device.type == "cuda" else torch.optim.Adagrad,
        "sgd": torch.optim.SGD,
    }
    more: dict[str, Any] = {} if kinds[name] is GpuAdagrad else {"fused": True}
    optimizer: torch.optim.Optimizer = _uncompiled(kinds[name])(
        parameters, lr=rate, weight_decay=weight_decay, **more
    )
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def rate_of(optimizer: torch.optim.Optimizer) -> float:
    return float(optimizer.param_groups[0]["lr"])


def memory_mib(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **more: int) -> dict[str, float]:
    """Memory of a training by part, and `more` parts in bytes; on a GPU also the peaks of all."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    moments = [t for slots in optimizer.state.values() for t in slots.values()]
    held = sum(t.numel() * t.element_size() for t in moments if isinstance(t, torch.Tensor))
    sizes = {"weights": weights, "gradients": weights, "optimizer": held, **more}
    device = next(model.parameters()).device
    if device.type == "cuda":
        sizes["peak_allocated"] = torch.cuda.max_memory_allocated(device)
        sizes["peak_reserved"] = torch.cuda.max_memory_reserved(device)
    return {name: size / 2**20 for name, size in sizes.items()}


def restore(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Loads moments and learning rate, but keeps this device's implementation options (fused, foreach)."""
    sizes, sizes_there = (
        [len(group["params"]) for group in groups]
        for groups in (optimizer.param_groups, saved["param_groups"])
    )
    if sizes != sizes_there:
        raise BadInput(
            "the checkpoint is of a kgops that trained other parameters of this model.",
            hint="start the training anew; its models can still be read.",
        )
    rate = float(saved["param_groups"][0]["lr"])
    own = ("lr", "fused", "foreach", "capturable")
    groups = [
        {**theirs, **{name: ours[name] for name in own if name in ours}}
        for theirs, ours in zip(saved["param_groups"], optimizer.param_groups, strict=True)
    ]
    optimizer.load_state_dict({**saved, "param_groups": groups})
    set_rate(optimizer, rate)


@dataclass
class Schedule:
    """The learning rate by epoch: constant, lower after a plateau of validation MRR, or half a cosine."""

    name: str
    base: float
    epochs: int
    factor: float = 0.95
    patience: int = 9
    lowest: float = 0.0
    warmup_epochs: int = 0
    # Saved in checkpoints:
    drops: int = 0
    best: float = -math.inf
    waited: int = 0

    def rate(self, epoch: int) -> float:
        """For the epoch about to run, counted from 1."""
        if epoch <= self.warmup_epochs:
            return self.base * epoch / (self.warmup_epochs + 1)
        if self.name == "plateau":
            return max(self.lowest, self.base * self.factor**self.drops)
        if self.name == "cosine":
            span = max(self.epochs - self.warmup_epochs, 1)
            done = min((epoch - 1 - self.warmup_epochs) / span, 1.0)
            return self.lowest + (self.base - self.lowest) * 0.5 * (1 + math.cos(math.pi * done))
        return self.base

    def observe(self, mrr: float) -> None:
        """Records a validation; `patience` of them without improvement lower a plateau's rate."""
        if mrr > self.best:
            self.best, self.waited = mrr, 0
            return
        self.waited += 1
        if self.waited > self.patience:
            self.drops, self.waited = self.drops + 1, 0

    def state_dict(self) -> dict[str, float]:
        return {"drops": self.drops, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.drops, self.waited = int(state["drops"]), int(state["waited"])
        self.best = float(state["best"])
