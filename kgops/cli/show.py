"""`kgops show`: state, options, attempts, metrics, files, messages, tags and notes of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import click

from kgops.cli import predictions_page
from kgops.cli.disk import disk_of_run
from kgops.cli.output import print_json, say
from kgops.cli.session import Session, existing, is_far
from kgops.errors import NoSuchRun
from kgops.jobs.events import LIBRARIES, PROCESS_PEAK, STARTED
from kgops.jobs.files import open_regular
from kgops.jobs.text import lines, one_line
from kgops.planning.fit import fit_of_run
from kgops.planning.oom_fallbacks import skipped_lines
from kgops.present.formats import (
    UNKNOWN,
    amount,
    columns,
    duration,
    local_time,
    off_by,
    reported,
    table,
    wrapped,
)
from kgops.present.log_lines import shown
from kgops.present.metric_order import MOST_SHOWN, most_important
from kgops.present.quality import FILTERS, HEADS, NUMBERS
from kgops.present.run_detail import RunDetail, read_run_detail
from kgops.supervisor.worker_reports import data_digests
from kgops.workloads.results import leaves
from storage import attempts, reports, runs, series
from storage.database import Connection
from storage.runs import Run

_SHOWN_WITH_LOG = ("failed", "out_of_memory", "interrupted")
_LOG_LINES, _LOG_BYTES = 8, 16 << 10
_ALLOCATED = "peak_allocated_mib"  # curve of torch's peak allocated GPU memory


@click.command(epilog="\b\nExample:  kgops show last\n          kgops show lab2:17")
@click.argument("name", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; keys are the database's columns.")
def command(name: str, as_json: bool) -> None:
    """Show a run: state and reason, attempts, options, metrics, artifacts, messages of the worker, tags and notes.

    lab2:17 is run 17 of host lab2.
    """
    if is_far(name):
        from kgops.cli.host_run import show_there

        show_there(name, as_json=as_json)
        return
    session = existing()
    run = session.run(name)
    if as_json:
        print_json(as_table(session, run))
        return
    for line in _page(session, run):
        say(line)


def as_table(session: Session, run: Run) -> dict[str, Any]:
    conn = session.conn
    spec = runs.spec(conn, run.id)
    return {
        **runs.as_table(run),
        "path": str(session.folder(run).path),
        "attempt": [asdict(attempt) for attempt in attempts.of_run(conn, run.id)],
        "option": [asdict(option) for option in reports.options(conn, run.id)],
        "metric": reports.metrics(conn, run.id),
        "series": [asdict(one) for one in series.of_run(conn, run.id)],
        "data": data_digests(conn, run.id),
        "event": [asdict(event) for event in reports.events(conn, run.id)],
        "artifact": [asdict(artifact) for artifact in reports.artifacts(conn, run.id)],
        "tag": reports.tags(conn, run.id),
        "note": [asdict(note) for note in reports.notes(conn, run.id)],
        "job": spec.job,
        "plan": spec.plan,
        "environment": spec.environment,
    }


def _page(session: Session, run: Run) -> list[str]:
    conn, folder = session.conn, session.folder(run)
    detail = read_run_detail(session.home, conn, run.id, only=(LIBRARIES, PROCESS_PEAK))
    if detail is None:
        raise NoSuchRun(f"run {run.id} has just been deleted", "`kgops runs` lists runs")
    plan = runs.spec(conn, run.id).plan
    fit = fit_of_run(run, detail.forecast)
    why = fit.words if fit is not None else run.reason
    out = [
        f"run {run.id} · {run.workload} · {one_line(run.label)}",
        f"  state      {run.state}" + (f": {one_line(why)}" if why else ""),
        f"  submitted  {local_time(run.submitted_at)}",
        f"  took       {duration(run.took_until(time.time()))}",
        f"  exit code  {UNKNOWN if run.exit_code is None else run.exit_code}",
        f"  profile    {one_line(run.profile or 'none')}",
        f"  GPU        {one_line(run.gpu or 'none')}{_device(conn, run)}",
        f"  memory     host peak {amount(run.peak_host_mib, 'MiB')} · GPU peak {amount(run.peak_gpu_mib, 'MiB')}"
        f" · predicted {_predicted(session, detail)}",
        *(f"  disk       {line}" for line in disk_of_run(plan, reports.metrics(conn, run.id))),
        *([f"  data       {detail.data}"] if detail.data else []),
        f"  folder     {folder.path}",
    ]
    for event in detail.imported:
        out.append(f"  imported   {local_time(event.at)} from {one_line(str(event.body.get('source')))}")
    if run.done is not None:
        total = f" of {run.total:g}" if run.total is not None else ""
        out.append(f"  progress   {one_line(run.phase or '')} {run.done:g}{total}".rstrip())
    if detail.tags:
        out.append("  tags       " + " ".join(one_line(tag) for tag in detail.tags))
    out += _attempts(detail, plan.get("skipped") or []) + _options(detail) + _metrics(session, detail)
    if detail.quality:
        out += ["", *table(HEADS, detail.quality, right=frozenset(HEADS[i] for i in NUMBERS))]
    answers = predictions_page.summary(folder.results)
    out += ["", *answers] if answers else []
    if leaves(run.workload, "explanations"):
        from kgops.cli import explanations_page  # with it come pictures of graphs, for no other run

        explained = explanations_page.summary(folder.results)
        out += ["", *explained] if explained else []
    if detail.messages:
        messages = [(local_time(at), text) for at, text in detail.messages]
        out += ["", *table(("TIME", "WORKER MESSAGE"), messages)]
    if run.state in _SHOWN_WITH_LOG and (last := _last_lines(session, run)):
        out += [
            "",
            f"LAST LINES OF THE LOG (kgops logs {run.id} prints all)",
            *(f"  {line}" for line in last),
        ]
    for note in detail.notes:
        out += ["", f"note of {local_time(note.at)}", *("  " + line for line in lines(note.text).split("\n"))]
    return out


def _last_lines(session: Session, run: Run) -> list[str]:
    with suppress(OSError), os.fdopen(open_regular(session.folder(run).log), "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _LOG_BYTES, 0))
        return [shown(raw)[: columns() - 2] for raw in file.read().splitlines() if raw.strip()][-_LOG_LINES:]
    return []


def _device(conn: Connection, run: Run) -> str:
    """Return the device that the newest worker really used."""
    devices = [event.body.get("device") for event in reports.events(conn, run.id, kinds=(STARTED,))]
    return f" · the worker used {one_line(str(devices[-1]))}" if devices and devices[-1] else ""


def _predicted(session: Session, detail: RunDetail) -> str:
    """Return the predicted memory, what it covers, and its error if measured."""
    run, traced = detail.run, detail.traced
    predicted = amount(run.predicted_mib, "MiB")
    if detail.process is not None and run.predicted_mib is not None:
        return f"{predicted} of the process{_error(detail)}{_counted_by_worker(traced)}"
    if traced is not None:
        measured = _measured_step(session, run, traced)
        return f"{predicted} of {one_line(traced['of'])}, by {one_line(traced['by'])}{measured}"
    if run.predicted_mib is None or detail.forecast is None:
        return predicted
    return (
        f"{predicted} on the GPU{_error(detail)}" if detail.forecast["on_gpu"] else f"{predicted} of tensors"
    )


def _error(detail: RunDetail) -> str:
    """Return the error of the prediction; of a process its measured peak too, which includes its start."""
    off = detail.prediction_error
    if off is None:
        return ""
    if detail.process is None:
        return f" ({off} measured)"
    return f" ({amount(detail.process_mib, 'MiB')} measured; above its start {off})"


def _counted_by_worker(traced: Mapping[str, Any] | None) -> str:
    """Return the part that the worker counted, on which the prediction of the whole process is based."""
    if traced is None:
        return ""
    return (
        f"; counted: {amount(traced['mib'], 'MiB')} of {one_line(traced['of'])}, by {one_line(traced['by'])}"
    )


def _measured_step(session: Session, run: Run, traced: Mapping[str, Any]) -> str:
    """Return torch's allocated GPU memory if only a step was predicted; torch does not count it on a CPU."""
    allocated = {one.name: one.last_value for one in series.of_run(session.conn, run.id)}.get(_ALLOCATED)
    step = traced.get("step_mib")
    if allocated is None or not step:
        return ""
    off = off_by(allocated, step)
    return f" ({amount(allocated, 'MiB')} measured" + (f", {off})" if off else ")")


