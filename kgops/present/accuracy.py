"""The accuracy of past memory predictions, as text and as a table for JSON."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kgops.jobs.text import one_line
from kgops.planning.corrections import Accuracy, Pair, accuracy
from kgops.present.formats import UNKNOWN, table
from storage.predictions import Forecast

_NO_RUN = "No run has a predicted and a measured peak yet: start one with `kgops run`."


def accuracy_page(forecasts: Iterable[Forecast]) -> list[str]:
    rows = []
    for on, on_gpu, pairs, errors in _accuracies(forecasts):
        cells = (
            (f"{errors.median_error:.1%}", f"{errors.worst_under:+.1%}", f"{errors.worst_over:+.1%}")
            if errors
            else (UNKNOWN, UNKNOWN, UNKNOWN)
        )
        rows.append((one_line(on), str(len(pairs)), *cells, _compared(on_gpu)))
    if not rows:
        return [_NO_RUN]
    heads = ("ON", "RUNS", "MEDIAN ERROR", "WORST UNDER", "WORST OVER", "COMPARED")
    return table(heads, rows, right=frozenset(heads[1:5]))


def accuracy_sentences(forecasts: Iterable[Forecast]) -> list[str]:
    """The page in a sentence, for places that are narrower than its table."""
    return [
        f"{one_line(on)}, {len(pairs):,} run{'' if len(pairs) == 1 else 's'}: "
        + (
            f"median error {errors.median_error:.1%}, worst under {errors.worst_under:+.1%}, "
            f"worst over {errors.worst_over:+.1%} "
            if errors
            else "error unknown "
        )
        + f"({_compared(on_gpu)})"
        for on, on_gpu, pairs, errors in _accuracies(forecasts)
    ] or [_NO_RUN]


def accuracy_table(forecasts: Iterable[Forecast]) -> list[dict[str, Any]]:
    return [
        {
            "on": on,
            "compared": _compared(on_gpu),
            "runs": len(pairs),
            "median_error": errors.median_error if errors else None,
            "worst_under": errors.worst_under if errors else None,
            "worst_over": errors.worst_over if errors else None,
        }
        for on, on_gpu, pairs, errors in _accuracies(forecasts)
    ]


def _accuracies(forecasts: Iterable[Forecast]) -> list[tuple[str, bool, list[Pair], Accuracy | None]]:
    by: dict[tuple[str, bool], list[Pair]] = defaultdict(list)
    for one in forecasts:
        if one.measured_mib is not None and one.predicted_mib is not None:
            by[one.on, one.on_gpu].append(Pair(one.predicted_mib, one.measured_mib))
    # The memory of a process is its own: no other process causes an error, so none is dropped.
    return [
        (on, on_gpu, pairs, accuracy(pairs) if on_gpu else accuracy(pairs, furthest=math.inf))
        for (on, on_gpu), pairs in sorted(by.items())
    ]


def _compared(on_gpu: bool) -> str:
    if on_gpu:
        return "GPU memory: all that the run held"
    return "process memory: the peak of the worker process above its start"
