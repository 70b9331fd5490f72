"""Rules: combinations of levers that fail, lie or slow down, what is taken instead, and who found out.

A rule sees a table of levers, the card, and what is peculiar to the work; it knows no torch and no file. Where
the card is unknown, rules about cards stay silent and the worker says what it could not honour.

`device`, `expandable_segments` and the two path filters are no levers of the record, but settings that levers
go together with; who calls puts them into the table and takes them out again (`plans/resolve.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kgops.gpus.facts import CardFacts

__all__ = ["RULES", "Correction", "Work", "apply", "shown"]

Capability = tuple[int, int]
Levers = Mapping[str, Any]

_BF16: Capability = (8, 0)
_TENSOR_CORES: Capability = (7, 0)
_TRITON: Capability = (7, 0)
_CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")


@dataclass(frozen=True, slots=True)
class Correction:
    """A lever that is not set as it was asked for, with the reason and where that can be read."""

    lever: str
    requested: Any
    effective: Any
    reason: str
    source: str

    def __str__(self) -> str:
        return (
            f"{self.lever}: {shown(self.requested)} → {shown(self.effective)} ({self.reason}; {self.source})"
        )


def shown(value: Any) -> str:
    """A lever's value as job files spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Work:
    """What is peculiar to a piece of work, as far as rules ask for it."""

    name: str
    trains: bool = False  # it follows gradients of a loss
    moves_parameters: bool = False  # weights are not at one address all along
    varies_shapes: bool = False  # inputs are not of one shape all along
    groups_convolutions: bool = False
    shares_steps: bool = False  # on several devices each has a part of every batch
    memory_is_tight: bool = False  # the planner found little room left beside the prediction


Rule = Callable[[Levers, CardFacts | None, Work], Iterator[Correction]]


def apply(levers: Levers, card: CardFacts | None, work: Work) -> tuple[dict[str, Any], list[Correction]]:
    """The levers as they may be pulled, and every correction that was made, in its order.

    Doing it again changes nothing: what comes out conflicts with no rule.
    """
    settled = dict(levers)
    made: list[Correction] = []
    for rule in RULES:
        for correction in rule(dict(settled), card, work):
            settled[correction.lever] = correction.effective
            made.append(correction)
    return settled, made