def _attempts(detail: RunDetail, skipped: list[dict[str, Any]]) -> list[str]:
    made = detail.attempts
    if not made:
        return []
    rows = [
        (
            str(a.number),
            a.outcome or "running",
            duration((a.ended_at or time.time()) - a.started_at),
            amount(a.peak_host_mib, "MiB"),
            str(a.adoptions),
            ", ".join(f"{name}={value}" for name, value in a.settings.items()),
            a.reason or "",
        )
        for a in made
    ]
    heads = ("ATTEMPT", "OUTCOME", "TIME", "HOST PEAK", "ADOPTED", "SETTINGS", "WHY")
    out = ["", *table(heads, rows, right=frozenset({"ATTEMPT", "TIME", "HOST PEAK", "ADOPTED"}))]
    # The table is cut to the terminal's width; the run's own reason stands whole beside its state.
    cut = [
        a
        for a in made
        if a.reason and a.reason != detail.run.reason and one_line(a.reason) not in "\n".join(out)
    ]
    out += [f"attempt {a.number}: {one_line(a.reason or '')}" for a in cut]
    if any(a.outcome == "out_of_memory" for a in made):
        out += [f"not tried: {one_line(fallback)}" for fallback in skipped_lines(skipped)]
    return out


def _options(detail: RunDetail) -> list[str]:
    """Return the options of the newest attempt: requested, applied, who chose them and why."""
    rows = [
        (row.name, row.requested or UNKNOWN, row.applied or UNKNOWN, row.effect, row.by, row.why)
        for row in detail.options
    ]
    return ["", *table(("OPTION", "REQUESTED", "APPLIED", "EFFECT", "BY", "WHY"), rows)] if rows else []


