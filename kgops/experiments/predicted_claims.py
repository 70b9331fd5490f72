"""Memory claims that need a GPU, checked with kgops' memory estimates of its own code on a T4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kgops.experiments.calculated_claims import Calculation
from kgops.gpus.facts import facts_of_known
from kgops.gpus.known import known_by_short_name
from kgops.jobs.job import read_job
from kgops.planning.flight_files import Flights
from kgops.planning.graph_counts import Answers, Counts
from kgops.planning.memory_estimate import MemoryEstimate, predict
from kgops.planning.planner import need_mib
from kgops.planning.regress_sizes import regress_shape
from kgops.planning.train_sizes import train_shape

__all__ = ["PREDICTED"]

_GPU = "t4"  # the smallest GPU that the documents name, and the regression guide's
_ENTITIES, _RELATIONS, _TRIPLES, _BATCH = 14_541, 237, 272_115, 256  # as FB15k-237
_ANSWERS = Answers(100_000, 300_000, 3_000_000, 500)
_SIDE = 256  # pixels; the regression guide states no size
_BASIS = "prediction"


def _less(workload: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Calculation:
    """Ratio of the allocator's peaks; the CUDA context cancels out."""
    a, b = (_estimate(workload, options).live / 2**20 for options in (before, after))
    return Calculation(a / b, f"{a:,.0f} over {b:,.0f} MiB, {_of(workload, after)}", _BASIS)


def _fits(workload: str, options: Mapping[str, Any]) -> Calculation:
    """The requested `batch_size` if it fits with kgops' margin, else 0."""
    gpu = known_by_short_name(_GPU)
    assert gpu is not None and gpu.usable_mib is not None
    need = need_mib(_estimate(workload, options))
    fits = need <= gpu.usable_mib
    working = f"needs {need:,.0f} of {gpu.usable_mib:,} MiB, {_of(workload, options)}"
    return Calculation(float(options["batch_size"]) if fits else 0.0, working, _BASIS)


def _of(workload: str, options: Mapping[str, Any]) -> str:
    if workload == "regress":
        return f"kgops' network on a T4 at {_SIDE} x {_SIDE} pixels"
    return f"kgops' training on a T4 with {options.get('entities', _ENTITIES):,} entities"


def _estimate(workload: str, options: Mapping[str, Any]) -> MemoryEstimate:
    gpu = known_by_short_name(_GPU)
    assert gpu is not None
    facts = facts_of_known(gpu)
    options = {name: value for name, value in options.items() if name != "entities"}
    if workload == "regress":
        job = read_job(
            {"workload": "regress", "regress": {"image_size": f"{_SIDE}x{_SIDE}"}, "options": options},
            "a claim",
        )
        flights = Flights(_SIDE, _SIDE, 4, {"trained on": 2000, "held out": 1000})
        return predict(regress_shape(job, flights, facts, options["precision"]), facts)
    counts = Counts(options.get("entities", _ENTITIES), _RELATIONS, _TRIPLES, tails=_ANSWERS, heads=_ANSWERS)
    options = {"batch_size": _BATCH, **options}
    job = read_job({"workload": "train", "train": {"dataset": "fb15k237"}, "options": options}, "a claim")
    sizes = train_shape(job, counts, facts)
    assert sizes is not None
    return predict(sizes, facts)


PREDICTED: dict[str, Callable[..., Calculation]] = {"predicted_less": _less, "predicted_fits": _fits}
