"""The levers of a TracIn run: what was asked, what came of it, and why; none is dropped in silence."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from kgops.jobs.job import Job
from kgops.models.conve import ConvE
from kgops.tracin.blocks import Settings
from kgops.tracin.layers import chosen_parameters, last_layers
from kgops.workers.devices import devices_for
from kgops.workers.report import Reporter

__all__ = ["chosen_names", "filters", "report_levers", "scoring_settings", "spread_over", "tests_at_once"]

_FORMATS = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_FACTORED = "no gradient of a triple is ever built: products of factors give the same scores"


def filters(job: Job) -> bool:
    """Whether each test triple is scored on its neighbourhood alone; a batch is, unless told otherwise."""
    return bool(job.levers.get("filtering", bool(job.settings["test_triples"])))


def scoring_settings(
    job: Job, both_directions: bool, model: torch.nn.Module, device: torch.device
) -> Settings:
    factored = isinstance(model, ConvE)
    chunk = job.levers.get("entity_chunk", "auto")
    plain = Settings()
    return Settings(
        block=job.levers.get("block", plain.block),
        chunk=plain.chunk if chunk == "auto" else chunk,
        tests_at_once=tests_at_once(job),
        both_directions=both_directions,
        projection_dim=job.settings["projection_dim"],
        seed=job.settings["seed"],
        gram_dtype=_FORMATS[job.levers.get("gram_precision", "fp32")] if factored else None,
        precision=_FORMATS[precision_for(job, device)[0]] if factored else None,
    )


def tests_at_once(job: Job) -> int | None:
    """None: as many as fit beside each other in a fixed share of memory."""
    asked = job.levers.get("tests_at_once", "auto")
    return None if asked == "auto" else int(asked)


def precision_for(job: Job, device: torch.device) -> tuple[str, str | None]:
    """The format of all products, and why it is not what was asked. Unasked it is fp32: less finds others."""
    asked = job.levers.get("precision", "fp32")
    if device.type == "cuda":
        whole = torch.cuda.get_device_capability(device) >= (8, 0)
        if asked == "auto":
            return ("bf16" if whole else "fp16"), None
        if asked == "bf16" and not whole:
            return "fp16", "bf16 needs compute capability 8.0"
        if asked == "tf32" and not whole:
            return "fp32", "TF32 needs compute capability 8.0"
        return asked, None
    if asked in ("auto", "tf32"):
        return "fp32", "no CUDA device"
    return asked, None


def spread_over(job: Job, device: torch.device) -> tuple[list[str], str | None]:
    """The devices of the processes that share the work, one for each, and why they are not what was asked."""
    asked, alone = job.levers.get("devices", 1), [str(device)]
    if asked == 1:
        return alone, None
    for name, told in (
        ("self_influence", "self-influence is"),
        ("build_index", "an index is built"),
        ("use_index", "an index is asked"),
    ):
        if job.settings[name]:
            return alone, f"{told} on one device"
    return devices_for(asked, device)


def chosen_names(job: Job, model: torch.nn.Module) -> Collection[str] | None:
    """The parameters that take part; None: all of them."""
    if job.settings["layers"]:
        return chosen_parameters(model, job.settings["layers"])
    count = job.levers.get("last_layers", False)
    return last_layers(model, count) if count else None


def report_levers(
    job: Job, device: torch.device, report: Reporter, model: torch.nn.Module | None = None
) -> None:
    """Without a model, where the run only filters."""
    asked = job.levers
    plain = Settings()
    other = None if model is None or isinstance(model, ConvE) else "the products of this model stay in fp32"
    effective, why = ("fp32", other) if other else precision_for(job, device)
    changed = asked.get("precision", "fp32") != effective
    report.lever("precision", asked.get("precision", "fp32"), effective, why if changed else None)
    report.lever("filtering", asked.get("filtering", "auto"), filters(job), None)
    report.lever("last_layers", asked.get("last_layers", False), asked.get("last_layers", False), None)
    report.lever("block", asked.get("block", "auto"), asked.get("block", plain.block), None)
    gram = asked.get("gram_precision", "fp32")
    report.lever("gram_precision", gram, "fp32" if other else gram, other if gram != "fp32" else None)
    # Its line is looked for; within a pipeline the training has spoken of it.
    always = {} if report.earlier else {"gradient_checkpointing": False}
    for name, value in {**always, **asked}.items():
        told = _told(job, name, value, device)
        if told is not None:
            report.lever(name, value, *told)


def _told(job: Job, name: str, value: Any, device: torch.device) -> tuple[Any, str | None] | None:
    """What is effective, and the reason where that is not what was asked."""
    off = value in (False, "off")
    if name == "entity_chunk":
        return (Settings().chunk if value == "auto" else value), None
    if name == "tests_at_once":
        return value, None
    if name == "batch_size":
        return (
            "off",
            "TracIn has no batches that change its numbers; `block` says how many triples go at a time",
        )
    if name == "gradient_checkpointing":
        return "off", None if off else "there is no backward pass that keeps activations"
    if name in ("compile", "cuda_graphs"):
        return (
            "off",
            None if off else "nearly all of the time is in matrix products, which are compiled already",
        )
    if name in ("vectorized_gradients", "test_gradient_caching"):
        return "on", None if value else _FACTORED
    if name == "devices":
        devices, why = spread_over(job, device)
        return len(devices), why
    if name == "num_workers":
        return 0, None if value == 0 else "the triples live on the device: there is nothing to load"
    if name in ("optimizer_kernel", "scale_gradients"):
        return "off", "TracIn takes no steps"
    return None
