"""What a worker makes of a job's options on its device: plans say it before, workers after, both from here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kgops.jobs import chunk_sizes
from kgops.jobs.job import Job
from kgops.jobs.regress import OPTIONS_OF_REGRESS

__all__ = [
    "AUTO",
    "WHOLE_STEP",
    "Applied",
    "Place",
    "alone_in_tracing",
    "compile_mode",
    "of_pykeen",
    "of_regression",
    "of_tracing",
    "of_training",
    "one_after_the_other",
    "precision_of_products",
    "processes_on_cpu",
    "spelled",
    "training_precision",
    "works_without",
]

AUTO = "auto"  # the profile that speaks of no GPU in particular
WHOLE_STEP = ("reduce-overhead", "max-autotune")  # modes of compile that replay CUDA graphs
_NO_GPU = "no CUDA device"
_BF16, _FP16 = (8, 0), (7, 0)  # compute capabilities from which `auto` takes them
_BY_PRECISION = "by the precision: fp16 alone needs it"
_NOTHING_TO_LOAD = "the triples live on the device: there is nothing to load"


class Place(NamedTuple):
    """The device of a worker, as far as options depend on it; `has_bf16` is of a CPU."""

    capability: tuple[int, int] | None = None  # of a GPU; None: a CPU
    has_bf16: bool = False

    @property
    def kind(self) -> str:
        return "cpu" if self.capability is None else "cuda"


class Applied(NamedTuple):
    """One option; `value` None is known to the worker alone."""

    option: str
    value: Any
    reason: str | None = None


Found = tuple[Any, str | None]


def spelled(value: Any) -> Any:
    """What is switched is on or off, as the record keeps it."""
    return ("on" if value else "off") if isinstance(value, bool) else value


def training_precision(asked: str, place: Place) -> tuple[str, str | None]:
    """The number format of a training's heavy products, and why it is not what was asked."""
    if place.capability is None:
        return _on_cpu(asked, place.has_bf16)
    gpu = f"compute capability {place.capability[0]}.{place.capability[1]}"
    if asked == "auto":
        return _fastest(place.capability), f"the fastest this GPU has ({gpu})"
    if asked in ("bf16", "tf32") and place.capability < _BF16:
        name = "TF32" if asked == "tf32" else asked
        return "fp32", f"{name} needs compute capability 8.0; this GPU has {gpu}"
    return asked, None


def _fastest(capability: tuple[int, int]) -> str:
    return "bf16" if capability >= _BF16 else "fp16" if capability >= _FP16 else "fp32"


def _on_cpu(asked: str, has_bf16: bool) -> tuple[str, str | None]:
    if asked == "auto":
        return "fp32", _NO_GPU
    if asked == "tf32":
        return "fp32", f"TF32 is a number format of CUDA GPUs; {_NO_GPU}"
    if asked == "fp16":
        return "fp32", "a CPU sums fp16 products in fp16, which loses gradients"
    if asked == "bf16" and not has_bf16:
        return "fp32", "this CPU has no bf16 instructions (AVX512-BF16 or AMX)"
    return asked, None


def precision_of_products(asked: str, place: Place) -> tuple[str, str | None]:
    """The same for TracIn, which has no gradients to lose: fp16 and bf16 work on every device."""
    if place.capability is None:
        return ("fp32", _NO_GPU) if asked in ("auto", "tf32") else (asked, None)
    whole = place.capability >= _BF16
    if asked == "auto":
        return ("bf16" if whole else "fp16"), None
    if asked == "bf16" and not whole:
        return "fp16", "bf16 needs compute capability 8.0"
    if asked == "tf32" and not whole:
        return "fp32", "TF32 needs compute capability 8.0"
    return asked, None


def compile_mode(mode: str, place: Place, *, checkpointing: bool) -> tuple[str, str | None]:
    """What of torch.compile is tried there, and why not more; what fails then only the worker can say."""
    if mode == "off":
        return "off", None
    if place.capability is None:
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            return "off", f"{_NO_GPU}, and no C++ compiler ({compiler}) to compile for the CPU with"
        return "default", "CUDA graphs need a CUDA device" if mode in WHOLE_STEP else None
    if place.capability < _FP16:
        has = f"{place.capability[0]}.{place.capability[1]}"
        return "off", f"torch.compile needs compute capability 7.0; this GPU has {has}"
    if mode in WHOLE_STEP and checkpointing:
        return "default", f"{mode} replays CUDA graphs, which do not go with gradient checkpointing"
    return mode, None


def works_without(job: Job, place: Place) -> bool:
    """Whether compiling is left away: a profile of a GPU speaks of that GPU, and on a CPU it would compile for longer
    than many a training takes. `auto`, which a job gets unasked, names no compilation: what is there a person asked."""
    return job.profile not in (None, AUTO) and place.kind == "cpu"


