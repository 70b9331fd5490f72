"""Applied option values of a job on a device, with reasons: plans predict them and workers report them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kgops.jobs import chunk_sizes
from kgops.jobs.explain import EXPLAIN
from kgops.jobs.job import Job
from kgops.jobs.predict import PREDICT
from kgops.jobs.profile_names import AUTO, CPU
from kgops.jobs.regress import REGRESS
from kgops.jobs.tracin import TRACIN
from kgops.jobs.train import TRAIN

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")  # modes of compile that replay CUDA graphs
_NO_GPU = "no CUDA device"
_BF16, _FP16 = (8, 0), (7, 0)  # compute capabilities from which `auto` chooses them
_BY_PRECISION = "set by the precision: only fp16 needs it"
_NOTHING_TO_LOAD = "the triples live on the device: there is nothing to load"


class WorkerDevice(NamedTuple):
    """The device of a worker, as far as options depend on it; `has_bf16` is of a CPU."""

    capability: tuple[int, int] | None = None  # of a GPU; None: a CPU
    has_bf16: bool = False

    @property
    def kind(self) -> str:
        return "cpu" if self.capability is None else "cuda"


class Applied(NamedTuple):
    """An applied option; `value` None: only the worker knows it."""

    option: str
    value: Any
    reason: str | None = None


ValueAndReason = tuple[Any, str | None]


def on_or_off(value: Any) -> Any:
    """Booleans as on and off, as the record keeps them."""
    return ("on" if value else "off") if isinstance(value, bool) else value


def training_precision(requested: str, device: WorkerDevice) -> tuple[str, str | None]:
    """The number format of a training's matrix products, and why it differs from the request."""
    if device.capability is None:
        return _cpu_precision(requested, device.has_bf16)
    gpu = f"compute capability {device.capability[0]}.{device.capability[1]}"
    if requested == "auto":
        return _fastest(device.capability), f"the fastest number format of this GPU ({gpu})"
    if requested in ("bf16", "tf32") and device.capability < _BF16:
        name = "TF32" if requested == "tf32" else requested
        return "fp32", f"{name} needs compute capability 8.0; this GPU has {gpu}"
    return requested, None


def _fastest(capability: tuple[int, int]) -> str:
    return "bf16" if capability >= _BF16 else "fp16" if capability >= _FP16 else "fp32"


def _cpu_precision(requested: str, has_bf16: bool) -> tuple[str, str | None]:
    if requested == "auto":
        return "fp32", _NO_GPU
    if requested == "tf32":
        return "fp32", f"TF32 is a number format of CUDA GPUs; {_NO_GPU}"
    if requested == "fp16":
        return "fp32", "a CPU sums fp16 products in fp16, which loses gradients"
    if requested == "bf16" and not has_bf16:
        return "fp32", "this CPU has no bf16 instructions (AVX512-BF16 or AMX)"
    return requested, None


def product_precision(requested: str, device: WorkerDevice) -> tuple[str, str | None]:
    """Number format of TracIn's products, and why it differs from the request. fp16 and bf16 work on any device."""
    if device.capability is None:
        return ("fp32", _NO_GPU) if requested in ("auto", "tf32") else (requested, None)
    has_bf16 = device.capability >= _BF16
    if requested == "auto":
        return ("bf16" if has_bf16 else "fp16"), None
    if requested == "bf16" and not has_bf16:
        return "fp16", "bf16 needs compute capability 8.0"
    if requested == "tf32" and not has_bf16:
        return "fp32", "TF32 needs compute capability 8.0"
    return requested, None


def gram_precision(requested: str, device: WorkerDevice) -> tuple[str, str | None]:
    """Number format of TracIn's two largest products, and why it differs from the request."""
    if requested == "bf16" and device.capability is not None and device.capability < _BF16:
        return "fp32", "bf16 needs compute capability 8.0, and fp16 lacks its range"
    return requested, None


def compile_mode(mode: str, device: WorkerDevice, *, checkpointing: bool) -> tuple[str, str | None]:
    """The torch.compile mode to try on this device, and why it differs from the request."""
    if mode == "off":
        return "off", None
    if device.capability is None:
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            return "off", f"{_NO_GPU}, and no C++ compiler ({compiler}) for the CPU"
        return "default", "CUDA graphs need a CUDA device" if mode in CUDA_GRAPH_MODES else None
    if device.capability < _FP16:
        has = f"{device.capability[0]}.{device.capability[1]}"
        return "off", f"torch.compile needs compute capability 7.0; this GPU has {has}"
    if mode in CUDA_GRAPH_MODES and checkpointing:
        return "default", f"{mode} replays CUDA graphs, which fail with gradient checkpointing"
    return mode, None


