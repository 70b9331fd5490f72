"""Claims judged by a memory prediction of kgops' own code.

What a document states is taken as stated. Each size that it does not state is assumed at the least and at the most of
ASSUMED, and the prediction is made for all of them: a claim that holds at one end alone cannot be tested here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from kgops.gpus.facts import facts_of_known
from kgops.gpus.known import KnownGpu, known_by_short_name
from kgops.jobs.job import Job, read_job
from kgops.planning.conve_weights import model_of_settings
from kgops.planning.graph_counts import Answers, Counts
from kgops.planning.memory_estimate import MemoryEstimate, predict
from kgops.planning.planner import need_mib
from kgops.planning.regress_sizes import Flights, regress_shape
from kgops.planning.tracin_sizes import tracin_shape
from kgops.planning.train_sizes import train_shape

# The least and the most of each size that a document may leave out. Entities: "usual graphs" of the loss guide.
# GPUs: the smallest and the largest of those that the guides name for FP16. Batches: those of their tables.
ASSUMED: dict[str, dict[str, Sequence[Any]]] = {
    "train": {"entities": (10_000, 100_000), "gpu": ("rtx-2080ti", "a100-40"), "batch_size": (256, 1024)},
    "tracin": {"entities": (10_000, 100_000), "gpu": ("rtx-2080ti", "a100-40"), "batch_size": (32, 256)},
    "regress": {"side": (128, 512), "gpu": ("t4",), "batch_size": (16, 20)},  # its guide is all about a T4
}
_CODE = {"train": "training", "tracin": "TracIn", "regress": "network"}
_RELATIONS, _TRIPLES = 237, 272_115  # as FB15k-237
_ANSWERS = Answers(100_000, 300_000, 3_000_000, 500)
Sizes = Mapping[str, Any]


class Prediction(NamedTuple):
    """A value at each end of what is assumed, least first, and in words: the ends, and what is assumed."""

    values: list[float]
    text: str


def _less(workload: str, before: Sizes, after: Sizes) -> Prediction:
    """Ratio of the allocator's peaks; the CUDA context cancels out."""
    assumed = _assumed(workload, before, after)
    found = []
    for case in _cases(assumed):
        a, b = (_estimate(workload, {**sizes, **case}).live / 2**20 for sizes in (before, after))
        found.append((a / b, f"{a:,.0f} over {b:,.0f} MiB{_at({**after, **case})}"))
    values, ends = _ends(found)
    times = " to ".join(dict.fromkeys(f"{value:.2f}×" for value in (values[0], values[-1])))
    return Prediction(values, f"{times}: {ends}, {_in_words(workload, assumed)}")


def _fits(workload: str, sizes: Sizes) -> Prediction:
    """The stated `batch_size` if it fits with kgops' margin, else 0."""
    assumed = _assumed(workload, sizes)
    found = []
    for case in _cases(assumed):
        every = {**sizes, **case}
        room, need = _room(_known(every["gpu"])), need_mib(_estimate(workload, every))
        found.append((room / need, f"needs {need:,.0f} of {room:,} MiB{_at(every)}"))
    room_over_need, ends = _ends(found)
    values = [float(sizes["batch_size"]) if times >= 1 else 0.0 for times in room_over_need]
    return Prediction(values, f"{ends}, {_in_words(workload, assumed)}")


def _ends(found: list[tuple[float, str]]) -> tuple[list[float], str]:
    """All values, least first, and the texts of the least and of the most."""
    found = sorted(found, key=lambda one: one[0])
    return [value for value, _ in found], "; ".join(dict.fromkeys(text for _, text in (found[0], found[-1])))


PREDICTED: dict[str, Callable[..., Prediction]] = {"predicted_less": _less, "predicted_fits": _fits}


def _assumed(workload: str, *stated: Sizes) -> dict[str, Sequence[Any]]:
    """The range of each size that no one states, and of each that is stated with a list: `or more`."""
    every = {name: value for sizes in stated for name, value in sizes.items()}
    ranges = {name: ends for name, ends in ASSUMED[workload].items() if name not in every}
    return ranges | {name: value for name, value in every.items() if isinstance(value, list)}


def _cases(assumed: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*assumed.values()):
        yield dict(zip(assumed, values, strict=True))


def _known(short_name: str) -> KnownGpu:
    gpu = known_by_short_name(short_name)
    assert gpu is not None
    return gpu


def _room(gpu: KnownGpu) -> int:
    return gpu.memory_mib if gpu.usable_mib is None else gpu.usable_mib


def _at(sizes: Sizes) -> str:
    name = "side" if "side" in sizes else "entities"
    return f" at {_said(name, sizes[name])}"


_UNITS = {
    "entities": ("", " entities"),
    "side": ("", " pixels"),
    "batch_size": ("batch ", ""),
    "gpu": ("", ""),
}


def _said(name: str, *values: Any) -> str:
    """`10,000 to 100,000 entities`."""
    before, after = _UNITS[name]
    return f"{before}{' to '.join(_value(name, one) for one in dict.fromkeys(values))}{after}"


def _value(name: str, value: Any) -> str:
    if name == "gpu":
        return _known(value).title
    return f"{value} x {value}" if name == "side" else f"{value:,}"


def _in_words(workload: str, assumed: Mapping[str, Sequence[Any]]) -> str:
    said = [_said(name, *ends) for name, ends in assumed.items() if len(ends) > 1]
    gpu = "" if "gpu" not in assumed or len(assumed["gpu"]) > 1 else f" on a {_said('gpu', *assumed['gpu'])}"
    return f"kgops' {_CODE[workload]} with its defaults{gpu}" + (
        f"; assumed: {', '.join(said)}" if said else ""
    )


def _estimate(workload: str, sizes: Sizes) -> MemoryEstimate:
    return _estimate_of(workload, frozenset(sizes.items()))


@cache
def _estimate_of(workload: str, items: frozenset[tuple[str, Any]]) -> MemoryEstimate:
    sizes = dict(items)
    facts = facts_of_known(_known(sizes["gpu"]))
    options = {name: value for name, value in sizes.items() if name not in ("entities", "gpu", "side")}
    if workload == "regress":
        side = sizes["side"]
        job = _job(workload, {"image_size": f"{side}x{side}"}, options)
        flights = Flights(side, side, 4, {"trained on": 2000, "held out": 1000})
        return predict(regress_shape(job, flights, facts, options["precision"]), facts)
    counts = Counts(sizes["entities"], _RELATIONS, _TRIPLES, tails=_ANSWERS, heads=_ANSWERS)
    if workload == "tracin":
        options["block"] = options.pop("batch_size")
        model = model_of_settings(_job("train", {"dataset": "fb15k237"}, {}).settings, counts)
        trained = {"loss": None, "label_smoothing": 0.0}
        shape = tracin_shape(
            *(_job(workload, {"run": 1}, options), counts, facts, model),
            trained=trained,
            checkpoints=1,
            tests=1,
        )
        return predict(shape, facts)
    sizes_of_training = train_shape(_job(workload, {"dataset": "fb15k237"}, options), counts, facts)
    assert sizes_of_training is not None
    return predict(sizes_of_training, facts)


def _job(workload: str, settings: Mapping[str, Any], options: Sizes) -> Job:
    return read_job({"workload": workload, workload: settings, "options": options}, "a claim")
