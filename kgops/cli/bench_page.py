"""Format a benchmark for the terminal: variants, times, memory, ratios and verdicts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kgops.cli.output import say_result
from kgops.experiments import export
from kgops.experiments.benchmark_results import RULE as TIME_RULE
from kgops.experiments.benchmark_results import Change, Result, Series, answers, seconds_of
from kgops.experiments.fingerprint import machine_line
from kgops.experiments.summary import RULE, Row, rows, shown
from kgops.experiments.trial_result import Spread
from kgops.jobs.text import one_line
from kgops.present.formats import UNKNOWN, amount, columns, local_time, seconds_text, table, wrapped
from storage import benches
from storage.benches import Bench
from storage.database import Connection


def say_bench(conn: Connection, bench: Bench, as_json: bool) -> None:
    say_result(as_json, lambda: export.as_table(conn, bench), lambda: page(conn, bench))


def page(conn: Connection, bench: Bench) -> list[str]:
    results = rows(conn, bench)
    pairs = benches.pairs(conn, bench.id)
    first = results[0]
    state = "" if bench.ended_at else f" · unfinished: {len(pairs)} of {_planned(bench)} pairs"
    out = [
        f"benchmark {bench.id} · {bench.name} · {local_time(bench.begun_at)}{state}",
        *wrapped(f"command      {bench.command}", columns(), "  "),
        *wrapped(f"fingerprint  {machine_line(conn, bench.fingerprint)}", columns(), "  "),
        *wrapped(f"time         {first.seconds_of or UNKNOWN}", columns(), "  "),
        *wrapped(f"memory       {first.memory_of or UNKNOWN}", columns(), "  "),
        "",
        *_table(results),
    ]
    out += _notes(results)
    rule = f"FASTER, LESS MEMORY: medians over pairs of {first.variant} divided by the variant. {RULE}"
    return [*out, "", *wrapped(rule, columns())]


def as_markdown(conn: Connection, bench: Bench) -> str:
    """The table of `kgops bench show`, for a paper."""
    results = rows(conn, bench)
    first = results[0]
    lines = [[*_HEADS, "VERDICT"], ["---"] * (len(_HEADS) + 1)]
    lines += [[*_cells(row), shown(row.verdict, row.why)] for row in results]
    parts = [
        f"**{_md(bench.name)}**: each variant against {_md(first.variant)}, pair by pair; medians (quartiles).",
        "",
        *(f"| {' | '.join(map(_md, line))} |" for line in lines),
        "",
        f"Command: `{bench.command}`. Time: {first.seconds_of or UNKNOWN}. Memory: {first.memory_of or UNKNOWN}.",
        f"Fingerprint {machine_line(conn, bench.fingerprint)}.",
        *(_md(note.strip()) for note in _notes(results) if note),
        RULE,
    ]
    return "\n".join(parts)


def _md(text: str) -> str:
    return one_line(text).replace("|", "\\|")


_HEADS = ("VARIANT", "TIME", "FASTER", "QUARTILES", "N", "MEMORY", "LESS MEMORY")


def _table(results: list[Row]) -> list[str]:
    """Return the table of variants. On a narrow terminal each verdict goes below its row instead of being cut."""
    right = frozenset({"TIME", "FASTER", "N", "MEMORY"})
    cells = [_cells(row) for row in results]
    verdict_texts = [shown(row.verdict, row.why) for row in results]
    wide = table(
        (*_HEADS, "VERDICT"),
        [(*row, word) for row, word in zip(cells, verdict_texts, strict=True)],
        right=right,
    )
    before = wide[0].index("VERDICT")
    if not sys.stdout.isatty() or before + max(map(len, verdict_texts)) <= columns():
        return wide
    head, *lines = table(
        (*_HEADS[:-1], "LESS"), [(*row[:-1], row[-1].split(" ")[0]) for row in cells], right=right
    )
    out = [head]
    for line, word in zip(lines, verdict_texts, strict=True):
        out += [line, *wrapped(word, columns(), "    ")]
    return out


def ratio(one: Spread | None) -> str:
    return UNKNOWN if one is None else f"{one.median:.2f}×"


def quartiles(one: Spread | None) -> str:
    return UNKNOWN if one is None else f"{one.low:.2f}–{one.high:.2f}"


def _cells(row: Row) -> tuple[str, ...]:
    alone = row.variant == row.baseline
    return (
        row.variant,
        amount(row.seconds.median if row.seconds else None, "s"),
        "1" if alone else ratio(row.speed),
        "" if alone else quartiles(row.speed),
        str(row.seconds.n) if alone and row.seconds else str(row.speed.n) if row.speed else "0",
        amount(row.memory_mib.median if row.memory_mib else None, "MiB"),
        "" if alone else f"{ratio(row.memory)} ({quartiles(row.memory)})" if row.memory else UNKNOWN,
    )


def _notes(results: list[Row]) -> list[str]:
    out = []
    for row in results[1:]:
        remarks = [f"{name} was not applied: {why}" for name, why in row.unapplied.items()]
        for name, (before, after) in row.quality.items():
            if after is not None and before != after:
                remarks.append(f"{name} {amount(before)} → {amount(after)}")
        if remarks:
            out += [f"  {row.variant}: {'; '.join(remarks)}"]
    busy = [row.busy for row in results if row.busy is not None]
    if busy and max(busy) > 0.15:
        out += [
            f"  machine not idle: other processes used {max(busy):.0%} of the CPUs before the rounds (median)"
        ]
    return ["", *out] if out else []


def _planned(bench: Bench) -> int:
    rounds: int = bench.plan["rounds"]
    return rounds * (len(bench.plan["variants"]) - 1)


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
    return wrapped(TIME_RULE, columns())


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
    return None if one is None else asdict(one)


def change_table(one: Change | None) -> dict[str, Any] | None:
    return None if one is None else {"verdict": one.verdict, "time_ratio": one.factor, "why": one.why}


def _known_table(known: tuple[Result, Change] | None) -> dict[str, Any] | None:
    return (
        None
        if known is None
        else {"bench": known[0].bench, "at": known[0].at, **(change_table(known[1]) or {})}
    )
