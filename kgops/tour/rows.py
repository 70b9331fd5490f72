"""Database rows of a sample run. Its label, tags, note, machine, files and `imported` event mark it as sample data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from kgops.jobs import events
from kgops.jobs.job import read_job
from kgops.jobs.options import effect_of
from kgops.planning.oom_fallbacks import Fallback
from kgops.supervisor.run_folder import RunFolder
from kgops.tour.curves import wobble
from kgops.tour.home import TAG
from kgops.tour.story import GPU, SAMPLE_DATA, SAMPLE_MARK, SAMPLE_TAG, SampleRun, environment
from storage import transfer
from storage.database import Connection
from storage.transfer import TABLES, Curve, Rows

__all__ = ["put_files", "rows_of"]

_NOTE = "Sample data: this run never took place, and nothing in it was measured."


def rows_of(conn: Connection, story: SampleRun, now: float) -> Rows:
    """The rows for `put_record`, which assigns number and folder."""
    begun = now - story.days * 86400
    label = f"{story.label} {SAMPLE_MARK}"
    options = {one.name: _typed(one.requested) for one in story.options if one.by == "person"}
    job = {"workload": story.workload, "label": label, story.workload: story.settings, "options": options}
    profile = None if story.workload == "exec" else "t4"
    normalized = read_job({**job, "profile": profile} if profile else job, SAMPLE_DATA).as_table()
    spec = {"job": normalized, "plan": _plan(story), "environment": environment()}
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    tables |= {
        "attempt": list(_attempts(conn, story, begun)),
        "option": list(_options(story)),
        "metric": [{"name": name, "value": value} for name, value in story.metrics.items()],
        "event": list(_events(story, begun)),
        "artifact": [_artifact(path, text, begun + 60 * story.minutes) for path, text in _files(story)],
        "tag": [{"tag": tag} for tag in sorted({TAG, SAMPLE_TAG, *story.tags})],
        "note": [{"at": begun + 60 * story.minutes, "text": text} for text in (_NOTE, *story.notes)],
        **_influence_rows(story),
    }
    return Rows(_run(conn, story, label, profile, begun), spec, tables, list(_curves(story, begun)))


def put_files(story: SampleRun, folder: RunFolder) -> None:
    """Writes the log and the result files that the rows name."""
    folder.log.write_text("".join(f"{line}\n" for line in (f"({SAMPLE_DATA})", *_log(story))))
    for path, text in _files(story):
        (folder.path / path).write_text(text)


def _blank(conn: Connection, table: str) -> dict[str, Any]:
    """An empty row with all columns of the table's current schema."""
    blank = {"INTEGER": 0, "REAL": 0.0, "TEXT": ""}
    return {
        column.name: ({} if column.is_json else blank[column.type]) if column.required else None
        for column in transfer.columns(conn, table)
    }


def _run(conn: Connection, story: SampleRun, label: str, profile: str | None, begun: float) -> dict[str, Any]:
    phase, done, total, unit = story.progress or (None, None, None, None)
    metric = next((name for name in story.metrics if "mrr" in name or "loss" in name), None)
    known = {
        "workload": story.workload,
        "label": label,
        "profile": profile,
        "folder": "",
        "state": story.state,
        "reason": story.reason,
        "attempts": len(story.attempts),
        "submitted_at": begun - 2,
        "started_at": begun,
        "ended_at": begun + 60 * story.minutes,
        "exit_code": {"succeeded": 0, "interrupted": None, "cancelled": None}.get(story.state, 1),
        "predicted_mib": story.predicted_mib,
        "phase": phase,
        "done": done,
        "total": total,
        "unit": unit,
        "peak_gpu_mib": story.took_mib if story.on_gpu else None,
        "peak_host_mib": 1850.0 if story.on_gpu else story.took_mib,
        "gpu": GPU["uuid"] if story.on_gpu else None,
        "gpu_request": "auto" if story.on_gpu else None,
        "metric": metric,
        "metric_value": story.metrics[metric] if metric else None,
    }
    return {**_blank(conn, "run"), **known}


def _plan(story: SampleRun) -> dict[str, Any]:
    choices = [
        {
            "option": one.name,
            "requested": one.requested,
            "applied": one.applied,
            "chosen_by": one.by,
            "reason": None,
        }
        for one in story.options
    ]
    fallbacks = [_table(fallback) for fallback in story.fallbacks]
    return {
        "choices": choices,
        "fallbacks": fallbacks,
        "forecast": _forecast(story),
        "cwd": "/",
        "made_up": SAMPLE_DATA,
    }


def _table(fallback: Fallback) -> dict[str, Any]:
    """The fallback as JSON."""
    table = fallback.as_table()
    return {**table, "changes": list(table["changes"])}


def _forecast(story: SampleRun) -> dict[str, Any] | None:
    total = story.predicted_mib
    if total is None:
        return None
    estimate = {
        "phase": "step",
        "parts_mib": story.parts_mib,
        "phases_mib": {"step": total},
        "live_mib": total,
        "reserved_mib": total,
        "total_mib": total,
    }
    on = GPU["name"] if story.on_gpu else f"a CPU, {SAMPLE_DATA}"
    return {
        "on": on,
        "on_gpu": story.on_gpu,
        "predicted_mib": total,
        "modelled_s": None,
        "usable_mib": 14909.0,
        "estimate": estimate,
    }


