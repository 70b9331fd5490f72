"""`kgops bench claims`: measure the options of the scripts' documents on this machine, and say which pay."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import click

from kgops.cli.output import say_result, tell
from kgops.cli.session import for_writing
from kgops.experiments.claims import NOT_YET, Measured, Page, page
from kgops.experiments.comparison import Context, run_comparison
from kgops.experiments.documented import TABLES, comparisons
from kgops.experiments.trial_result import Spread
from kgops.gpus.facts import facts_here
from kgops.present.formats import UNKNOWN, amount, columns, duration, fitted, padded, small_duration, wrapped


@click.command(epilog="\b\nExample:  kgops bench claims --quick --only b")
@click.option(
    "--quick", is_flag=True, help="Small versions: a few minutes on two cores. Results are marked as quick."
)
@click.option("--only", "wanted", type=click.Choice([*TABLES]), help="Measure only this table.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with train.txt for a and b; default: a synthetic graph.",
)
@click.option("--afresh", is_flag=True, help="Start again instead of continuing an unfinished benchmark.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(quick: bool, wanted: str | None, data: Path | None, afresh: bool, as_json: bool) -> None:
    """Measure which options of the scripts' documents pay on this machine's GPU, or on its CPU without one.

    \b
    a  training ConvE: FP16, bf16, cleanup, checkpointing, compile, kgops
    b  TracIn: the same, last layers, caching, vectorised gradients, filtering, kgops
    c  the loss over all entities: dense labels, the documents' efficient loss, kgops
    d  the regression network: FP16, checkpointing, compile, the small model

    `kgops bench show claims` shows the page again.
    """
    begun = time.monotonic()
    # Part of the fingerprint: on a CPU, variants are compared on one thread.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    session = for_writing()
    context = Context(session.home, session.conn, tell)
    gpu = facts_here(None)
    if gpu is not None and gpu.cuda_problem is not None:
        tell(f"Note: measuring on the CPU: {gpu.cuda_problem.reason}; {gpu.cuda_problem.hint}.")
    for name in [wanted] if wanted else TABLES:
        arguments = ["kgops", "bench", "claims", *(["--quick"] if quick else []), "--only", name]
        arguments += ["--data", "DIR"] if data else []
        on_gpu = gpu is not None and gpu.cuda_problem is None
        for one in comparisons(name, quick=quick, data=data, gpu=on_gpu):
            run_comparison(context, one, shlex.join(arguments), afresh=afresh)
    found = page(session.conn)
    say_result(as_json, lambda: found.as_table(), lambda: lines(found, columns()))
    tell(f"It took {duration(time.monotonic() - begun)}.")


WIDE = 110  # columns from which the claims have a column
_OPTION, _CLAIM, _SPEED, _MEMORY, _RESULTS, _NARROW_RESULTS = 22, 29, 6, 11, 24, 16
_TITLES = {"a": "TRAINING CONVE", "c": None, "b": "TRACIN", "d": "REGRESSION"}  # the loss belongs to training
_ROW, _CLAIMED = 34, 30
_SAME = 0.005


def lines(page: Page, width: int) -> list[str]:
    """Options first, then the documents' tables."""
    where = "; ".join(page.machines) or "this machine: nothing is measured yet"
    out = [fitted(f"WHICH OPTIONS PAY on {where}", width)]
    legend = "2× is twice as fast. ±: largest difference of a score. top 50: the share that stays."
    out += wrapped(f"CLAIMED: by the scripts' guides. {legend}" if width >= WIDE else legend, width)
    by_letter = {one.letter: one for one in page.tables}
    for letter, title in _TITLES.items():
        table = by_letter[letter]
        if title is not None:
            out += ["", _cells([title, "CLAIMED", "SPEED", "MEMORY", " RESULTS", "ANSWER"], width)]
        out += [_option(one, width) for one in table.options]
    out += _footnotes(page, width)
    for document in page.documents:
        out += ["", *_row(document.title.upper(), "CLAIMED", f"MEASURED ({document.unit})", width)]
        out += [line for one in document.rows for line in _row(one.name, one.claim, _amounts(one), width)]
    return out


def _option(one: Measured, width: int) -> str:
    answer = f"→ {(one.answer or '').replace('use if', 'if')}"
    if one.why:
        answer = "not measured" if one.why == NOT_YET else f"not measured: {one.why}"
    measured = [_ratio(one.speed), _memory(one.memory), f" {_results(one)}"]
    return _cells([one.name, one.claim, *measured, answer], width)


def _cells(texts: list[str], width: int) -> str:
    """The columns of an option. A narrow terminal has no room for the claims."""
    wide = width >= WIDE
    widths = [_OPTION, _CLAIM if wide else 0, _SPEED, _MEMORY, _RESULTS if wide else _NARROW_RESULTS]
    *cells, answer = texts
    shown = [
        padded(fitted(text, room), room, right=room in (_SPEED, _MEMORY))
        for text, room in zip(cells, widths, strict=True)
        if room
    ]
    return fitted(" ".join([*shown, answer]), width)


def _row(name: str, claim: str, measured: str, width: int) -> list[str]:
    """A row of a document's table. On a narrow terminal what was measured is below it."""
    first = f"{padded(fitted(name, _ROW), _ROW)} {padded(fitted(claim, _CLAIMED), _CLAIMED)}"
    if width >= WIDE:
        return [fitted(f"{first} {measured}", width)]
    return [fitted(first.rstrip(), width), fitted(f"  {measured}", width)]


def _amounts(one: Measured) -> str:
    if one.why:
        return one.why
    parts = [UNKNOWN if one.seconds is None else small_duration(one.seconds), amount(one.mib, "MiB")]
    parts += [f"{_ratio(one.speed)} speed"] if one.speed else []
    parts += [f"{_memory(one.memory)} memory"] if one.memory else []
    return ", ".join(parts)


def _ratio(one: Spread | None) -> str:
    if one is None:
        return ""
    return f"{one.median:,.0f}×" if one.median >= 100 else f"{one.median:.2f}×"


def _memory(one: Spread | None) -> str:
    """`2.00× less`, `7.69× more`, `the same`."""
    if one is None:
        return ""
    if abs(one.median - 1) < _SAME:
        return "the same"
    factor, word = (one.median, "less") if one.median > 1 else (1 / max(one.median, 1e-9), "more")
    shown = ">999" if factor > 999 else f"{factor:.0f}" if factor >= 100 else f"{factor:.2f}"
    return f"{shown}× {word}"


def _results(one: Measured) -> str:
    return one.results or ("" if one.why else "not compared")


def _footnotes(page: Page, width: int) -> Iterator[str]:
    noises = [f"{one.title} {one.noise:.0%}" for one in page.tables if one.machine is not None]
    if noises:
        small = " Quick: small graphs and models. Rows that it left out are marked `quick`."
        quick = small if any(one.is_quick for one in page.tables) else ""
        yield from wrapped(f"Noise (the baseline, run twice): {', '.join(noises)}.{quick}", width)
    if page.missing:
        yield from wrapped("To measure what is not measured yet: kgops bench claims --quick", width)
