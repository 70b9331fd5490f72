"""Rules: option values that fail or slow a run down on a GPU, their replacement, the reason and its source.

A rule reads a table of options, the GPU and the properties of the workload, never torch or files. Rules about GPUs
change nothing on an unknown GPU: the worker then reports what it could not apply.

`device` and `expandable_segments` are settings, not options: `kgops.planning.resolve` adds them to the table and
removes them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kgops.gpus.facts import GpuFacts, dotted
from kgops.jobs.option import word_of

Capability = tuple[int, int]
Options = Mapping[str, Any]

_BF16: Capability = (8, 0)
_TENSOR_CORES: Capability = (7, 0)
_TRITON: Capability = (7, 0)
_CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")


@dataclass(frozen=True, slots=True)
class Correction:
    """An option whose applied value differs from the requested one, with the reason and its source."""

    option: str
    requested: Any
    applied: Any
    reason: str
    source: str

    def __str__(self) -> str:
        return f"{self.option}: {word_of(self.requested)} → {word_of(self.applied)} ({self.reason}; {self.source})"


@dataclass(frozen=True, slots=True)
class Work:
    """Properties of a workload that rules depend on."""

    name: str
    trains: bool = False  # it has optimizer steps
    moves_parameters: bool = False  # addresses of weights change during the run


Rule = Callable[[Options, GpuFacts | None, Work], Iterator[Correction]]


def apply(options: Options, gpu: GpuFacts | None, work: Work) -> tuple[dict[str, Any], list[Correction]]:
    """The corrected options and all corrections in order. Applying the rules again changes nothing."""
    settled = dict(options)
    corrections: list[Correction] = []
    for rule in RULES:
        for correction in rule(dict(settled), gpu, work):
            settled[correction.option] = correction.applied
            corrections.append(correction)
    return settled, corrections


def _gpu_has_kernels(options: Options, gpu: GpuFacts | None, work: Work) -> Iterator[Correction]:
    if gpu is None or gpu.compute_capability is None or gpu.torch is None or gpu.torch.cuda is None:
        return
    lowest = _lowest_capability(gpu.torch.version, gpu.torch.cuda)
    if not gpu.torch.is_wheel or gpu.compute_capability >= lowest or options.get("device", "cpu") == "cpu":
        return
    yield Correction(
        "device",
        options["device"],
        "cpu",
        f"torch {dotted(gpu.torch.version)} for CUDA {dotted(gpu.torch.cuda)} has no kernels below compute "
        f"capability {dotted(lowest)}; {gpu.name} has {dotted(gpu.compute_capability)}. "
        "The build for CUDA 12.6 has them",
        "pytorch #172352, #175253",
    )


def _lowest_capability(version: tuple[int, int], cuda: tuple[int, int]) -> Capability:
    """Lowest compute capability that torch's published wheels were compiled for."""
    if cuda < (12, 8):
        return (5, 0)
    return (7, 5) if cuda >= (13, 0) or version >= (2, 11) else (7, 0)


def _gpu_has_the_number_format(options: Options, gpu: GpuFacts | None, work: Work) -> Iterator[Correction]:
    capability = gpu.compute_capability if gpu else None
    if gpu is None or capability is None or capability >= _BF16:
        return
    has = f"{gpu.name} has compute capability {dotted(capability)}"
    if options.get("precision") == "bf16":
        # fp16 saves as much on tensor cores; without them half precision is emulated or slow.
        instead = "fp16" if capability >= _TENSOR_CORES else "fp32"
        yield Correction(
            "precision",
            "bf16",
            instead,
            f"bf16 needs compute capability 8.0, whatever torch's is_bf16_supported() says; {has}",
            "torch.cuda.is_bf16_supported(including_emulation); diffusers #14129",
        )
    if options.get("precision") == "tf32":
        reason = f"TF32 needs compute capability 8.0; {has}"
        yield Correction("precision", "tf32", "fp32", reason, "NVIDIA Ampere architecture white paper")


def _fp16_gradients_are_scaled(options: Options, gpu: GpuFacts | None, work: Work) -> Iterator[Correction]:
    if work.trains and options.get("scale_gradients") is False and "fp16" in _formats(options, gpu):
        yield Correction(
            "scale_gradients",
            False,
            True,
            "fp16 gradients below 6e-8 become zero; gradients of a mean over batch and entities are that small",
            "torch.amp documentation, gradient scaling",
        )


def _gpu_can_compile(options: Options, gpu: GpuFacts | None, work: Work) -> Iterator[Correction]:
    capability = gpu.compute_capability if gpu else None
    requested = options.get("compile", "off")
    if gpu is not None and capability is not None and capability < _TRITON and requested != "off":
        yield Correction(
            "compile",
            requested,
            "off",
            f"Triton needs compute capability 7.0; {gpu.name} has {dotted(capability)}",
            "nnUNet #2188, vllm #14547",
        )


def _graphs_need_fixed_addresses(options: Options, gpu: GpuFacts | None, work: Work) -> Iterator[Correction]:
    why = _why_no_graph(options, work)
    if why is None:
        return
    source = "pytorch #154306, PR #127145, #188150"
    mode = options.get("compile")
    if mode in _CUDA_GRAPH_MODES:
        yield Correction("compile", mode, "default", f"{mode} replays CUDA graphs, and {why}", source)
    if options.get("cuda_graphs") is True:
        yield Correction(
            "cuda_graphs", True, False, f"a CUDA graph replays fixed addresses, and {why}", source
        )


def _why_no_graph(options: Options, work: Work) -> str | None:
    if options.get("gradient_checkpointing") is True:
        return "gradient checkpointing changes the addresses of inputs (“static input data pointer changed”)"
    if work.moves_parameters:
        return f"in {work.name} the addresses of weights change"
    return None


def _segments_can_grow(options: Options, gpu: GpuFacts | None, work: Work) -> Iterator[Correction]:
    if gpu is None or options.get("expandable_segments") is not True:
        return
    where = "on a MIG slice" if gpu.is_slice else "under WSL2" if gpu.is_wsl else None
    if where is not None:
        reason = f"{where} the driver cannot map memory for expandable segments"
        yield Correction("expandable_segments", True, False, reason, "vllm #39874, pytorch #192330")


def _formats(options: Options, gpu: GpuFacts | None) -> set[str]:
    """Number formats that matrix products may have; `auto` as workers resolve it on that GPU."""
    requested = options.get("precision", "fp32")
    if requested != "auto":
        return {requested}
    capability = gpu.compute_capability if gpu else None
    if capability is None:
        return {"fp32", "fp16", "bf16"}
    return {"bf16" if capability >= _BF16 else "fp16" if capability >= _TENSOR_CORES else "fp32"}


# In order: number formats before rules that depend on them, compile before its mode.
RULES: tuple[Rule, ...] = (
    _gpu_has_kernels,
    _gpu_has_the_number_format,
    _fp16_gradients_are_scaled,
    _gpu_can_compile,
    _graphs_need_fixed_addresses,
    _segments_can_grow,
)