def _card_has_kernels(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    if card is None or card.compute_capability is None or card.torch is None or card.torch.cuda is None:
        return
    lowest = _lowest_capability(card.torch.version, card.torch.cuda)
    if not card.torch.is_wheel or card.compute_capability >= lowest or levers.get("device", "cpu") == "cpu":
        return
    yield Correction(
        "device",
        levers["device"],
        "cpu",
        f"torch {_dotted(card.torch.version)} for CUDA {_dotted(card.torch.cuda)} has no kernels below compute "
        f"capability {_dotted(lowest)}; {card.name} has {_dotted(card.compute_capability)}. "
        "Its build for CUDA 12.6 has them",
        "pytorch #172352, #175253",
    )


def _lowest_capability(version: tuple[int, int], cuda: tuple[int, int]) -> Capability:
    """What torch's own wheels of that build were compiled for."""
    if cuda < (12, 8):
        return (5, 0)
    return (7, 5) if cuda >= (13, 0) or version >= (2, 11) else (7, 0)


def _card_has_the_number_format(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    capability = card.compute_capability if card else None
    if card is None or capability is None or capability >= _BF16:
        return
    has = f"{card.name} has compute capability {_dotted(capability)}"
    if levers.get("precision") == "bf16":
        # The same saving where tensor cores have fp16; without them half precision is emulated or crawls.
        instead = "fp16" if capability >= _TENSOR_CORES else "fp32"
        yield Correction(
            "precision",
            "bf16",
            instead,
            f"bf16 needs compute capability 8.0, whatever torch's is_bf16_supported() says; {has}",
            "torch.cuda.is_bf16_supported(including_emulation); diffusers #14129",
        )
    if levers.get("precision") == "tf32":
        reason = f"TF32 needs compute capability 8.0; {has}"
        yield Correction("precision", "tf32", "fp32", reason, "NVIDIA Ampere architecture white paper")
    if levers.get("gram_precision") == "bf16":
        reason = f"bf16 needs compute capability 8.0, and fp16 has not its range; {has}"
        source = "torch.cuda.is_bf16_supported(including_emulation); diffusers #14129"
        yield Correction("gram_precision", "bf16", "fp32", reason, source)


def _fp16_gradients_are_scaled(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    if work.trains and levers.get("scale_gradients") is False and "fp16" in _formats(levers, card):
        yield Correction(
            "scale_gradients",
            False,
            True,
            "fp16 gradients below 6e-8 become zero, and those of a mean over batch and entities are that small",
            "torch.amp documentation, gradient scaling",
        )


def _sums_over_entities_are_not_fp16(
    levers: Levers, card: CardFacts | None, work: Work
) -> Iterator[Correction]:
    if levers.get("sum_precision") == "fp16":
        yield Correction(
            "sum_precision",
            "fp16",
            "fp32",
            "a sum over entities leaves fp16's range at 65,504",
            "IEEE 754, binary16",
        )


def _card_can_compile(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    capability = card.compute_capability if card else None
    asked = levers.get("compile", "off")
    if card is not None and capability is not None and capability < _TRITON and asked != "off":
        yield Correction(
            "compile",
            asked,
            "off",
            f"Triton generates kernels from compute capability 7.0 on; {card.name} has {_dotted(capability)}",
            "nnUNet #2188, vllm #14547",
        )


def _graphs_need_fixed_addresses(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    why = _why_no_graph(levers, work)
    if why is None:
        return
    source = "pytorch #154306, PR #127145, #188150"
    mode = levers.get("compile")
    if mode in _CUDA_GRAPH_MODES:
        yield Correction("compile", mode, "default", f"{mode} replays CUDA graphs, and {why}", source)
    if levers.get("cuda_graphs") is True:
        yield Correction(
            "cuda_graphs", True, False, f"a CUDA graph replays fixed addresses, and {why}", source
        )


def _why_no_graph(levers: Levers, work: Work) -> str | None:
    if levers.get("gradient_checkpointing") is True:
        return (
            "gradient checkpointing gives its inputs other addresses each time "
            "(“static input data pointer changed”)"
        )
    if work.moves_parameters:
        return f"in {work.name} the weights do not stay at their addresses"
    if work.varies_shapes:
        return f"in {work.name} inputs are of many shapes: each would be recorded anew"
    return None


def _shared_steps_run_as_they_are(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    devices = levers.get("devices", 1)
    # What `all` comes to only the worker knows; it then says the same.
    if not work.shares_steps or devices in (1, "all"):
        return
    for lever, off in (("compile", "off"), ("cuda_graphs", False)):
        if levers.get(lever, off) != off:
            reason = f"{devices} devices wait for each other within a step, which then is no one piece"
            yield Correction(lever, levers[lever], off, reason, "kgops run train --devices")


def _segments_can_grow(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    if card is None or levers.get("expandable_segments") is not True:
        return
    where = "on a MIG slice" if card.is_slice else "under WSL2" if card.is_wsl else None
    if where is not None:
        reason = f"{where} the driver does not map memory the way growing segments need it"
        yield Correction("expandable_segments", True, False, reason, "vllm #39874, pytorch #192330")


def _cudnn_is_not_let_loose(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    if work.memory_is_tight and levers.get("cudnn_benchmark") is True:
        yield Correction(
            "cudnn_benchmark",
            True,
            False,
            "trying algorithms takes workspace without a bound, and memory is tight",
            "pytorch #49207",
        )


def _channels_last_pays(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    capability = card.compute_capability if card else None
    if levers.get("channels_last") is not True:
        return
    if work.groups_convolutions:
        why = "it slows grouped convolutions down"
    elif card is not None and capability is not None and capability < _TENSOR_CORES:
        why = f"it needs tensor cores; {card.name} has compute capability {_dotted(capability)}"
    elif not _formats(levers, card) & {"fp16", "bf16"}:
        why = "it is faster in half precision only"
    else:
        return
    yield Correction("channels_last", True, False, why, "pytorch #44943, #34977")


def _strict_paths_need_paths(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    if levers.get("strict_path_filtering") is True and levers.get("path_filtering") is not True:
        reason = "strict_path_filtering says how paths are filtered; path_filtering is off"
        yield Correction(
            "strict_path_filtering", True, False, reason, "kgops run tracin, which refuses the same"
        )


def _cache_is_kept_in_the_loop(levers: Levers, card: CardFacts | None, work: Work) -> Iterator[Correction]:
    every = levers.get("memory_cleanup")
    if isinstance(every, int) and not isinstance(every, bool):
        yield Correction(
            "memory_cleanup",
            every,
            True,
            f"empty_cache() every {every} batches gives back what the next batch asks for again: "
            "it is called when the GPU has less free than that would free, for at most 1 % of the time",
            "discuss.pytorch.org 34232",
        )


def _formats(levers: Levers, card: CardFacts | None) -> set[str]:
    """Number formats that the heavy products may be in; `auto` is what workers make of it on that card."""
    asked = levers.get("precision", "fp32")
    if asked != "auto":
        return {asked}
    capability = card.compute_capability if card else None
    if capability is None:
        return {"fp32", "fp16", "bf16"}
    return {"bf16" if capability >= _BF16 else "fp16" if capability >= _TENSOR_CORES else "fp32"}


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


# What a rule corrects, a later one may ask for: formats before what depends on them, compile before its mode.
RULES: tuple[Rule, ...] = (
    _card_has_kernels,
    _card_has_the_number_format,
    _fp16_gradients_are_scaled,
    _sums_over_entities_are_not_fp16,
    _card_can_compile,
    _graphs_need_fixed_addresses,
    _shared_steps_run_as_they_are,
    _segments_can_grow,
    _cudnn_is_not_let_loose,
    _channels_last_pays,
    _strict_paths_need_paths,
    _cache_is_kept_in_the_loop,
)