def processes_on_cpu(asked: int | str) -> tuple[int, str | None]:
    """That share a run there, and why they are not as many as were asked for."""
    if isinstance(asked, str):
        return 1, f"{_NO_GPU}; a number of processes share the CPU: --devices 2"
    cores = len(os.sched_getaffinity(0))
    return min(asked, cores), f"there are {cores} cores" if asked > cores else None


def alone_in_tracing(settings: Mapping[str, Any]) -> str | None:
    """Why a TracIn run is not shared out, whatever `devices` says."""
    for name, told in (
        ("self_influence", "self-influence is"),
        ("build_index", "an index is built"),
        ("use_index", "an index is asked"),
    ):
        if settings[name]:
            return f"{told} on one device"
    return None


def of_training(job: Job, place: Place, processes: int | None, why: str | None = None) -> Iterator[Applied]:
    """Of kgops' own engine, spread over so many `processes`, and why these are not what was asked; None: nobody
    knows yet how many."""
    asked, several = job.options, processes is None or processes > 1
    precision, lower = training_precision(asked.get("precision", "fp32"), place)
    batch, chunk = asked.get("batch_size", chunk_sizes.TRAIN_BATCH), asked.get("entity_chunk", "auto")
    again = bool(asked.get("gradient_checkpointing", False))
    yield Applied("precision", precision, lower)
    yield Applied("batch_size", batch)
    if chunk != "auto":
        yield Applied("entity_chunk", chunk)
    else:
        own = None if processes is None else chunk_sizes.loss_chunk(None, -(-batch // processes), place.kind)
        yield Applied("entity_chunk", own, "by device and batch size")
    yield Applied("gradient_checkpointing", spelled(again))
    yield Applied("compile", *_training_compile(job, place, several, again))
    yield Applied("cuda_graphs", *_graphs(asked.get("cuda_graphs", False), place, several))
    yield _scaled(asked, precision)
    plain = place.kind == "cuda" and job.settings["optimizer"] == "adagrad"
    fused = "training takes torch's fused step wherever there is one"
    yield Applied(
        "optimizer_kernel",
        "plain" if plain else "fused",
        fused if asked.get("optimizer_kernel") == "plain" else None,
    )
    yield _cleanup(job, place)
    for name in asked:
        if name == "num_workers":
            yield Applied(name, 0, _NOTHING_TO_LOAD)
        elif name == "devices":
            yield Applied(name, processes, why)
        elif name not in _OF_TRAINING:
            yield Applied(name, "off", "training has no such option")


_OF_TRAINING = frozenset(
    {
        *("precision", "batch_size", "entity_chunk", "gradient_checkpointing", "compile", "cuda_graphs"),
        *("scale_gradients", "optimizer_kernel", "memory_cleanup"),
    }
)


def _training_compile(job: Job, place: Place, several: bool, again: bool) -> Found:
    mode = job.options.get("compile", "off")
    if mode == "off":
        return "off", None
    if works_without(job, place):
        return "off", _NO_GPU
    return ("off", _WAITS) if several else compile_mode(mode, place, checkpointing=again)


def _graphs(wanted: bool, place: Place, several: bool) -> Found:
    if not wanted:
        return "off", None
    if several:
        return "off", _WAITS
    return ("on", None) if place.kind == "cuda" else ("off", _NO_GPU)


_WAITS = "a step that several processes share waits for them in between"


def _scaled(asked: Mapping[str, Any], precision: str) -> Applied:
    scaled = precision == "fp16"
    why = _BY_PRECISION if asked.get("scale_gradients", scaled) != scaled else None
    return Applied("scale_gradients", spelled(scaled), why)


def _cleanup(job: Job, place: Place) -> Applied:
    """On unless somebody disabled it, as in the group's scripts."""
    wanted, is_there = bool(job.options.get("memory_cleanup", True)), place.kind == "cuda"
    return Applied(
        "memory_cleanup", spelled(wanted and is_there), _NO_GPU if wanted and not is_there else None
    )


def of_pykeen(job: Job, place: Place) -> Iterator[Applied]:
    """Of PyKEEN's own pipeline."""
    asked = job.options
    wanted = asked.get("precision", "fp32")
    yield Applied("batch_size", asked.get("batch_size", chunk_sizes.TRAIN_BATCH))
    yield Applied("precision", "fp32", None if wanted == "fp32" else "PyKEEN's pipeline knows float32 alone")
    yield _cleanup(job, place)
    for name, value in {"gradient_checkpointing": False, **asked}.items():
        if name == "num_workers":
            yield Applied(name, value)
        elif name not in ("batch_size", "precision", "memory_cleanup"):
            idle = value in (False, "off")
            yield Applied(name, "off", None if idle else "PyKEEN's pipeline has no such option")


def of_regression(job: Job, place: Place) -> Iterator[Applied]:
    asked = job.options
    precision, lower = training_precision(asked.get("precision", "fp32"), place)
    batch, pieces = asked.get("batch_size", chunk_sizes.REGRESS_BATCH), asked.get("microbatch", "auto")
    again = bool(asked.get("gradient_checkpointing", False))
    yield Applied("precision", precision, lower)
    yield Applied("batch_size", batch)
    if pieces == "auto":
        yield Applied("microbatch", batch, "the whole batch")
    else:
        yield Applied("microbatch", min(pieces, batch), "no more than a batch" if pieces > batch else None)
    yield Applied("temporal_frames", asked.get("temporal_frames", chunk_sizes.REGRESS_FRAMES))
    yield Applied("gradient_checkpointing", spelled(again), "frame by frame" if again else None)
    yield Applied("compile", *_training_compile(job, place, False, again))
    yield _scaled(asked, precision)
    yield _cleanup(job, place)
    for name, value in asked.items():
        if name == "memory_optimized":
            yield Applied(name, spelled(value), "half the channels" if value else None)
        elif name == "num_workers":
            why = "one thread reads the next windows from mapped files while a step runs"
            yield Applied(name, 1, why if value != 1 else None)
        elif name != "memory_cleanup" and name not in OPTIONS_OF_REGRESS:
            yield Applied(name, "off", "regression has no such option")


def of_tracing(
    job: Job, place: Place, processes: int | None, why: str | None = None, *, factored: bool | None = True
) -> Iterator[Applied]:
    """`factored` is of kgops' ConvE alone: other models stay in fp32. None: nobody knows yet whose model it is."""
    asked = job.options
    precision = precision_of_products(asked.get("precision", "fp32"), place)
    gram: Found = (asked.get("gram_precision", "fp32"), None)
    if not factored:
        precision = _of_other_model(asked.get("precision", "fp32"), precision[0], factored)
        gram = _of_other_model(gram[0], gram[0], factored)
    yield Applied("precision", *precision)
    yield Applied("filtering", spelled(asked.get("filtering", bool(job.settings["test_triples"]))))
    yield Applied("last_layers", spelled(asked.get("last_layers", False)))
    yield Applied("block", asked.get("block", chunk_sizes.TRACIN_BLOCK))
    yield Applied("gram_precision", *gram)
    yield _cleanup(job, place)
    for name, value in {"gradient_checkpointing": False, **asked}.items():
        if name == "devices":
            yield Applied(name, processes, why)
        elif name not in _OF_TRACING:
            yield _beside_tracing(name, value, place)


_OF_TRACING = frozenset(
    {"precision", "filtering", "last_layers", "block", "gram_precision", "memory_cleanup"}
)


def _of_other_model(asked: str, ours: str, factored: bool | None) -> Found:
    if factored is None:
        return (ours, None) if ours == "fp32" else (None, "by the model, which the worker reads")
    return "fp32", None if asked == "fp32" else "the products of this model stay in fp32"


def _beside_tracing(name: str, value: Any, place: Place) -> Applied:
    off = value in (False, "off")
    if name == "entity_chunk":
        return Applied(name, chunk_sizes.TRACIN_CHUNK if value == "auto" else value)
    if name == "tests_at_once":
        return Applied(name, value)
    if name in ("vectorized_gradients", "test_gradient_caching"):
        told = "no gradient of a triple is ever built: products of factors give the same scores"
        return Applied(name, "on", None if value else told)
    if name == "num_workers":
        return Applied(name, 0, None if value == 0 else _NOTHING_TO_LOAD)
    return Applied(name, "off", None if off else _NOT_IN_TRACING.get(name, "TracIn has no such option"))


_COMPILED = "nearly all of the time is in matrix products, which are compiled already"
_NOT_IN_TRACING = {
    "batch_size": "TracIn has no batches that change its numbers; `block` says how many triples go at a time",
    "gradient_checkpointing": "there is no backward pass that keeps activations",
    **dict.fromkeys(("compile", "cuda_graphs"), _COMPILED),
    **dict.fromkeys(("optimizer_kernel", "scale_gradients"), "TracIn takes no steps"),
}


def one_after_the_other(first: Applied, then: Applied) -> Found:
    """What a training and the TracIn run after it make of one option, and why: once where it is the same."""
    value, reasons = then.value, [first.reason, then.reason]
    if first.option == "memory_cleanup" and then.reason and first.value == value != "off":
        return value, f"training: {first.reason}; TracIn: {then.reason}"
    if first.value != value:
        value = f"{first.value}, then {value}"
        reasons.insert(0, "first training, then TracIn")
    return value, "; ".join(dict.fromkeys(filter(None, reasons))) or None
