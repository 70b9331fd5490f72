"""Applied options of a TracIn run, with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.on_device import (
    NOTHING_TO_LOAD,
    Applied,
    ValueAndReason,
    WorkerDevice,
    applied_cleanup,
    gram_precision,
    on_or_off,
    product_precision,
)
from kgops.workloads.tracin.chunk_sizes import TRACIN_BLOCK, TRACIN_CHUNK
from kgops.workloads.tracin.job import TRACIN


def single_device_reason(settings: Mapping[str, Any]) -> str | None:
    """Why a TracIn run uses one device whatever `devices` says; None: it may use several."""
    if settings["self_influence"]:
        return "self-influence runs on one device"
    return None


def tracin_options(
    job: Job,
    device: WorkerDevice,
    processes: int | None,
    why: str | None = None,
    *,
    factored: bool | None = True,
) -> Iterator[Applied]:
    """Applied options of a TracIn run. `factored`: the model is kgops' ConvE (None: unknown); others stay in fp32."""
    requested = job.options
    precision = product_precision(requested.get("precision", "fp32"), device)
    gram = gram_precision(requested.get("gram_precision", "fp32"), device)
    if not factored:
        precision = _unfactored_precision(requested.get("precision", "fp32"), precision[0], factored)
        gram = _unfactored_precision(requested.get("gram_precision", "fp32"), gram[0], factored)
    yield Applied("precision", *precision)
    yield Applied("filtering", on_or_off(requested.get("filtering", bool(job.settings["test_triples"]))))
    yield Applied("last_layers", on_or_off(requested.get("last_layers", False)))
    yield Applied("block", requested.get("block", TRACIN_BLOCK))
    yield Applied("gram_precision", *gram)
    yield applied_cleanup(job, device)
    for name, value in {"gradient_checkpointing": False, **requested}.items():
        if name == "devices":
            yield Applied(name, processes, why)
        elif name not in _TRACIN_OPTIONS:
            yield _other_tracin_option(name, value)


_TRACIN_OPTIONS = frozenset(
    {"precision", "filtering", "last_layers", "block", "gram_precision", "memory_cleanup"}
)


def _unfactored_precision(requested: str, applied: str, factored: bool | None) -> ValueAndReason:
    if factored is None:
        return (
            (applied, None) if applied == "fp32" else (None, "depends on the model, which the worker reads")
        )
    return "fp32", None if requested == "fp32" else "products of this model stay in fp32"


def _other_tracin_option(name: str, value: Any) -> Applied:
    off = value in (False, "off")
    if name == "entity_chunk":
        return Applied(name, TRACIN_CHUNK if value == "auto" else value)
    if name == "tests_at_once":
        return Applied(name, value)
    if name in ("vectorized_gradients", "test_gradient_caching"):
        reason = "kgops builds no gradient per triple: products of factors give the same scores"
        return Applied(name, "on", None if value else reason)
    if name == "num_workers":
        return Applied(name, 0, None if value == 0 else NOTHING_TO_LOAD)
    option = TRACIN.optimizations.get(name)
    reason = option.off_because if option else _NOT_IN_TRACIN.get(name, "TracIn has no such option")
    return Applied(name, "off", None if off else reason)


_NOT_IN_TRACIN = {
    "batch_size": "TracIn has no batches; `block` is the number of triples scored at once",
    "cuda_graphs": TRACIN.optimizations["compile"].off_because,
    **dict.fromkeys(("optimizer_kernel", "scale_gradients"), "TracIn has no optimizer steps"),
}
