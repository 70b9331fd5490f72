"""Texts for run states, ends, progress, rates, metrics and times; and the order of metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from kgops.errors import KgopsError
from kgops.jobs.text import OUT_OF_RANGE, clock, is_timestamp, one_line
from kgops.present.formats import NOT_FINITE, UNKNOWN, amount, duration, fitted, width_of
from kgops.present.rows import Piece, Row, text_row
from storage.errors import StorageError

if TYPE_CHECKING:
    from kgops.present.overview import EndedRun
    from kgops.supervisor.alerts import Alert
    from storage.runs import Run

_SIGNS = {
    "succeeded": ("✓", "good"),
    "failed": ("✗", "bad"),
    "out_of_memory": ("✗", "bad"),
    "interrupted": ("✗", "bad"),
    "cancelled": ("■", "dim"),
    "queued": ("·", "dim"),
    "starting": ("›", "accent"),
    "running": ("›", "accent"),
}
_WEEK_S = 6 * 86_400.0  # within this time a weekday is unambiguous
_MANY = 1e15  # from here numbers are shown in scientific notation
_SPLIT_PREFIXES = ("valid_", "val_", "test_", "train_")
_ES = ("ches", "shes", "sses", "xes")  # plural endings of which `es` is removed
_NAMES = {"cancelled": "stopped", "out_of_memory": "out of memory", "queued": "waiting"}


def error_text(error: KgopsError | StorageError) -> str:
    """Message and hint of an error."""
    return f"{error.message} — {error.hint}" if error.hint else error.message


def notification(alert: Alert) -> str:
    """OSC 9, which many terminals show on the desktop."""
    about = "" if alert.run is None else f"run {alert.run.id}: "
    text = one_line(f"kgops: {about}{alert.text}", 200)
    return through_tmux(f"\x1b]9;{text}\x07")


def through_tmux(osc: str) -> str:
    """tmux hands on what is wrapped, where its option allow-passthrough is on."""
    return f"\x1bPtmux;\x1b{osc}\x1b\\" if os.environ.get("TMUX") else osc


def alert_row(kind: str, text: str, width: int, key: Hashable | None = None) -> Row:
    """`! run 7  failed: exit code 1`; a note is quieter."""
    tone = "dim" if kind == "note" else "bad" if kind in ("failed", "out of memory", "disk") else "warn"
    words = text_row(text, width - 2, "dim" if kind == "note" else "text")
    return Row((Piece("· " if kind == "note" else "! ", tone), *words.pieces), key)


def sign_of(run: Run) -> Piece:
    """Sign and colour of a run's state, one on all screens; the sign is for colour-blind people."""
    return Piece(*sign_of_state(run.state, run.oom_attempts))


def sign_of_state(state: str, oom_attempts: int) -> tuple[str, str]:
    if state == "succeeded" and oom_attempts:
        return "▼", "warn"
    return _SIGNS.get(state, ("?", "dim"))


def state_of(run: Run) -> str:
    return _NAMES.get(run.state, run.state)


def attempt_of(run: Run) -> str:
    """`attempt 2`; empty for a first one. Of a run that is resumed it is the one that comes."""
    number = run.attempts or 0
    number += bool(number) and run.state in ("queued", "starting") and run.attempt_since is None
    return f"attempt {number}" if number > 1 else ""


def progress_of(run: Run, width: int = 80) -> str:
    """`epoch 37/100`; without the phase where it does not fit. `validate` has no numbers: it is no part of the
    whole."""
    count = ""
    if run.done is not None:
        count = _count(run.done) + (f"/{_count(run.total)}" if run.total is not None else "")
    words = f"{one_line(run.phase)} {count}".strip() if run.phase else count
    if len(words) <= width or not count:
        return words
    return "validate" if run.phase == "validate" else count


def going(run: Run) -> str:
    """`running  epoch 37/100`, `waiting: waits for memory on GPU 0`: what a run does that has not ended."""
    if run.state == "queued" and run.reason:
        return f"{state_of(run)}: waits for {one_line(run.reason)}"
    return f"{state_of(run)}  {progress_of(run)}".rstrip()


def speed_of(run: Run) -> str:
    """Throughput `5.1 it/s`, or step time `39.8 s/epoch` for steps longer than a second."""
    if run.rate is None:
        return ""
    unit = one_line(run.unit or "it")
    if 0 < run.rate < 1:
        return f"{_seconds(1 / run.rate)}/{_one_of(unit)}"
    return f"{run.rate:,.1f} {unit}/s" if abs(run.rate) < _MANY else f"{amount(run.rate)} {unit}/s"


def metric_of(run: Run, width: int = 40) -> str:
    """`valid_mrr 0.2870`; in less room the name is shortened, never the value."""
    if run.metric is None:
        return ""
    value, name = short_reported(run.metric_value), one_line(run.metric, 24)
    room = width - len(value) - 1
    if width_of(name) > room:
        name = next((name.removeprefix(of) for of in _SPLIT_PREFIXES if name.startswith(of)), name)
    return f"{fitted(name, max(room, 1))} {value}"


def took(run: Run) -> str:
    """Duration of an ended run; empty if it never started."""
    return "" if run.took_s is None else duration(run.took_s)


def since(run: Run) -> str:
    """Start of the attempt: unlike a running duration, it does not repaint the screen every second."""
    started_at = run.attempt_since
    if started_at is None:
        return ""
    today = clock(started_at, "%Y-%m-%d") == clock(time.time(), "%Y-%m-%d")
    return clock(started_at, "since %H:%M" if today else "since %d %b")


