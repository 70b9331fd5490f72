"""Format benchmarks for the terminal and as JSON: the fastest configuration of each, and its changes over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgops.experiments.benchmark_results import RULE, Change, Result, Series, answers, seconds_of
from kgops.experiments.trial_result import Spread
from kgops.present.formats import amount, columns, local_time, seconds_text, table, wrapped

_RIGHT = frozenset({"BENCH", "TIME", "N"})


def list_lines(series: Sequence[Series]) -> list[str]:
    """One line for each benchmark and machine."""
    heads = ("BENCH", "MEASURED", "FASTEST", "TIME", "THAN BEFORE", "MACHINE", "NAME")
    return table(heads, [_line(one) for one in series], right=_RIGHT)


def _line(series: Series) -> tuple[str, ...]:
    newest, fastest, state = series.newest, series.fastest, series.results[-1].state
    answer = (state or "nothing", "", "")
    if fastest is not None:
        before = series.than_before(fastest.row.variant)
        time = seconds_text(seconds_of(fastest.row).median)
        answer = fastest.row.variant, time, "first" if before is None else str(before[1])
    name = f"{series.name} ({state})" if state and fastest is not None else series.name
    return (str(newest.bench), local_time(newest.at), *answer, series.device, name)


def answer_lines(series: Series) -> list[str]:
    """A benchmark on one kind of machine, in sentences."""
    out = wrapped(f"benchmark {series.newest.bench} · {series.name} · {series.hardware}", columns())
    return [*out, *(line for one in answers(series) for line in wrapped(one, columns(), "  "))]


def over_time_lines(series: Series) -> list[str]:
    """The sentences, and every result of the configuration that is fastest now."""
    fastest = series.fastest
    if fastest is None:
        return answer_lines(series)
    heads = (
        "BENCH",
        "MEASURED",
        "TIME",
        "QUARTILES",
        "N",
        "THAN BEFORE",
        "UNTIL NOW",
        "KGOPS",
        "TORCH",
        "CHANGED",
    )
    cells = []
    for step in series.over_time(fastest.row.variant):
        spread = seconds_of(step.row)
        cells.append(
            (
                *(str(step.result.bench), local_time(step.result.at), seconds_text(spread.median)),
                *(f"{amount(spread.low)}–{amount(spread.high)}", str(spread.n)),
                "first" if step.than_before is None else str(step.than_before),
                "now" if step.until_now is None else str(step.until_now),
                *(step.result.commit, step.result.torch, "; ".join(step.changed)),
            )
        )
    return [*answer_lines(series), "", *table(heads, cells, right=_RIGHT)]


def rule_lines() -> list[str]:
    return wrapped(RULE, columns())


# --- JSON ---


def as_table(series: Series, *, over_time: bool) -> dict[str, Any]:
    newest, fastest = series.newest, series.fastest
    whole: dict[str, Any] = {
        "id": newest.bench,
        "name": series.name,
        "command": newest.command,
        "machine": series.hardware,
        "host": list(series.hosts),
        "fingerprint": newest.machine,
        "at": newest.at,
        "state": series.results[-1].state or "ended",
        "fastest": None,
        "bench": [one.bench for one in series.results],
    }
    if fastest is None:
        return whole
    name = fastest.row.variant
    whole["fastest"] = {
        "variant": name,
        "seconds": spread_table(fastest.row.seconds),
        "seconds_of": fastest.row.seconds_of,
        "within_noise": list(fastest.alike),
        "than_before": _known_table(series.than_before(name)),
        "since_first": _known_table(series.since_first(name)),
    }
    if over_time:
        whole["result"] = [
            {
                "bench": step.result.bench,
                "at": step.result.at,
                "seconds": spread_table(step.row.seconds),
                "than_before": change_table(step.than_before),
                "until_now": change_table(step.until_now),
                "commit": step.result.commit,
                "torch": step.result.torch,
                "changed": list(step.changed),
            }
            for step in series.over_time(name)
        ]
    return whole


def spread_table(one: Spread | None) -> dict[str, float] | None:
    return None if one is None else {"median": one.median, "low": one.low, "high": one.high, "n": one.n}


def change_table(one: Change | None) -> dict[str, Any] | None:
    return None if one is None else {"verdict": one.verdict, "time_ratio": one.factor, "why": one.why}


def _known_table(known: tuple[Result, Change] | None) -> dict[str, Any] | None:
    return (
        None
        if known is None
        else {"bench": known[0].bench, "at": known[0].at, **(change_table(known[1]) or {})}
    )
