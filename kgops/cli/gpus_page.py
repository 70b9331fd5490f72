"""GPUs as people read them: tables of 80 columns, and one line per GPU for a log."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
    """One process on a GPU or slice, and the run of ours that it belongs to."""

    gpu: str
    pid: int
    used_mib: int | None
    run: int | None
    command: str | None


@dataclass(frozen=True, slots=True)
class View:
    """One round of readings, with what they mean for our runs."""

    snapshot: Snapshot
    processes: dict[int, list[Process]]  # by the GPU's index
    runs: dict[int, list[RunOnGpu]]
    waiting: tuple[str, ...]  # a sentence for each run that waits for a GPU
    own_pids: bool  # the driver's PIDs are this machine's: not so inside most containers


def page(view: View, columns: int) -> list[str]:
    """All of it, no line longer than `columns`."""
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
    """For a file or a pipe: each GPU on a line of its own, with the time."""
    snapshot = view.snapshot
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.taken_at))
    if snapshot.problem is not None:
        return [f"{at}  {one_line(snapshot.problem.message)}"]
    out = []
    for gpu in snapshot.gpus:
        if gpu.problem is not None:
            out.append(f"{at}  {gpu.index}  {one_line(gpu.problem.message)}")
            continue
        parts = [
            f"{_mib(gpu.memory_used_mib)}/{_mib(gpu.memory_total_mib)} MiB",
            *(_util(gpu), _degrees(gpu), _power(gpu)),
            *(f"run {held.run}: {amount(held.used_mib, 'MiB')}" for held in view.runs[gpu.index]),
        ]
        out.append(f"{at}  {gpu.index}  {one_line(gpu.name or UNKNOWN)}  {'  '.join(parts)}")
    return out


def problem_lines(problem: NvmlProblem, columns: int) -> list[str]:
    """What it is, and what to do."""
    told = textwrap.wrap(one_line(problem.message[:1].upper() + problem.message[1:]), columns)
    return told + textwrap.wrap(
        one_line(problem.hint), columns, initial_indent="  → ", subsequent_indent="    "
    )


def command_of(pid: int) -> str | None:
    """A process's command as it was started; None where it cannot be seen."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    words = masked_arguments([word for word in from_bytes(raw).split("\0") if word])
    return " ".join([os.path.basename(words[0]), *words[1:]]) if words else None  # noqa: PTH119


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
            (f"{gpu.index}:{part.index}", _slice_name(part.name), "", *_memory(part), "", "", "")
            for part in gpu.slices
        ]
    return _table(_HEADS, rows, columns, gives_way=1)


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
            process.command or UNKNOWN,
        )
        for listed in view.processes.values()
        for process in listed
    ]
    return ["", *_table(("GPU", "PID", "USED", "RUN", "COMMAND"), rows, columns, gives_way=4)] if rows else []


def _notes(view: View, columns: int) -> list[str]:
    notes = list(view.waiting)
    for gpu in view.snapshot.gpus:
        for held in view.runs[gpu.index]:
            label = one_line(held.label, 40)
            if held.by == "memory change":
                notes.append(
                    f"Run {held.run} ({label}) holds {amount(held.used_mib, 'MiB')} of GPU {gpu.index}, by "
                    "the change of the GPU's memory since before it: its processes are not to be seen."
                )
            elif held.by is None:
                notes.append(
                    f"Run {held.run} ({label}) has GPU {gpu.index}; what it holds is not to be seen."
                )
        if gpu.problem is None and gpu.processes is None and not gpu.slices:
            notes.append(f"GPU {gpu.index}: the driver does not list its processes.")
        if gpu.memory_accounting == "v1":
            notes.append(f"GPU {gpu.index}: this driver counts its own reserve as used memory.")
    if not view.own_pids and any(view.processes.values()):
        notes.append("In this container the driver's PIDs may be those of the host.")
    wrapped = [line for note in notes for line in textwrap.wrap(note, columns, subsequent_indent="  ")]
    return ["", *wrapped] if wrapped else []


def _table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], columns: int, *, gives_way: int
) -> list[str]:
    """Like `output.table`, but with a column of choice giving way, also where no terminal says how wide."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(width_of(head), *(width_of(row[i]) for row in cells)) for i, head in enumerate(heads)]
    too_wide = sum(widths) + 2 * (len(widths) - 1) - columns
    widths[gives_way] = max(min(widths[gives_way], widths[gives_way] - too_wide), _NARROWEST_NAME)
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


def listed(gpu: GpuReading) -> list[tuple[str, ProcessReading]]:
    """Processes with the place they are in: the GPU, or one of its slices."""
    parts = [(f"{gpu.index}:{part.index}", part.processes) for part in gpu.slices]
    places = [(str(gpu.index), gpu.processes)] if not gpu.slices else parts
    return [(place, process) for place, found in places for process in found or ()]
