"""torch.compile with a fallback to eager functions where compiling fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch


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
