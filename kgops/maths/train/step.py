"""Training step: gradients in place, no batch x entities tensor; torch.compile with a fallback."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from kgops.maths.models.conve import ConvE
from kgops.maths.models.encoder import Buffers, FusedEncoder, add_rows, grad_of, run_backward
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.vectors import VectorModel
from kgops.maths.train.batches import Batch
from kgops.maths.train.losses import EntityLoss, ScoreKernels
from kgops.maths.train.penalties import Penalties
from kgops.workloads.train.options import TRAIN_ROWS_AT_ONCE

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def prepare_inductor() -> None:
    """torch.compile settings under which compiled steps match eager ones."""
    import torch._inductor.config as inductor  # takes seconds to import
    import torch.compiler.config as caching

    inductor.fallback_random = True  # the dropout masks of eager steps
    inductor.compile_threads = 1  # a few kernels need no process pool
    # Inductor's cache key names neither the CPU's vector width nor the thread count. Code generated for vectors of 16
    # floats and compiled where they have 8 skips every other half: wrong gradients, without an error. Machines may
    # share a cache, and it may outlive a change of ATEN_CPU_CAPABILITY.
    generated_for = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    caching.cache_key_tag = f"{os.environ.get('TORCH_COMPILE_CACHE_KEY_TAG', '')} {generated_for}"


class Compiler:
    """Wraps functions that run compiled while `on` and eagerly otherwise.

    If compiling raises, the function still returns its result, `failure` has the reason, and all functions
    run eagerly from then on.
    """

    def __init__(self, mode: str = "default") -> None:
        prepare_inductor()
        self._mode = "max-autotune-no-cudagraphs" if mode == "max-autotune" else None
        self.on = False
        self.failure: str | None = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # Other batch and chunk sizes are rare: a kernel for each is better than one slow dynamic kernel.
        fast: Callable[..., Any] | None = None

        def either(*arguments: Any) -> Any:
            nonlocal fast
            if not self.on:
                return function(*arguments)
            try:
                fast = fast or torch.compile(function, dynamic=False, mode=self._mode)
                return fast(*arguments)
            except Exception as error:
                self.gave_up(error)
                return function(*arguments)

        return either

    def gave_up(self, error: Exception) -> None:
        """Records the failure; re-raises errors that do not come from compiling."""
        if isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
            raise error
        self.on = False
        # The first line names the backend, the second the error.
        words = " ".join(" ".join(str(error).split("\n\n")[0].split()[:60]).split())
        self.failure = f"torch.compile failed: {type(error).__name__}: {words:.300}"


class Layers:
    """The way from vectors of heads and relations to queries, and back, of ConvE."""

    def __init__(
        self,
        model: ConvE,
        buffers: Buffers,
        dtype: torch.dtype,
        wrap: Wrap,
        *,
        recompute: bool,
    ) -> None:
        self._front, self._finish = wrap(model.normed_image), wrap(model.finish)
        self._encoder = FusedEncoder(
            model, buffers, dtype=dtype, rows_at_once=TRAIN_ROWS_AT_ONCE, recompute=recompute, wrap=wrap
        )
        norms = (model.input_norm, model.output_norm)
        # Autograd adds to these gradients, so they are zeroed.
        self._summed = [grad_of(p) for norm in norms if norm is not None for p in norm.parameters()]
        # Only the encoder's gradients pass through fp16, and each overflow reaches one of these.
        self.reached = (model.relations, model.conv.weight, model.project.weight)
        self._passed: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def forward(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        for grad in self._summed:
            grad.zero_()
        image = self._front(head_rows, relation_rows)
        projected = self._encoder.forward(image.detach()).requires_grad_()
        queries: torch.Tensor = self._finish(projected)
        self._passed = image, projected, queries
        return queries.detach()

    def backward(self, d_queries: torch.Tensor) -> None:
        """Adds to the `.grad` of the rows, and writes that of the layers."""
        assert self._passed is not None
        (image, projected, queries), self._passed = self._passed, None
        run_backward(queries, d_queries)
        assert projected.grad is not None
        run_backward(image, self._encoder.backward(projected.grad))


class NoLayers:
    """The same for a model of vectors alone."""

    def __init__(self, model: VectorModel, wrap: Wrap) -> None:
        self._encode = wrap(model.encode_rows)
        self.reached = (model.relations,)
        self._queries: torch.Tensor | None = None

    def forward(self, head_rows: torch.Tensor, relation_rows: torch.Tensor) -> torch.Tensor:
        self._queries = self._encode(head_rows, relation_rows)
        return self._queries.detach()

    def backward(self, d_queries: torch.Tensor) -> None:
        assert self._queries is not None
        queries, self._queries = self._queries, None
        run_backward(queries, d_queries)


class TrainStep:
    """Forward, loss, backward and update for a batch.

    Gradients live in the parameters' `.grad`, allocated once and overwritten by every step. With
    fp16 products, a step whose gradients overflowed changes no weight and is counted in `overflows`.
    With a `compiler`, batches of `compiled_size` run compiled kernels; others are too rare to compile for.
    """

    def __init__(
        self,
        model: EntityModel,
        loss: EntityLoss,
        optimizer: torch.optim.Optimizer,
        *,
        penalties: Penalties | None = None,
        recompute: bool = False,
        compiler: Compiler | None = None,
        compiled_size: int = 0,
    ) -> None:
        self.model, self.loss, self.optimizer, self.penalties = model, loss, optimizer, penalties
        self.compiler, self.compiled_size = compiler, compiled_size
        device = model.entities.device
        # Many small operations are slow only on a GPU; on a CPU compiling takes 10 s for each.
        small = compiler if compiler is not None and device.type == "cuda" else _eager
        self._kernels = ScoreKernels.of(compiler or _eager)
        self.buffers = Buffers(device)
        for parameter in model.parameters():
            grad_of(parameter)
        self._layers: Layers | NoLayers
        if isinstance(model, ConvE):
            self._layers = Layers(model, self.buffers, loss.dtype, small, recompute=recompute)
        else:
            assert isinstance(model, VectorModel)
            self._layers = NoLayers(model, small)
        # Biases that are not trained have no gradient.
        self._d_biases = grad_of(model.biases) if isinstance(model.biases, torch.nn.Parameter) else None
        self._overflows = torch.zeros((), dtype=torch.long, device=device)

    def __call__(self, batch: Batch, want_value: bool = True) -> torch.Tensor | None:
        """Updates the weights; the mean loss (a tensor on the device) if `want_value`."""
        value = self.gradients(batch, want_value)
        if self.loss.dtype == torch.float16:
            # torch's fused optimizers read this attribute on the device, without a synchronisation.
            infinite = self._infinite()
            self._overflows += infinite.long()
            self.optimizer.found_inf = infinite  # type: ignore[attr-defined]
        self.optimizer.step()
        return value

    @property
    def overflows(self) -> int:
        return int(self._overflows)

    @overflows.setter
    def overflows(self, count: int) -> None:
        self._overflows.fill_(count)

    def rehearse(self, batch: Batch) -> None:
        """Compiles the functions for this batch. Weights, norms and random states do not change."""
        assert self.compiler is not None
        kept = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        device = self.model.entities.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            try:
                self.gradients(batch)
            except Exception as error:  # autograd compiles backward passes outside kgops' functions
                self.compiler.gave_up(error)
        for buffer, before in kept:
            buffer.copy_(before)

    def gradients(self, batch: Batch, want_value: bool = True) -> torch.Tensor | None:
        """Writes this batch's gradients to every parameter's `.grad`; the value is without penalties."""
        model = self.model
        if self.compiler is not None:
            self.compiler.on = self.compiler.failure is None and len(batch) == self.compiled_size
        head_rows = model.entities.detach()[batch.heads].requires_grad_()
        relation_rows = model.relations.detach()[batch.relations].requires_grad_()
        result = self.loss(
            self._layers.forward(head_rows, relation_rows),
            model.entities.detach(),
            model.biases.detach(),
            batch.positives,
            grad_of(model.entities),
            self._d_biases,
            want_value=want_value,
            buffers=self.buffers,
            kernels=self._kernels,
        )
        self._layers.backward(result.d_queries)
        assert head_rows.grad is not None and relation_rows.grad is not None
        grad_of(model.relations).zero_()
        if self.penalties is not None:
            assert isinstance(model, VectorModel)
            self.penalties.add(model, batch, head_rows, relation_rows)
        # The loss has overwritten the entities' gradients; their gradients as heads are added.
        add_rows(grad_of(model.entities), batch.heads, head_rows.grad)
        add_rows(grad_of(model.relations), batch.relations, relation_rows.grad)
        return result.value

    def _infinite(self) -> torch.Tensor:
        """1 if a gradient is NaN or infinite, 0 if none is."""
        sums = [grad_of(p).sum() for p in self._layers.reached]
        return torch.stack(sums).isfinite().all().logical_not().float()


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
