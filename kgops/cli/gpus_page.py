"""Format GPU readings: tables of GPUs and processes."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from kgops.gpus.processes import all_processes, is_mps_server
from kgops.gpus.readings import GpuReading, NvmlProblem, Snapshot
from kgops.jobs.text import one_line
from kgops.present import process_columns
from kgops.present.formats import UNKNOWN, amount, fitted, table, whole
from kgops.present.gpu_cells import gpu_row, load, short_name
from kgops.present.gpus import GpuUsage

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
