"""Memory of a worker's whole process on the CPU: its start, counted tensors, and the rest.

Counted tensors are known from shapes. The rest is not: libraries load parts of themselves at their first use and keep
buffers. The allocator keeps freed memory. That differs by CPU, build and system, so kgops learns it from this
machine's runs. A bound holds before the first. The memory of the start depends on the build of torch, so it is
measured once here.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from kgops import __version__
from kgops.jobs.files import read_json, write_json
from kgops.jobs.job import Job
from kgops.jobs.on_device import onednn_is_wider
from kgops.workloads.registry import WORKLOADS

_MIB = 1 << 20
_ENTITY = 190  # bytes of a label in two tables
_TRIPLE = 50  # bytes that stay after reading and sorting one
_NEWEST = 60  # runs of one kind: older ones may be of another kgops or torch
_FURTHEST = 4.0  # times the bound: beyond it something else was measured
_QUANTILE = 0.85  # of runs should take no more than predicted, before the margin
_MARGIN = 0.03  # upon what runs have taught
_FACTORS = tuple(0.9 + 0.05 * step for step in range(53))
_BOUND_AT = (8.0, 64.0, 512.0, 4096.0)  # MiB of tensors at which the bound speaks beside the runs
_BOUND_WEIGHT = 0.2  # of one of these beside a run


class Seen(NamedTuple):
    """A run that ended well, in MiB: counted tensors and labels, and its process at the start and at the peak."""

    kind: str
    counted: float
    data: float
    start: float
    peak: float

    @property
    def above(self) -> float:
        return self.peak - self.start


class _Line(NamedTuple):
    """`constant` MiB and so many times what is counted."""

    constant: float
    factor: float

    def at(self, counted: float) -> float:
        return self.constant + self.factor * counted


@dataclass(frozen=True, slots=True)
class Process:
    """In bytes, apart from counted tensors. `libraries` may be below 0 where counted tensors are never touched."""

    start: int
    libraries: int
    data: int
    samples: int

    @property
    def total(self) -> int:
        return self.start + self.libraries + self.data

    @property
    def description(self) -> str:
        what = "first use of libraries, their buffers, memory that the allocator keeps"
        if not self.samples:
            return f"{what}: at most, no such run was measured here yet"
        return f"{what}: learned from {self.samples} run{'s' if self.samples > 1 else ''} here"


@dataclass(frozen=True, slots=True)
class ProcessModel:
    """Of one kind of worker: where its process starts, and what it takes above that apart from labels."""

    kind: str
    start_mib: float
    constant_mib: float
    factor: float
    samples: int = 0

    def above(self, counted: int, data: int) -> Process:
        """What comes on top of so many bytes of counted tensors."""
        libraries = self.constant_mib * _MIB + (self.factor - 1) * counted
        return Process(round(self.start_mib * _MIB), round(libraries), data, self.samples)

    def as_table(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


# For 32 runs measured with AVX-512 and torch's CPU build, these lines were at most 7 % too low.
_START = 250.0
_BOUND = _Line(46.0, 1.06)
_BOUNDS = {
    "tracin": _Line(42.0, 1.15),
    "predict": _Line(50.0, 1.15),
    "regress": _Line(225.0, 1.15),
}
_KERNELS = 45.0  # MiB that TracIn's products keep where oneDNN makes a kernel for each shape
_COMPILED = "compiled"
_COMPILER = 150.0  # MiB that torch.compile takes once it is loaded, with what it makes
_RANKS_HEADS = "ranks heads"  # by all entities, without inverse relations
_RANKING = 30.0  # MiB that encoding all of them leaves
_TRAINS_AGAIN = "trains again"  # a worker whose own work is another
_BOUND_AGAIN = _Line(_BOUND.constant, 1.15)  # it uses a training's libraries as well


def kind_of(
    workload: str,
    *,
    shared_out: bool = False,
    trains_again: bool = False,
    ranks_heads: bool = False,
    compiled: bool = False,
    parquet: bool = False,
) -> str:
    """Workers of one kind import the same and work alike; with `parquet`, pyarrow."""
    how = (
        _TRAINS_AGAIN if trains_again else None,
        _RANKS_HEADS if ranks_heads else None,
        "shared out" if shared_out else None,
        _COMPILED if compiled else None,
        "parquet" if parquet else None,
    )
    return " ".join(filter(None, (workload, *how)))


def _imports_of(kind: str) -> str:
    """The imports that workers of several kinds have in common."""
    return next((base for base in _BOUNDS if kind == base or kind.startswith(f"{base} ")), kind)


def data_bytes(entities: int, triples: int) -> int:
    """Labels and Python's objects of a graph."""
    return _ENTITY * entities + _TRIPLE * triples


