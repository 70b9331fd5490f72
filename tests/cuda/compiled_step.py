"""Compiles a training step for the GPU of this machine and takes it three times: `compiled_step.py fp16`, with Triton.

The GPU is the stand-in's, so kernels are really compiled for its compute capability, and launched, and compute nothing.
Any warning is an error, but for those of torch's compiler about its own code. Prints what became of it, as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from kgops.models.conve import ConvE, ConvEConfig
from kgops.training.acceleration import AcceleratedStep
from kgops.training.batches import Batches
from kgops.training.losses import EntityLoss
from kgops.training.settings import resolve_precision

ENTITIES, RELATIONS, TRIPLES, BATCH = 500, 4, 600, 64


class Options:
    """A report that keeps options alone."""

    def __init__(self) -> None:
        self.applied: dict[str, tuple[Any, str | None]] = {}

    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None:
        self.applied[name] = applied, reason

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None: ...

    def metric(self, name: str, value: float, step: int) -> None: ...

    def memory(self, **mib: float) -> None: ...

    def artifact(self, path: Path, kind: str) -> None: ...

    def note(self, text: str) -> None: ...


def main(precision: str) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", module=r"torch\._(inductor|dynamo|functorch)")
    warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)  # in torch's own modules
    torch.manual_seed(0)
    model = ConvE(ConvEConfig(ENTITIES, RELATIONS, embedding_dim=32)).cuda()
    columns = [torch.randint(size, (TRIPLES,)) for size in (ENTITIES, RELATIONS, ENTITIES)]
    batches = Batches(
        torch.stack(columns, 1), inverse=True, one_positive=True, batch_size=BATCH, seed=0, device="cuda"
    ).epoch(1)
    report = Options()
    applied = resolve_precision(precision, "cuda")
    # The rate a number: `build_optimizer` makes it a tensor, and torch looks at its value.
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    step = AcceleratedStep(
        model,
        EntityLoss(dtype=applied.dtype, chunk=256),
        optimizer,
        requested=("default", False),
        usual_size=BATCH,
        checkpointing=False,
        report=report,
    )
    step.prepare(next(batches))
    for _ in range(3):
        step(next(batches))
    breaks = dict(torch._dynamo.utils.counters["graph_break"])
    print(json.dumps({"compile": report.applied["compile"], "precision": applied.applied, "eager": breaks}))


if __name__ == "__main__":
    main(sys.argv[1])