def _metrics(session: Session, detail: RunDetail) -> list[str]:
    out: list[str] = []
    run = detail.run
    if detail.metrics:
        rows = [(name, amount(value)) for name, value in detail.metrics]
        out += ["", *table(("METRIC", "VALUE"), rows, right=frozenset({"VALUE"}))]
        out += _more(run, detail.metrics_left_out, "metrics")
    if {"best_valid_mrr", "test_mrr"} <= dict(detail.metrics).keys():
        out += wrapped(FILTERS, columns())
    curves = {one.name: one for one in series.of_run(session.conn, run.id)}
    shown = most_important(curves)
    if curves:
        listed = [(name, str(curves[name].n), reported(curves[name].last_value)) for name in shown]
        out += ["", *table(("CURVE", "POINTS", "LAST"), listed, right=frozenset({"POINTS", "LAST"}))]
        out += _more(run, len(curves) - len(shown), "curves")
    files = detail.artifacts
    if files:
        listed = [(a.kind, amount(a.bytes, "B"), a.path) for a in files[:MOST_SHOWN]]
        out += ["", *table(("ARTIFACT", "SIZE", "PATH"), listed, right=frozenset({"SIZE"}))]
        out += _more(run, len(files) - len(listed), "artifacts")
    return out


def _more(run: Run, count: int, what: str) -> list[str]:
    return [f"… and {count:,} more {what}: kgops show {run.id} --json has all."] if count else []
