"""Format GPU readings for the terminal: tables of GPUs and processes, or one line per GPU for a pipe."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kgops.cli.output import UNKNOWN, amount, fitted, padded, width_of
from kgops.gpus.readings import GpuReading, NvmlProblem, ProcessReading, SliceReading, Snapshot
from kgops.jobs.secrets import masked_arguments
from kgops.jobs.text import from_bytes, one_line
from kgops.supervisor.on_gpus import RunOnGpu

_HEADS = ("GPU", "NAME", "CC", "USED", "FREE", "RESV", "TOTAL", "UTIL", "TEMP", "POWER")
_LEFT = ("NAME", "COMMAND", "RUN")
_NARROWEST_NAME = 10


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU or MIG slice, and the run it belongs to."""

    gpu: str
    pid: int
    used_mib: int | None
    run: int | None
    user: str | None
    command: str | None


@dataclass(frozen=True, slots=True)
class View:
    """One snapshot of the GPUs with the runs on them."""

    snapshot: Snapshot
    processes: dict[int, list[Process]]  # by GPU index
    runs: dict[int, list[RunOnGpu]]
    waiting: tuple[str, ...]  # a sentence for each run that waits for a GPU
    own_pids: bool  # whether the driver's PIDs are valid here; not in most containers


def page(view: View, columns: int) -> list[str]:
    """Return the tables and notes, at most `columns` wide."""
    snapshot = view.snapshot
    if snapshot.problem is not None:
        return problem_lines(snapshot.problem, columns)
    if not snapshot.gpus:
        return [f"The driver ({_driver(snapshot)}) finds no GPU."]
    lines = [
        f"{_driver(snapshot)}; memory in MiB, CC is compute capability",
        *_gpus(snapshot.gpus, columns),
    ]
    for gpu in snapshot.gpus:
        if gpu.problem is not None:
            lines += ["", f"GPU {gpu.index}:", *problem_lines(gpu.problem, columns)]
    return lines + _processes(view, columns) + _notes(view, columns)


def plain(view: View) -> list[str]:
    """Return one line per GPU with the time, for a file or a pipe."""
    snapshot = view.snapshot
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.taken_at))
    if snapshot.problem is not None:
        return [f"{at}  {one_line(snapshot.problem.message)}"]
    out = []
    for gpu in snapshot.gpus:
        if gpu.problem is not None:
            out.append(f"{at}  {gpu.index}  {one_line(gpu.problem.message)}")
            continue
        cells = [
            f"{_mib(gpu.memory_used_mib)}/{_mib(gpu.memory_total_mib)} MiB",
            *(_util(gpu), _degrees(gpu), _power(gpu)),
            *(f"run {run.run}: {amount(run.used_mib, 'MiB')}" for run in view.runs[gpu.index]),
        ]
        out.append(f"{at}  {gpu.index}  {one_line(gpu.name or UNKNOWN)}  {'  '.join(cells)}")
    return out


def problem_lines(problem: NvmlProblem, columns: int) -> list[str]:
    """Return the message and the hint of a problem."""
    lines = textwrap.wrap(one_line(problem.message[:1].upper() + problem.message[1:]), columns)
    return lines + textwrap.wrap(
        one_line(problem.hint), columns, initial_indent="  → ", subsequent_indent="    "
    )


def user_and_command(pid: int) -> tuple[str | None, str | None]:
    """Return whose process this is and its command line; None for what cannot be read."""
    import psutil  # type: ignore[import-untyped]  # takes 15 ms, and only processes need it

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            user, words = process.username(), process.cmdline()
    except psutil.Error:
        return None, None
    words = masked_arguments([clean for word in words if (clean := from_bytes(os.fsencode(word)))])
    return user, " ".join([os.path.basename(words[0]), *words[1:]]) if words else None  # noqa: PTH119


def _driver(snapshot: Snapshot) -> str:
    cuda = snapshot.cuda_version
    return f"driver {snapshot.driver_version or UNKNOWN}, CUDA up to " + (
        f"{cuda[0]}.{cuda[1]}" if cuda else UNKNOWN
    )


def _gpus(gpus: tuple[GpuReading, ...], columns: int) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for gpu in gpus:
        name = "does not answer" if gpu.problem is not None else _name(gpu.name)
        rest = (_util(gpu), _degrees(gpu), _power(gpu))
        capability = dotted(gpu.compute_capability) or UNKNOWN
        rows.append((str(gpu.index), name, capability, *_memory(gpu), *rest))
        rows += [
            (f"{gpu.index}:{mig.index}", _slice_name(mig.name), "", *_memory(mig), "", "", "")
            for mig in gpu.slices
        ]
    return _table(_HEADS, rows, columns, shrink=1)


