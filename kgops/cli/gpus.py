"""`kgops gpus`: show GPUs with memory, utilization, processes and the run of each process."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click

from kgops.cli.groups import hosts_option
from kgops.cli.output import say, say_lines, say_result, tell
from kgops.cli.session import Session, for_reading
from kgops.errors import KgopsError, Usage
from kgops.gpus.known import known_by_name
from kgops.gpus.processes import all_processes, is_mps_server, sees_host_pids
from kgops.gpus.readings import GpuReading, NvmlProblem, Snapshot
from kgops.gpus.sampler import DRIVER_WITHIN_S, GpuSampler, silent
from kgops.jobs.text import one_line
from kgops.planning.fit import fit_of_run
from kgops.present import process_columns
from kgops.present.formats import UNKNOWN, amount, fitted, table, whole
from kgops.present.gpu_cells import gpu_row, load, short_name
from kgops.present.gpus import GpuUsage, GpuUsageReader
from kgops.settings import find_home
from storage import runs
from storage.errors import DatabaseMissing, StorageError

_HEADS = ("GPU", "NAME", "CC", "USED", "FREE", "RESV", "TOTAL", "UTIL", "TEMP", "POWER")
_LONGEST_NAME = 16  # columns


@dataclass(frozen=True, slots=True)
class View:
    """One snapshot of the GPUs with the runs on them."""

    snapshot: Snapshot
    gpus: tuple[GpuUsage, ...]
    waiting: tuple[str, ...]  # a sentence for each run that waits for a GPU
    own_pids: bool  # whether the driver's PIDs are valid here; not in most containers


def page(view: View, columns: int) -> list[str]:
    """Return the tables, and notes of at most `columns`."""
    snapshot = view.snapshot
    if snapshot.problem is not None:
        return problem_lines(snapshot.problem, columns)
    if not snapshot.gpus:
        return [f"The driver ({_driver(snapshot)}) finds no GPU."]
    lines = [
        f"{_driver(snapshot)}; memory in MiB, CC is compute capability",
        *_gpus(view.gpus),
    ]
    for gpu in snapshot.gpus:
        if gpu.problem is not None:
            lines += ["", f"GPU {gpu.index}:", *problem_lines(gpu.problem, columns)]
    listed = [one for usage in view.gpus for one in usage.processes or ()]
    return lines + process_columns.lines(listed, snapshot.taken_at) + notes(view, columns)


def problem_lines(problem: NvmlProblem, columns: int) -> list[str]:
    """Return the message and the hint of a problem."""
    lines = textwrap.wrap(one_line(problem.message[:1].upper() + problem.message[1:]), columns)
    return lines + textwrap.wrap(
        one_line(problem.hint), columns, initial_indent="  → ", subsequent_indent="    "
    )


def _driver(snapshot: Snapshot) -> str:
    cuda = snapshot.cuda_version
    return f"driver {snapshot.driver_version or UNKNOWN}, CUDA up to " + (
        f"{cuda[0]}.{cuda[1]}" if cuda else UNKNOWN
    )


def _gpus(gpus: tuple[GpuUsage, ...]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for part in (part for usage in gpus for part in (usage, *usage.slices)):
        gpu, now = part.reading, gpu_row(part)
        name = short_name(gpu.name)
        if part.is_slice:
            name = f"MIG {name.partition(' MIG ')[2]}" if " MIG " in name else name
        elif gpu.problem is not None:
            name = "does not answer"
        capability = "" if part.is_slice else dotted(gpu.compute_capability) or UNKNOWN
        cells = (cell.text for cell in load(now, with_units=True))
        rows.append((part.label, fitted(one_line(name), _LONGEST_NAME), capability, *_memory(gpu), *cells))
    return table(_HEADS, rows, right=frozenset(_HEADS) - {"NAME"})


def dotted(version: tuple[int, int] | None) -> str | None:
    return None if version is None else f"{version[0]}.{version[1]}"


def _memory(of: GpuReading) -> tuple[str, str, str, str]:
    return (
        whole(of.memory_used_mib),
        whole(of.memory_free_mib),
        whole(of.memory_reserved_mib),
        whole(of.memory_total_mib),
    )


def notes(view: View, columns: int) -> list[str]:
    """Return what waits for a GPU and what the driver does not say, after an empty line."""
    said = list(view.waiting)
    for usage in view.gpus:
        gpu = usage.reading
        for run in usage.runs:
            label = one_line(run.label, 40)
            if run.by == "memory change":
                said.append(
                    f"Run {run.run} ({label}) holds {amount(run.used_mib, 'MiB')} of GPU {gpu.index}, by "
                    "the change of GPU memory since before its start: its processes are not visible."
                )
            elif run.by is None:
                said.append(f"Run {run.run} ({label}) has GPU {gpu.index}; its GPU memory cannot be read.")
        if gpu.problem is None and usage.processes is None:
            said.append(f"GPU {gpu.index}: the driver does not list its processes.")
        said += _mps(gpu)
        if gpu.memory_accounting == "v1":
            said.append(f"GPU {gpu.index}: this driver counts reserved memory as used.")
    if not view.own_pids and any(usage.processes for usage in view.gpus):
        said.append("In this container the driver's PIDs may belong to the host.")
    wrapped = [line for note in said for line in textwrap.wrap(note, columns, subsequent_indent="  ")]
    return ["", *wrapped] if wrapped else []


def _mps(gpu: GpuReading) -> list[str]:
    """Say which processes share the GPU through an MPS server."""
    listed = all_processes(gpu) or ()
    clients = [str(process.pid) for process in listed if process.is_mps_client]
    servers = [str(process.pid) for process in listed if is_mps_server(process.pid)]
    if not clients and not servers:
        return []
    server = f"nvidia-cuda-mps-server ({', '.join(servers)})" if servers else "an MPS server"
    whose = f"its clients (M+C) are {', '.join(clients)}" if clients else "it holds what its clients use"
    return [f"GPU {gpu.index} is shared through {server}; {whose}."]


_INTERVAL_S = 1.0
_TIMEOUT_S = 2.0
_POLL_S = 0.1
_HOME, _TO_THE_END, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"  # of a terminal
_CPU_S = 0.2  # between two readings of the processes, for their share of a CPU


@click.command(epilog="\b\nExample:  kgops gpus --json")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; with --watch one object per line.")
@click.option("--watch", is_flag=True, help="Update once a second until Ctrl-C.")
@hosts_option
@click.pass_context
def command(ctx: click.Context, as_json: bool, watch: bool, hosts: str | None) -> None:
    """Show the GPUs of this machine; exit code 1 if the driver or a GPU does not answer.

    The exit code is 0 on a machine without an NVIDIA driver. With --hosts it is 1 if a host does not answer, which
    a line says.
    """
    if hosts is not None:
        from kgops.cli.on_hosts import show_gpus

        if watch:
            raise Usage("--watch and --hosts exclude each other", f"kgops --hosts {hosts}")
        ctx.exit(show_gpus(hosts, as_json))
    session = _session()
    reader = GpuUsageReader(find_home() if session is None else session.home)
    with GpuSampler(_INTERVAL_S, for_people=True) as sampler:
        if watch:
            _watch(sampler, reader, session, as_json)
            return
        snapshot = _first(sampler, DRIVER_WITHIN_S)
        view = _view(snapshot, reader, session)
        if any(process.started_at is not None for gpu in view.gpus for process in gpu.processes or ()):
            time.sleep(_CPU_S)
            view = _view(snapshot, reader, session)
    say_result(as_json, lambda: _as_table(view), lambda: page(view, shutil.get_terminal_size().columns))
    if not as_json and sys.stdout.isatty():
        say("--watch updates this every second")
    ctx.exit(1 if _has_trouble(view.snapshot) else 0)


def _session() -> Session | None:
    """Return None before the first run, or if the database cannot be read: GPUs are shown anyway."""
    try:
        return for_reading()
    except DatabaseMissing:
        return None
    except (KgopsError, StorageError) as error:
        tell(f"Warning: the runs of the processes are unknown: {error.message}")
        return None


def _first(sampler: GpuSampler, limit_s: float = math.inf) -> Snapshot:
    """Wait for the first reading, in short waits so that Ctrl-C works with a slow driver."""
    began = time.monotonic()
    snapshot = sampler.first(_TIMEOUT_S)
    if snapshot is None:
        tell("Waiting for the GPU driver; Ctrl-C cancels.")
        while snapshot is None and time.monotonic() - began < limit_s:
            snapshot = sampler.first(_TIMEOUT_S)
    return snapshot or silent(limit_s)


def _watch(sampler: GpuSampler, reader: GpuUsageReader, session: Session | None, as_json: bool) -> None:
    """Print readings until Ctrl-C."""
    try:
        if as_json or not sys.stdout.isatty():
            for snapshot in _rounds(sampler):
                view = _view(snapshot, reader, session)
                _print_lines(view, as_json)
            return
        _redraw(sampler, reader, session)
    except KeyboardInterrupt:
        pass


def _redraw(sampler: GpuSampler, reader: GpuUsageReader, session: Session | None) -> None:
    """Print the page over the last one, as often as it changes."""
    shown = ""
    for snapshot in _rounds(sampler):
        columns, height = _terminal_size()
        lines = page(_view(snapshot, reader, session), columns - 1)
        if len(lines) >= height:
            more = len(lines) - height + 2
            lines = [*lines[: max(height - 2, 0)], f"and {more:,} more lines"]
        text = "".join(f"{fitted(line, columns - 1)}{_TO_THE_END}\n" for line in lines)
        if text != shown:
            shown = text
            sys.stdout.write(f"{_HOME}{text}{_BELOW}")
            sys.stdout.flush()


def _terminal_size() -> os.terminal_size:
    """Of the terminal as it is now; COLUMNS and LINES count where it does not know."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return size if size.columns and size.lines else shutil.get_terminal_size()