def skips_compile(job: Job, device: WorkerDevice) -> bool:
    """Whether a CPU run ignores the profile's `compile`: compiling takes longer than many trainings. A job without
    a profile, or with `auto` or `cpu`, compiles only because a person requested it."""
    return job.profile not in (None, AUTO, CPU) and device.kind == "cpu"


def cpu_processes(requested: int | str) -> tuple[int, str | None]:
    """Number of CPU processes that share a run, and why it differs from the request."""
    if isinstance(requested, str):
        return 1, f"{_NO_GPU}; give a number of CPU processes, as in --devices 2"
    cores = len(os.sched_getaffinity(0))
    return min(requested, cores), f"this machine has {cores} cores" if requested > cores else None


def single_device_reason(settings: Mapping[str, Any]) -> str | None:
    """Why a TracIn run uses one device whatever `devices` says; None: it may use several."""
    if settings["self_influence"]:
        return "self-influence runs on one device"
    return None


def training_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of a training by kgops' own engine."""
    requested = job.options
    precision, precision_reason = training_precision(requested.get("precision", "fp32"), device)
    batch, chunk = requested.get("batch_size", chunk_sizes.TRAIN_BATCH), requested.get("entity_chunk", "auto")
    checkpointing = bool(requested.get("gradient_checkpointing", False))
    yield Applied("precision", precision, precision_reason)
    yield Applied("batch_size", batch)
    if chunk != "auto":
        yield Applied("entity_chunk", chunk)
    else:
        default_chunk = chunk_sizes.loss_chunk(None, batch, device.kind)
        yield Applied("entity_chunk", default_chunk, "by device and batch size")
    yield Applied("gradient_checkpointing", on_or_off(checkpointing))
    yield Applied("compile", *_training_compile(job, device, checkpointing))
    yield Applied("cuda_graphs", *_cuda_graphs(requested.get("cuda_graphs", False), device))
    yield _gradient_scaling(requested, precision)
    plain = device.kind == "cuda" and job.settings["optimizer"] == "adagrad"
    fused = "training uses torch's fused optimizer step where it exists"
    yield Applied(
        "optimizer_kernel",
        "plain" if plain else "fused",
        fused if requested.get("optimizer_kernel") == "plain" else None,
    )
    yield _memory_cleanup(job, device)
    for name in requested:
        if name == "num_workers":
            yield Applied(name, 0, _NOTHING_TO_LOAD)
        elif name == "grad_clip":
            yield Applied(name, requested[name])
        elif name not in TRAIN.optimizations:
            yield Applied(name, "off", "training has no such option")


def _training_compile(job: Job, device: WorkerDevice, checkpointing: bool) -> ValueAndReason:
    mode = job.options.get("compile", "off")
    if mode == "off":
        return "off", None
    if skips_compile(job, device):
        return "off", _NO_GPU
    return compile_mode(mode, device, checkpointing=checkpointing)


def _cuda_graphs(is_requested: bool, device: WorkerDevice) -> ValueAndReason:
    if not is_requested:
        return "off", None
    return ("on", None) if device.kind == "cuda" else ("off", _NO_GPU)


def _gradient_scaling(requested: Mapping[str, Any], precision: str) -> Applied:
    scaled = precision == "fp16"
    why = _BY_PRECISION if requested.get("scale_gradients", scaled) != scaled else None
    return Applied("scale_gradients", on_or_off(scaled), why)


def _memory_cleanup(job: Job, device: WorkerDevice) -> Applied:
    """On unless it is disabled, as in the group's scripts."""
    is_requested, has_gpu = bool(job.options.get("memory_cleanup", True)), device.kind == "cuda"
    return Applied(
        "memory_cleanup",
        on_or_off(is_requested and has_gpu),
        _NO_GPU if is_requested and not has_gpu else None,
    )