def dotted(version: tuple[int, int] | None) -> str | None:
    return None if version is None else f"{version[0]}.{version[1]}"


def _memory(of: GpuReading | SliceReading) -> tuple[str, str, str, str]:
    return (
        _mib(of.memory_used_mib),
        _mib(of.memory_free_mib),
        _mib(of.memory_reserved_mib),
        _mib(of.memory_total_mib),
    )


def _processes(view: View, columns: int) -> list[str]:
    rows = [
        (
            process.gpu,
            str(process.pid),
            "hidden" if process.used_mib is None else _mib(process.used_mib),
            "-" if process.run is None else str(process.run),
            one_line(process.user or UNKNOWN, 16),
            process.command or UNKNOWN,
        )
        for processes in view.processes.values()
        for process in processes
    ]
    return (
        ["", *_table(("GPU", "PID", "USED", "RUN", "USER", "COMMAND"), rows, columns, shrink=5)]
        if rows
        else []
    )


def _notes(view: View, columns: int) -> list[str]:
    notes = list(view.waiting)
    for gpu in view.snapshot.gpus:
        for run in view.runs[gpu.index]:
            label = one_line(run.label, 40)
            if run.by == "memory change":
                notes.append(
                    f"Run {run.run} ({label}) holds {amount(run.used_mib, 'MiB')} of GPU {gpu.index}, by "
                    "the change of GPU memory since before its start: its processes are not visible."
                )
            elif run.by is None:
                notes.append(f"Run {run.run} ({label}) has GPU {gpu.index}; its GPU memory cannot be read.")
        if gpu.problem is None and gpu.processes is None and not gpu.slices:
            notes.append(f"GPU {gpu.index}: the driver does not list its processes.")
        if gpu.memory_accounting == "v1":
            notes.append(f"GPU {gpu.index}: this driver counts reserved memory as used.")
    if not view.own_pids and any(view.processes.values()):
        notes.append("In this container the driver's PIDs may be those of the host.")
    wrapped = [line for note in notes for line in textwrap.wrap(note, columns, subsequent_indent="  ")]
    return ["", *wrapped] if wrapped else []


def _table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], columns: int, *, shrink: int
) -> list[str]:
    """Like `output.table`, but shortens the column `shrink`, to `columns` even without a terminal."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(width_of(head), *(width_of(row[i]) for row in cells)) for i, head in enumerate(heads)]
    too_wide = sum(widths) + 2 * (len(widths) - 1) - columns
    widths[shrink] = max(min(widths[shrink], widths[shrink] - too_wide), _NARROWEST_NAME)
    return [
        "  ".join(
            padded(fitted(cell, width), width, right=head not in _LEFT)
            for cell, width, head in zip(row, widths, heads, strict=True)
        ).rstrip()
        for row in [list(heads), *cells]
    ]


def _name(nvml_name: str | None) -> str:
    return UNKNOWN if nvml_name is None else nvml_name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def _slice_name(nvml_name: str | None) -> str:
    name = _name(nvml_name)
    return "MIG " + name.partition(" MIG ")[2] if " MIG " in name else name


def _mib(mib: float | None) -> str:
    return UNKNOWN if mib is None else f"{mib:,.0f}"


def _util(gpu: GpuReading) -> str:
    return UNKNOWN if gpu.utilization_percent is None else f"{gpu.utilization_percent}%"


def _degrees(gpu: GpuReading) -> str:
    return UNKNOWN if gpu.temperature_c is None else f"{gpu.temperature_c}°C"


def _power(gpu: GpuReading) -> str:
    if gpu.power_w is None:
        return UNKNOWN
    limit = "" if gpu.power_limit_w is None else f"/{gpu.power_limit_w:.0f}"
    return f"{gpu.power_w:.0f}{limit} W"


def processes_of(gpu: GpuReading) -> list[tuple[str, ProcessReading]]:
    """Return the processes of a GPU, each with `GPU` or `GPU:slice`."""
    slices = [(f"{gpu.index}:{mig.index}", mig.processes) for mig in gpu.slices]
    devices = [(str(gpu.index), gpu.processes)] if not gpu.slices else slices
    return [(device, process) for device, processes in devices for process in processes or ()]
