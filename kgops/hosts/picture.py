"""What this machine shows to consoles of other machines: the same readings as its own dashboard's, as a picture."""

from __future__ import annotations

import time

from kgops.errors import KgopsError
from kgops.gpus.sampler import GpuSampler
from kgops.hosts.protocol import Picture, Row, fields_of, sendable
from kgops.present.gpus import GpuProcess, GpuUsage, GpuUsageReader
from kgops.present.overview import live_alerts, recorded_alerts
from kgops.settings import Home
from kgops.supervisor.pending import may_be_outdated
from storage import alerts, run_list, runs
from storage.database import Connection, changed_since, open_reader
from storage.errors import DatabaseMissing, StorageError
from storage.runs import Run

EVERY_S = 2.0
_RECENT = 64  # ended runs
_DRIVER_PATIENCE_S = 2.0  # for the first picture only
_CHECK_EVERY_S = 15.0
_LONGEST_COMMAND = 120
_POWER_STEP_W = 5  # a GPU's watts are never still


class PictureReader:
    """Reads GPUs and the database again and again, and writes to neither."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._sampler = GpuSampler(EVERY_S, for_people=True)
        self._usages = GpuUsageReader(home)
        self._usage: tuple[int, tuple[GpuUsage, ...]] = (0, ())  # of the reading of that number
        self._conn: Connection | None = None
        self._version: int | None = None
        self._runs: dict[str, Row] = {}
        self._active: list[Run] = []
        self._recorded: dict[str, Row] = {}
        self._seen: frozenset[str] = frozenset()
        self._host: Row = {}
        self._check_at = 0.0
        self._is_first = True

    def __enter__(self) -> PictureReader:
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._sampler.stop(timeout_s=0.0)
        self._close()

    def read(self) -> Picture:
        problem = self._read_database()
        usages, driver, gpu_problem = self._read_gpus()
        parts = [part for usage in usages for part in (usage, *usage.slices)]
        live = live_alerts(self._home, self._active, usages, time.time())
        return {
            "host": {
                "host": {**self._host, "problem": _joined(problem, gpu_problem), "driver": driver},
            },
            "gpu": {part.label: _gpu_row(part) for part in parts},
            "process": {
                f"{process.gpu}/{process.pid}": _process_row(process)
                for usage in usages
                for process in usage.processes or ()
            },
            "run": self._runs,
            "alert": self._recorded
            | {
                one.name: {"kind": one.kind, "text": one.text, "run": one.run and one.run.id, "gpu": one.gpu}
                for one in live
                if one.name not in self._seen
            },
        }

    def _read_gpus(self) -> tuple[tuple[GpuUsage, ...], str | None, str | None]:
        snapshot = self._sampler.first(_DRIVER_PATIENCE_S) if self._is_first else self._sampler.newest()
        self._is_first = False
        if snapshot is None:
            return (), None, "the GPU driver has not answered yet"
        if snapshot.problem is not None:
            return (), None, snapshot.problem.message
        if self._usage[0] != snapshot.number:
            self._usage = snapshot.number, self._usages.read(snapshot.gpus, self._conn)
        return self._usage[1], snapshot.driver_version, None

    def _read_database(self) -> str | None:
        """What is in its way; runs stay as they were read last."""
        try:
            if self._conn is None:
                self._conn = open_reader(self._home.database, busy_timeout_s=1.0)
                self._version = None
            changed, self._version = changed_since(self._conn, self._version)
            if changed:
                self._read_runs(self._conn)
            if time.monotonic() >= self._check_at or self._host.get("states_may_be_outdated"):
                self._check_at = time.monotonic() + _CHECK_EVERY_S
                # Supervisors of this machine are for its own commands to start: a feed only says that one should.
                self._host["states_may_be_outdated"] = may_be_outdated(self._home, self._conn)
        except DatabaseMissing:
            return None
        except (KgopsError, StorageError) as error:
            self._close()
            return error.message
        return None

    def _read_runs(self, conn: Connection) -> None:
        self._active = runs.in_states(conn, runs.ACTIVE)
        waiting = runs.in_states(conn, runs.WAITING)
        ended = run_list.page(conn, run_list.Filter(runs.ENDED), sort="ended_at", limit=_RECENT)
        self._runs = {str(run.id): run_row(run) for run in (*self._active, *waiting, *ended)}
        self._seen = alerts.acknowledged(conn)
        self._recorded = {
            one.name: sendable({"kind": one.kind, "text": one.text, "run": one.run and one.run.id})
            for one in recorded_alerts(conn)[:_RECENT]
        }
        self._host["runs"] = runs.count(conn)

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


def run_row(run: Run) -> Row:
    columns = run._asdict()
    return sendable({name: columns[name] for name in fields_of("run")})


def _gpu_row(usage: GpuUsage) -> Row:
    gpu = usage.reading
    power = (
        None if gpu.power_w is None or usage.is_slice else _POWER_STEP_W * round(gpu.power_w / _POWER_STEP_W)
    )
    return {
        "name": gpu.name,
        "uuid": gpu.uuid,
        "memory_total_mib": usage.usable_mib,
        "memory_used_mib": gpu.memory_used_mib,
        "reserved_mib": usage.reserved_mib,
        "used_by_runs_mib": usage.used_by_runs_mib,
        "utilization_percent": None if usage.is_slice else gpu.utilization_percent,
        "temperature_c": None if usage.is_slice else gpu.temperature_c,
        "power_w": power,
        "problem": None if gpu.problem is None else gpu.problem.message,
    }


def _process_row(process: GpuProcess) -> Row:
    """Without its share of a CPU, which is another one every second."""
    row = {name: getattr(process, name) for name in fields_of("process")}
    return {**row, "command": process.command and process.command[:_LONGEST_COMMAND]}


def _joined(*problems: str | None) -> str | None:
    return "; ".join(filter(None, problems)) or None