def pykeen_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of PyKEEN's pipeline."""
    requested = job.options
    precision = requested.get("precision", "fp32")
    yield Applied("batch_size", requested.get("batch_size", chunk_sizes.TRAIN_BATCH))
    yield Applied("precision", "fp32", None if precision == "fp32" else "PyKEEN's pipeline trains in float32")
    yield _memory_cleanup(job, device)
    for name, value in {"gradient_checkpointing": False, **requested}.items():
        if name in ("num_workers", "grad_clip"):
            yield Applied(name, value)
        elif name not in ("batch_size", "precision", "memory_cleanup"):
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "PyKEEN's pipeline has no such option")


def regression_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    requested = job.options
    precision, precision_reason = training_precision(requested.get("precision", "fp32"), device)
    batch, microbatch = (
        requested.get("batch_size", chunk_sizes.REGRESS_BATCH),
        requested.get("microbatch", "auto"),
    )
    checkpointing = bool(requested.get("gradient_checkpointing", False))
    yield Applied("precision", precision, precision_reason)
    yield Applied("batch_size", batch)
    if microbatch == "auto":
        yield Applied("microbatch", batch, "the whole batch")
    else:
        yield Applied(
            "microbatch", min(microbatch, batch), "at most the batch size" if microbatch > batch else None
        )
    yield Applied("temporal_frames", requested.get("temporal_frames", chunk_sizes.REGRESS_FRAMES))
    yield Applied(
        "gradient_checkpointing", on_or_off(checkpointing), "frame by frame" if checkpointing else None
    )
    yield Applied("compile", *_training_compile(job, device, checkpointing))
    yield _gradient_scaling(requested, precision)
    yield _memory_cleanup(job, device)
    for name, value in requested.items():
        if name == "memory_optimized":
            yield Applied(name, on_or_off(value), "half the channels" if value else None)
        elif name == "num_workers":
            why = "one thread reads the next windows while a step runs"
            yield Applied(name, 1, why if value != 1 else None)
        elif name != "memory_cleanup" and name not in REGRESS.optimizations:
            yield Applied(name, "off", "regression has no such option")


def predict_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of a predict run."""
    chunk = job.options.get("entity_chunk", "auto")
    yield Applied("entity_chunk", chunk_sizes.PREDICT_CHUNK if chunk == "auto" else chunk)
    yield _memory_cleanup(job, device)
    for name, value in job.options.items():
        if name not in PREDICT.optimizations:
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "predicting has no such option")


def explain_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of an explain run."""
    yield _memory_cleanup(job, device)
    for name, value in job.options.items():
        if name not in EXPLAIN.optimizations:
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "explaining has no such option")


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
    yield Applied("block", requested.get("block", chunk_sizes.TRACIN_BLOCK))
    yield Applied("gram_precision", *gram)
    yield _memory_cleanup(job, device)
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
        return Applied(name, chunk_sizes.TRACIN_CHUNK if value == "auto" else value)
    if name == "tests_at_once":
        return Applied(name, value)
    if name in ("vectorized_gradients", "test_gradient_caching"):
        reason = "kgops builds no gradient per triple: products of factors give the same scores"
        return Applied(name, "on", None if value else reason)
    if name == "num_workers":
        return Applied(name, 0, None if value == 0 else _NOTHING_TO_LOAD)
    option = TRACIN.optimizations.get(name)
    reason = option.off_because if option else _NOT_IN_TRACIN.get(name, "TracIn has no such option")
    return Applied(name, "off", None if off else reason)


_NOT_IN_TRACIN = {
    "batch_size": "TracIn has no batches; `block` is the number of triples scored at once",
    "cuda_graphs": TRACIN.optimizations["compile"].off_because,
    **dict.fromkeys(("optimizer_kernel", "scale_gradients"), "TracIn has no optimizer steps"),
}


def combined_option(first: Applied, then: Applied) -> ValueAndReason:
    """One option's value and reason for a pipeline: those of training and of TracIn, once where they agree."""
    value, reasons = then.value, [first.reason, then.reason]
    if first.option == "memory_cleanup" and then.reason and first.value == value != "off":
        return value, f"training: {first.reason}; TracIn: {then.reason}"
    if first.value != value:
        value = f"{first.value}, then {value}"
        reasons.insert(0, "first training, then TracIn")
    return value, "; ".join(dict.fromkeys(filter(None, reasons))) or None
