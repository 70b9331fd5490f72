"""Levers: every optimization kgops can pull, and what pulling it does to the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["exact", "numeric", "approximate"]


@dataclass(frozen=True, slots=True)
class Lever:
    """One optimization. `exact` gives the same numbers, `numeric` the same up to rounding,
    `approximate` different ones."""

    name: str
    kind: Kind
    summary: str


LEVERS: dict[str, Lever] = {
    lever.name: lever
    for lever in (
        Lever("precision", "numeric", "number format of the heavy products: fp32, tf32, fp16, bf16"),
        Lever("batch_size", "approximate", "examples per step; changes what training finds"),
        Lever("entity_chunk", "exact", "entities scored at a time; smaller needs less memory"),
        Lever("gradient_checkpointing", "exact", "compute activations again instead of keeping them"),
        Lever("memory_cleanup", "exact", "give cached memory back when free memory is short"),
        Lever("compile", "numeric", "let torch.compile generate the kernels"),
        Lever("cuda_graphs", "exact", "replay a whole step as one launch"),
        Lever("filtering", "approximate", "score only the neighbourhood of a test triple"),
        Lever("last_layers", "approximate", "gradients of the last layers only"),
        Lever("devices", "exact", "cards a run is spread over"),
        Lever("optimizer_kernel", "numeric", "one fused kernel for the optimizer's step"),
        Lever("scale_gradients", "numeric", "scale losses so that fp16 gradients do not vanish"),
        Lever("num_workers", "exact", "processes that load data; data lives on the device here"),
    )
}


def kind_of(name: str) -> Kind:
    """A lever nobody declared may change anything: it counts as approximate."""
    lever = LEVERS.get(name)
    return lever.kind if lever else "approximate"
