"""Functions that torch.compile turned into kernels, and that still answer where it could not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["COMPILE_MODES", "Compiler", "prepare_inductor"]

COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune")


def prepare_inductor() -> None:
    """Settings under which compiled steps give the numbers of plain ones."""
    import torch._inductor.config as inductor  # seconds: only who compiles pays
    import torch.compiler.config as caching

    inductor.fallback_random = True  # the masks that eager steps draw
    inductor.compile_threads = 1  # a handful of kernels is not worth a pool of processes
    # Inductor keeps generated code under a key that names neither the CPU's vectors nor the threads it was generated
    # for. Code for vectors of 16 floats, compiled again where they have 8, skips every other half: wrong gradients,
    # without a word. A cache may be shared by several machines, or outlive a change of ATEN_CPU_CAPABILITY.
    generated_for = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    caching.cache_key_tag = f"{os.environ.get('TORCH_COMPILE_CACHE_KEY_TAG', '')} {generated_for}"


class Compiler:
    """Makes functions that run compiled while `on` and as they are otherwise.

    Whatever compiling raises, the function still gives its answer: `failure` then says what happened,
    and from there on everything runs as it is.
    """

    def __init__(self, mode: str = "default") -> None:
        prepare_inductor()
        self._mode = "max-autotune-no-cudagraphs" if mode == "max-autotune" else None
        self.on = False
        self.failure: str | None = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # A batch or chunk of another size is rare: better a kernel for each than one slow kernel for all.
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
        """Notes the failure; raises what has nothing to do with compiling."""
        if isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
            raise error
        self.on = False
        # A backend's first line names the backend, its second what went wrong.
        words = " ".join(" ".join(str(error).split("\n\n")[0].split()[:60]).split())
        self.failure = f"torch.compile failed: {type(error).__name__}: {words:.300}"