def learn_process(kind: str, seen: Iterable[Seen], start_mib: float | None = None) -> ProcessModel:
    """From runs here, newest first; the bound that ships with kgops counts the less, the more of them there are.

    `start_mib`: measured in this environment; without it the runs' own starts count, which may be of another.
    """
    base = _imports_of(kind)
    bound = _BOUND_AGAIN if _TRAINS_AGAIN in kind else _BOUNDS.get(base, _BOUND)
    if kind.endswith(f" {_COMPILED}"):
        bound = bound._replace(constant=bound.constant + _COMPILER)
    if _RANKS_HEADS in kind:
        bound = bound._replace(constant=bound.constant + _RANKING)
    if base == "tracin" and onednn_is_wider():
        bound = bound._replace(constant=bound.constant + _KERNELS)
    alike = [one for one in seen if _imports_of(one.kind) == base and one.peak > one.start > 0]
    runs = [one for one in alike if one.kind == kind][:_NEWEST]
    starts = [one.start for one in runs or alike[:_NEWEST]]
    start = start_mib or (median(starts) if starts else _START)
    runs = [one for one in runs if one.above <= _FURTHEST * (bound.at(one.counted) + one.data)]
    if not runs:
        return ProcessModel(kind, start, *bound)
    return ProcessModel(kind, start, *_line_through(runs, bound), len(runs))


def _line_through(runs: Sequence[Seen], bound: _Line) -> _Line:
    """The line above most of the runs that is nearest to them, in shares of what each took: the loss of quantiles."""
    points = [(one.counted, one.above * (1 + _MARGIN) - one.data, 1 / max(one.above, 1.0)) for one in runs]
    points += [(at, bound.at(at), _BOUND_WEIGHT / bound.at(at)) for at in _BOUND_AT]

    def fitted(factor: float) -> tuple[float, _Line]:
        rest = sorted((above - factor * counted, weight) for counted, above, weight in points)
        constant = max(0.0, _quantile(rest))
        off = (_loss(left - constant) * weight for left, weight in rest)
        return math.fsum(off), _Line(constant, factor)

    return min(map(fitted, _FACTORS))[1]


def _loss(below: float) -> float:
    """Of predicting so much too little."""
    return _QUANTILE * below if below > 0 else (_QUANTILE - 1) * below


def _quantile(weighted: Sequence[tuple[float, float]]) -> float:
    """Of sorted values."""
    left = _QUANTILE * math.fsum(weight for _, weight in weighted)
    for value, weight in weighted:
        left -= weight
        if left <= 0:
            return value
    return weighted[-1][0]


STARTS = "starts.json"  # in the home
START = "--start"  # a worker called with it prints the memory of its start, and ends
_LONGEST_S = 120.0


def start_mib(job: Job, remembered: Path | None) -> float | None:
    """MiB, measured by starting such a worker where `remembered`, a file, does not have it. None: not measured."""
    key = f"{job.workload} {_environment()}"
    known = (read_json(remembered) if remembered is not None else None) or {}
    if not isinstance(known, dict) or not isinstance(known.get(key), int | float):
        measured = _measure(str(WORKLOADS[job.workload].module))
        if measured is None or remembered is None:
            return measured
        known = {**(known if isinstance(known, dict) else {}), key: measured}
        write_json(remembered, known)
    return float(known[key])


def _environment() -> str:
    """What another installation or machine has otherwise."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "n/a"
    return f"kgops {__version__} torch {torch} {sys.prefix} on {platform.node()}"


@cache
def _measure(module: str) -> float | None:
    """Starts it as a supervisor does. None too where it does not answer in time, as on a machine without a free CPU."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, START],
            env={**os.environ, "KGOPS_RUN_FOLDER": os.devnull},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        return float(done.stdout)
    except (ValueError, OSError, subprocess.TimeoutExpired):
        return None