def _rounds(sampler: GpuSampler) -> Iterator[Snapshot]:
    newest = _first(sampler)
    while True:
        yield newest
        number = newest.number
        while newest.number == number:
            time.sleep(_POLL_S)
            newest = sampler.newest() or newest


def _print_lines(view: View, as_json: bool) -> None:
    if as_json:
        import json

        say(json.dumps(_as_table(view)))
    else:
        say_lines(page(view, shutil.get_terminal_size().columns))
    sys.stdout.flush()


def _view(snapshot: Snapshot, reader: GpuUsageReader, session: Session | None) -> View:
    usages = reader.read(snapshot.gpus, session.conn if session is not None else None)
    return View(snapshot, usages, _waiting(session), sees_host_pids())


def _waiting(session: Session | None) -> tuple[str, ...]:
    """Return one sentence for each run that waits for a GPU."""
    if session is None:
        return ()
    lines = []
    for run in runs.in_states(session.conn, runs.WAITING):
        fit = fit_of_run(run, runs.spec(session.conn, run.id).plan.get("forecast"))
        if fit is not None:
            lines.append(one_line(f"Run {run.id} ({run.label}) {fit.words}."))
    return tuple(lines)


def _has_trouble(snapshot: Snapshot) -> bool:
    if snapshot.problem is not None:
        return snapshot.problem.kind != "no-library"
    return any(gpu.problem is not None for gpu in snapshot.gpus)


def _as_table(view: View) -> dict[str, Any]:
    snapshot = view.snapshot
    return {
        "taken_at": snapshot.taken_at,
        "driver_version": snapshot.driver_version,
        "cuda_version": dotted(snapshot.cuda_version),
        "own_pids": view.own_pids,
        "problem": None if snapshot.problem is None else asdict(snapshot.problem),
        "waiting": list(view.waiting),
        "gpu": [_gpu_table(gpu) for gpu in view.gpus],
    }


def _gpu_table(usage: GpuUsage) -> dict[str, Any]:
    gpu = usage.reading
    known = known_by_name(gpu.name) if gpu.name else None
    table = asdict(gpu)
    slices = table.pop("slices")
    for entry in (table, *slices):
        entry.pop("processes")  # listed below with their runs
    return {
        **table,
        "compute_capability": dotted(gpu.compute_capability),
        "known_as": known.short_name if known else None,
        "slice": slices,
        "process": [process._asdict() for process in usage.processes or ()],
        "run": [asdict(run) for run in usage.runs],
    }