def _attempts(conn: Connection, story: SampleRun, begun: float) -> Iterator[dict[str, Any]]:
    at = begun
    settings: dict[str, Any] = {}
    blank = _blank(conn, "attempt")
    for number, one in enumerate(story.attempts, 1):
        ended = at + 60 * story.minutes * one.share
        peak = None if story.took_mib is None else story.took_mib * one.peak
        known = {
            "number": number,
            "outcome": one.outcome,
            "reason": one.reason,
            "settings": dict(settings),
            "started_at": at,
            "ended_at": ended,
            "gpu": GPU["uuid"] if story.on_gpu else None,
            "peak_gpu_mib": peak if story.on_gpu else None,
            "peak_host_mib": 1850.0 if story.on_gpu else peak,
        }
        yield {**blank, **known}
        at = ended
        if one.fallback is not None:
            settings = one.fallback.settings


def _options(story: SampleRun) -> Iterator[dict[str, Any]]:
    """The options of the last attempt, as the OOM fallbacks changed them."""
    replaced = {name: value for fallback in story.fallbacks for name, value in fallback.settings.items()}
    for one in story.options:
        applied, reason = one.applied, one.why
        if one.name in replaced:
            applied, reason = _shown(replaced[one.name]), "OOM fallback after out of memory"
        row = {"requested": one.requested, "applied": applied, "reason": reason, "chosen_by": one.by}
        yield {"attempt": len(story.attempts), "name": one.name, "effect": effect_of(one.name), **row}


def _events(story: SampleRun, begun: float) -> Iterator[dict[str, Any]]:
    at = begun
    for number, one in enumerate(story.attempts, 1):
        yield _event(number, at, events.NOTE, {"text": f"{SAMPLE_DATA}: nothing was started"})
        at += 60 * story.minutes * one.share
        if one.fallback is not None:
            fallback = _table(one.fallback)
            body = {
                "after": one.outcome,
                "reason": one.reason,
                "settings": one.fallback.settings,
                "fallback": fallback,
            }
            yield _event(number, at, "step_down", body)
        elif number < len(story.attempts):
            yield _event(number, at, "again", {"after": one.outcome, "reason": one.reason})


def _event(attempt: int, at: float, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"attempt": attempt, "at": at, "kind": kind, "body": body}


def _influence_rows(story: SampleRun) -> dict[str, list[dict[str, Any]]]:
    traced, influence = [], []
    names: dict[str, str] = {}
    for one in story.traced:
        triple = {"head": one.head, "relation": one.relation, "tail": one.tail}
        traced.append({"test": one.test, **triple, "candidates": one.candidates, "trouble": one.trouble})
        influence += [
            {
                "test": one.test,
                "rank": i.rank,
                "head": i.head,
                "relation": i.relation,
                "tail": i.tail,
                "score": i.score,
            }
            for i in one.found
        ]
        names |= one.names
    readable = [{"label": label, "name": name} for label, name in names.items()]
    return {"test_triple": traced, "influence": influence, "readable": readable}


def _curves(story: SampleRun, begun: float) -> Iterator[Curve]:
    seconds = 60 * story.minutes
    for curve in story.curves:
        numbers = range(curve.points)
        times = [begun + seconds * (n + 1) / curve.points for n in numbers]
        yield Curve(curve.name, [curve.step(n) for n in numbers], [curve.value(n) for n in numbers], times)
    if story.took_mib is None:
        return
    # Memory rises while data are loaded, then stays constant.
    name = "gpu_memory_mib" if story.on_gpu else "host_memory_mib"
    share = [min(1.0, 0.4 + 0.2 * n) - 0.01 * abs(wobble(story.label, n)) for n in range(40)]
    share[20] = 1.0
    times = [begun + seconds * n / 40 for n in range(40)]
    yield Curve(name, [at - begun for at in times], [story.took_mib * one for one in share], times)


def _files(story: SampleRun) -> list[tuple[str, str]]:
    if story.state != "succeeded":
        return []
    lines = [f"{name} {value:g}\n" for name, value in story.metrics.items()]
    return [("results/metrics.txt", f"({SAMPLE_DATA})\n" + "".join(lines))]


def _artifact(path: str, text: str, at: float) -> dict[str, Any]:
    raw = text.encode()
    digest = hashlib.sha256(raw).hexdigest()
    return {"path": path, "kind": "metrics", "sha256": digest, "bytes": len(raw), "at": at}


def _log(story: SampleRun) -> Iterator[str]:
    longest = max((curve.points for curve in story.curves), default=0)
    shown = [curve for curve in story.curves if curve.points == longest]
    for n in range(longest):
        points = ((curve.name, curve.value(n)) for curve in shown)
        values = "  ".join(f"{name} {'nan' if value is None else f'{value:.4f}'}" for name, value in points)
        yield f"INFO epoch {shown[0].step(n):g}  {values}"
    yield from story.log
    if story.state in ("failed", "out_of_memory"):
        yield f"ERROR {story.reason}"


def _typed(word: str) -> Any:
    return {"on": True, "off": False}.get(word, int(word) if word.isdecimal() else word)


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
