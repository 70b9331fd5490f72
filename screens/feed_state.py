"""What a screen wants of the feed, and what the feed posts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgops.gpus.facts import UnusableGpus
    from kgops.gpus.history import GpuCurve
    from kgops.gpus.readings import NvmlProblem
    from kgops.present.chart import ChartRun
    from kgops.present.glance import Glance
    from kgops.present.gpus import GpuUsage
    from kgops.present.host import HostUse
    from kgops.present.overview import Overview
    from kgops.present.run_detail import RunDetail
    from kgops.supervisor.alerts import Alert


@dataclass(frozen=True, slots=True)
class OneRun:
    number: int


@dataclass(frozen=True, slots=True)
class OneCurve:
    """One metric of several runs."""

    name: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BesideList:
    """A run's number; read besides what a screen with a list wants, and posted as a state of its own."""

    number: int


DASHBOARD = "dashboard"
HISTORY = "history"
QUEUE = "queue"
Wanted = str | OneRun | OneCurve | BesideList | None  # what the visible screen needs; None: nothing


@dataclass(frozen=True, slots=True)
class FeedState:
    """Immutable state for one screen; equal states look alike."""

    wanted: Wanted = None
    overview: Overview | None = None  # None before the first run, or if not wanted
    gpus: tuple[GpuUsage, ...] | None = None  # None: not read yet
    gpu_problem: NvmlProblem | None = None
    unusable: UnusableGpus | None = None  # GPUs that the installed torch cannot use
    curves: Mapping[int, GpuCurve] = field(default_factory=dict)  # by GPU index
    host: HostUse | None = None
    alerts: tuple[Alert, ...] = ()  # unacknowledged, of the record and of this moment
    away: str | None = None  # what ended since a console was left
    own_pids: bool = True  # whether the driver's PIDs are valid here; not in most containers
    detail: RunDetail | None = None
    chart: tuple[ChartRun, ...] = ()
    glance: Glance | None = None
    queue: tuple[tuple[int, str], ...] = ()  # number and state of the unfinished runs and of the newest
    error_text: str | None = None
    version: int | None = None  # database version, for screens that read the database themselves