def short_time(at: float, now: float) -> str:
    """Time of today, weekday of the last week, otherwise the date."""
    if not is_timestamp(at):
        return OUT_OF_RANGE
    when, today = time.localtime(at), time.localtime(now)
    if when[:3] == today[:3]:
        return time.strftime("%H:%M", when)
    if 0 < now - at < _WEEK_S:
        return time.strftime("%a %H:%M", when)
    return time.strftime("%d %b" if when[0] == today[0] else "%b %Y", when)


def outcome_of(one: EndedRun, width: int) -> str:
    """Why an ended run failed, or its peak: the longest of the texts that fits."""
    texts = _outcome_texts(one)
    return next((text for text in texts if width_of(text) <= width), texts[-1])


def _outcome_texts(one: EndedRun) -> list[str]:
    """Longest first."""
    run = one.run
    if run.state != "succeeded":
        state = state_of(run)
        return [f"{state}: {run.reason}", run.reason] if run.reason and run.state != "cancelled" else [state]
    if one.steps is not None:
        return [one.steps, one.steps.partition(": ")[2] or one.steps]
    if run.peak_gpu_mib:
        return _beside_predicted(f"{run.peak_gpu_mib:,.0f} MiB GPU", run)
    if run.peak_host_mib is None:
        return [""]
    host = f"{run.peak_host_mib:,.0f} MiB host"
    if one.process_mib is not None:
        return _beside_predicted(f"{one.process_mib:,.0f} MiB process", run)
    return [host]


def _beside_predicted(peak: str, run: Run) -> list[str]:
    return [f"{peak} (predicted {run.predicted_mib:,.0f})", peak] if run.predicted_mib else [peak]


def short_reported(value: float | None) -> str:
    """Of a metric that was reported: one without a value was not a finite number."""
    return NOT_FINITE if value is None else short_amount(value)


def tick_label(text: str, value: float, width: int) -> str:
    """The text of a tick, or as many digits of its value as fit: a label that is cut says another number."""
    shorter = (f"{value:.{digits}g}" for digits in range(6, 0, -1))
    return next((one for one in (text, *shorter) if len(one) <= width), fitted(text, width))


def short_amount(value: float | None) -> str:
    """Three or four digits in a stable width: `0.2870`, `12.50`, `1,204`."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= _MANY:
        return amount(value)
    if size >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 10:
        return f"{value:.2f}"
    return f"{value:.4f}" if size >= 0.001 else amount(value)


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else duration(value)


def _one_of(unit: str) -> str:
    """Singular of a unit such as `epochs`; a worker may report any word."""
    return unit[:-2] if unit.endswith(_ES) else unit.removesuffix("s")


def _count(value: float) -> str:
    if abs(value) >= _MANY:
        return amount(value)
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


MOST_SHOWN = 200  # metrics, and curves, of one run: a record may have thousands
_MOST_HEADLINES = 6
_OTHER = 2  # rank of a curve that kgops knows nothing about
_RARELY_WATCHED = ("learning_rate",)  # shown last
_FIRST = ("mrr", "hits_at_10", "hits_at_3", "hits_at_1", "mean_rank", "r2", "rmse", "mae")
# Of these a run reports how it went, not what it reached.
_BOOKKEEPING = ("best_epoch", "disk_mib", "epochs", "fp16_overflows", "train_s")
_ABBREVIATIONS = ("gpu", "mae", "mape", "mrr", "mse", "rmse", "r2")
_HIGHER = ("mrr", "r2", "hits_at", "accuracy", "auc", "f1", "_per_s")
_LOWER = ("loss", "rank", "mae", "mse", "error", "took", "_seconds", "_mib", "train_s", "fp16_overflows")


def curve_rank(name: str) -> tuple[int, str]:
    """Sorts curves: loss, MRR, other metrics, times, memory, the rest."""
    if name == "loss":
        return 0, name
    if name.endswith("mrr"):
        return 1, name
    if name.endswith("_mib"):
        return 4, name
    return (5 if name in _RARELY_WATCHED else 3 if name.endswith("_seconds") else _OTHER), name


def headlines(names: Iterable[str]) -> list[str]:
    """The metrics that say what a run reached: of the test, otherwise of the validation, otherwise any."""
    known = sorted(set(names) - set(_BOOKKEEPING), key=_headline_rank)
    for start in ("test_", "best_valid_", "valid_", ""):
        found = [name for name in known if name.startswith(start)]
        if found:
            return found[:_MOST_HEADLINES]
    return []


def most_important(names: Iterable[str]) -> list[str]:
    """At most `MOST_SHOWN` of them, in their order: what says how a run went, then what kgops measured, then others."""
    known = list(names)
    if len(known) <= MOST_SHOWN:
        return known
    first = set(headlines(known))
    by_rank = sorted(
        known, key=lambda name: (name not in first, curve_rank(name)[0] == _OTHER, curve_rank(name))
    )
    kept = set(by_rank[:MOST_SHOWN])
    return [name for name in known if name in kept]


def _headline_rank(name: str) -> tuple[int, str]:
    place = next((i for i, end in enumerate(_FIRST) if name.endswith(end)), len(_FIRST))
    return place, name


def title_of(name: str) -> str:
    """`test_hits_at_10`: test hits@10; `test_mrr`: test MRR."""
    name = name.replace("_mib", "_memory") if name.startswith("peak_") else name
    words = name.replace("hits_at_", "hits@").split("_")
    return " ".join(word.upper() if word in _ABBREVIATIONS else word for word in words)


def lower_is_better(name: str) -> bool | None:
    """None where nobody knows, as of metrics that a command reports, and of what was not measured."""
    if name.startswith("predicted"):
        return None
    if any(part in name for part in _LOWER):
        return True
    return False if any(part in name for part in _HIGHER) else None
