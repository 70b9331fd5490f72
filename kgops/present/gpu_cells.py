"""A GPU's cells, of this machine or another: name, memory, load, users. Commands print them, screens draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgops.gpus.history import BUCKET_S
from kgops.gpus.processes import DRIVERS_MIB
from kgops.jobs.numbers import share_between
from kgops.jobs.text import one_line
from kgops.present.areas import small_area
from kgops.present.formats import UNKNOWN, fitted, whole, width_of
from kgops.present.rows import Piece
from kgops.supervisor.gpu_room import held_mib
from kgops.supervisor.machine_load import HOT_C

if TYPE_CHECKING:
    from kgops.gpus.history import GpuCurve
    from kgops.present.gpus import GpuUsage
    from kgops.present.host import HostUse

LEGEND, SHORT_LEGEND = "▇ runs ▓ others ░ reserved", "▇runs ▓other"
_RUNS, _OTHERS, _UNKNOWN, _RESERVED, _WAITING, _TRACK, _END = "▇", "▓", "▒", "░", "┄", "·", "│"
_YELLOW, _RED = 0.75, 0.90  # shares of the memory


@dataclass(frozen=True, slots=True)
class GpuUser:
    """A run, or another user; `used_mib` None: unknown."""

    run: int | None
    name: str | None = None
    used_mib: float | None = None


@dataclass(frozen=True, slots=True)
class GpuRow:
    """What the cells of a GPU or MIG slice show. None: unknown. `users`: most memory first."""

    label: str  # `1`, or `1:0` for a slice
    name: str | None
    used_mib: float | None = None
    usable_mib: float | None = None
    runs_mib: float | None = None  # of `used_mib`
    reserved_mib: float = 0.0  # by runs, and not used
    room_mib: float | None = None  # what one more run can be given
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    users: tuple[GpuUser, ...] = ()
    lists_users: bool = True
    problem: str | None = None

    @property
    def is_slice(self) -> bool:
        return ":" in self.label


def gpu_row(usage: GpuUsage) -> GpuRow:
    """Of a GPU of this machine. NVML has load, heat and power of whole GPUs only."""
    reading, whole_gpu = usage.reading, not usage.is_slice
    runs = tuple(GpuUser(run.run, None, run.used_mib) for run in usage.runs)
    others = tuple(GpuUser(None, one.name, one.used_mib) for one in usage.others)
    return GpuRow(
        usage.label,
        reading.name,
        reading.memory_used_mib,
        usage.usable_mib,
        usage.used_by_runs_mib,
        sum(held_mib(share) - (share[1] or 0) for share in usage.shares.values()),
        usage.room_mib,
        reading.utilization_percent if whole_gpu else None,
        reading.temperature_c if whole_gpu else None,
        reading.power_w if whole_gpu else None,
        reading.power_limit_w if whole_gpu else None,
        (*runs, *others),
        usage.processes is not None,
        None if reading.problem is None else reading.problem.message,
    )


# --- cells ---


def name(gpu: GpuRow) -> Piece:
    """`1 Tesla T4`; a slice's is indented below its GPU's."""
    shown = short_name(gpu.name)
    if gpu.is_slice:
        return Piece(f" {gpu.label} MIG {shown.partition('MIG ')[2] or shown}")
    return Piece(f"{gpu.label} {shown}")


def short_name(nvml_name: str | None) -> str:
    return UNKNOWN if not nvml_name else one_line(nvml_name).removeprefix("NVIDIA ").removeprefix("GeForce ")


def pressure(gpu: GpuRow) -> str:
    """Tone of its memory, used or promised: green while a quarter is left, yellow, and red from nine tenths on."""
    if gpu.used_mib is None or not gpu.usable_mib:
        return "dim"
    share = (gpu.used_mib + gpu.reserved_mib) / gpu.usable_mib
    return "bad" if share >= _RED else "warn" if share >= _YELLOW else "good"


def memory(gpu: GpuRow) -> Piece:
    """`2,048/14,909`, in the tone of its pressure."""
    return Piece(f"{whole(gpu.used_mib)}/{whole(gpu.usable_mib)}", pressure(gpu))


def free(gpu: GpuRow) -> Piece:
    """`5.9 GiB free`: what one more run can be given."""
    if gpu.room_mib is None:
        return Piece(UNKNOWN, "dim")
    gib = max(gpu.room_mib, 0) / 1024
    return Piece(f"{gib:,.{0 if gib >= 100 else 1}f} GiB free", pressure(gpu))


def load(gpu: GpuRow, *, with_units: bool = False) -> tuple[Piece, Piece, Piece]:
    """Utilization, temperature and power; nothing of a slice."""
    if gpu.is_slice:
        return Piece(""), Piece(""), Piece("")
    hot = "warn" if (gpu.temperature_c or 0) >= HOT_C else "text"
    cap = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
    watt = " W" if with_units and gpu.power_w is not None else ""
    return (
        Piece(whole(gpu.utilization_percent, "%")),
        Piece(whole(gpu.temperature_c, "°C" if with_units else ""), hot),
        Piece(f"{whole(gpu.power_w)}{cap if gpu.power_w is not None or not with_units else ''}{watt}"),
    )


def users(gpu: GpuRow, width: int) -> list[Piece]:
    """Numbers of runs, then names of other users, in `width` columns."""
    runs = " ".join(str(one.run) for one in gpu.users if one.run is not None)
    names = " ".join(one_line(one.name or UNKNOWN, 16) for one in gpu.users if one.run is None)
    if not names and _hides_users(gpu, bool(runs)):
        names = UNKNOWN
    runs = fitted(runs, width)
    names = fitted(names, max(width - len(runs) - 1, 0)) if width - len(runs) > 4 else ""
    gap = " " if runs and names else ""
    rest = width - width_of(runs) - width_of(names) - len(gap)
    tone = "dim" if names == UNKNOWN else "other"
    return [Piece(runs, "accent"), Piece(gap), Piece(names, tone), Piece(" " * max(rest, 0))]


def _hides_users(gpu: GpuRow, has_runs: bool) -> bool:
    """Whether somebody holds memory and nobody is listed."""
    if not gpu.lists_users:
        return not has_runs
    return gpu.runs_mib is not None and (gpu.used_mib or 0) - gpu.runs_mib > DRIVERS_MIB


def users_in_full(gpu: GpuRow) -> str:
    """`run 7 2,048 MiB, ada 1,024 MiB`: who holds the GPU, most memory first."""
    shown = (
        (f"run {one.run}" if one.run is not None else one.name or UNKNOWN, one.used_mib)
        for one in sorted(gpu.users, key=lambda one: -(one.used_mib or 0))
    )
    return ", ".join(f"{who} {mib:,.0f} MiB" if mib else who for who, mib in shown)


def memory_bar(gpu: GpuRow, width: int, waiting_mib: float = 0.0) -> list[Piece]:
    """`width` columns on a track that ends with │, in the tone of its pressure. ▒ is memory of whom nobody knows."""
    used, total, runs = gpu.used_mib, gpu.usable_mib, gpu.runs_mib
    if used is None or not total or width < 4:
        return [Piece(" " * width, "dim")]
    mine, others = (min(runs, used), max(used - runs, 0)) if runs is not None else (0, used)
    room = width - 1
    tone = pressure(gpu)
    columns: list[tuple[int, str, str]] = []
    far = 0.0
    for part, sign, shade in (
        (mine, _RUNS, ""),
        (others, _OTHERS if runs is not None else _UNKNOWN, "-others"),
        (gpu.reserved_mib, _RESERVED, "-reserved"),
        (waiting_mib, _WAITING, ""),
    ):
        before = round(share_between(far, 0.0, total) * room)
        far = min(far + part, float(total))
        length = round(share_between(far, 0.0, total) * room) - before
        if part > 0 and length == 0 and before < room:
            length = 1  # what is there is seen
        length = min(length, room - sum(count for count, _, _ in columns))
        columns.append((max(length, 0), sign, tone + shade if tone != "dim" else tone))
    rest = room - sum(count for count, _, _ in columns)
    pieces = [Piece(sign * count, tone) for count, sign, tone in columns]
    return [*pieces, Piece(_TRACK * rest + _END, "dim")]


_NEWEST = 120 // BUCKET_S  # buckets of two minutes


def curves(gpu: GpuRow, curve: GpuCurve | None, memory: int, util: int) -> list[Piece]:
    """Two minutes of memory and utilization in so many columns; NVML has them of whole GPUs only."""
    if curve is None or gpu.is_slice:
        return [Piece(" " * memory), Piece(" " * util)]
    unseen = [None] * (_NEWEST - len(curve.memory_mib))
    return [
        Piece(
            small_area([*unseen, *curve.memory_mib[-_NEWEST:]], memory, 0.0, gpu.usable_mib or 0.0), "data"
        ),
        Piece(small_area([*unseen, *curve.utilization[-_NEWEST:]], util, 0.0, 100.0), "dim"),
    ]


def host_line(host: HostUse, profile: str | None = None) -> list[Piece]:
    """`profile`: the one that suits this machine, where its runs use the CPU."""
    cpus = "" if host.cpus is None else f"{' of ' if host.cpu_percent is not None else ''}{host.cpus}"
    memory = (
        f"{_gib(host.memory_used_mib)} of {_gib(host.memory_total_mib)} GiB"
        if host.memory_total_mib is not None
        else "n/a"
    )
    short = host.disk_free_mib is not None and host.disk_free_mib < 1024
    return [
        Piece("HOST", "head"),
        *([Piece("  profile "), Piece(profile, "good")] if profile else ()),
        Piece("  CPU " if host.cpu_percent is not None else "  CPUs "),
        Piece("" if host.cpu_percent is None else whole(host.cpu_percent, "%")),
        Piece(f"{cpus}  memory {memory}  disk "),
        Piece(f"{_gib(host.disk_free_mib)} GiB left", "bad" if short else "text"),
        Piece(f" of {_gib(host.disk_total_mib)}"),
    ]


def _gib(mib: float | None) -> str:
    return "n/a" if mib is None else f"{mib / 1024:,.{0 if mib >= 10240 else 1}f}"
