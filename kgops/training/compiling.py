"""Functions that torch.compile turned into kernels, and that still answer where it could not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["COMPILE_MODES", "Compiler"]

COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune")


class Compiler:
    """Makes functions that run compiled while `on` and as they are otherwise.

    Whatever compiling raises, the function still gives its answer: `failure` then says what happened,
    and from there on everything runs as it is.
    """

    def __init__(self, mode: str = "default") -> None:
        import torch._inductor.config as inductor  # seconds: only who compiles pays

        inductor.fallback_random = True  # the masks eager steps would draw, so that numbers stay the same
        inductor.compile_threads = 1  # a handful of kernels is not worth a pool of processes
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
