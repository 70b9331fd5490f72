"""The lines of a GPU and of the host, as the dashboard and `kgops gpus --watch` show them: texts with tones."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.gpus.history import BUCKET_S, GpuCurve
from kgops.gpus.processes import DRIVERS_MIB
from kgops.jobs.numbers import share_between
from kgops.jobs.text import one_line
from kgops.present.formats import fitted, whole, width_of
from kgops.present.gpus import GpuUsage
from kgops.present.host import HostUse
from kgops.supervisor.gpu_room import held_mib
from kgops.supervisor.machine_load import HOT_C

Toned = tuple[str, str]  # a text and its tone: text, dim, head, accent, other, warn, bad

LEGEND, SHORT_LEGEND = "▇runs ▓others ░reserved", "▇runs ▓other"
_RUNS, _OTHERS, _UNKNOWN, _RESERVED, _WAITING, _TRACK, _END = "▇", "▓", "▒", "░", "┄", "·", "│"


def name_of(usage: GpuUsage) -> str:
    """`1 Tesla T4`; a slice's is indented below its GPU's."""
    name = (usage.reading.name or "n/a").removeprefix("NVIDIA ").removeprefix("GeForce ")
    return f" {usage.label} MIG {name.partition('MIG ')[2]}" if usage.is_slice else f"{usage.label} {name}"


def memory_bar(usage: GpuUsage, waiting_mib: float, width: int) -> list[Toned]:
    """`width` columns on a track that ends with │. ▒ is memory of whom nobody knows."""
    used, total = usage.reading.memory_used_mib, usage.usable_mib
    if used is None or not total or width < 4:
        return [(" " * width, "dim")]
    runs = usage.used_by_runs_mib
    mine, others = (min(runs, used), max(used - runs, 0)) if runs is not None else (0, used)
    reserved = sum(held_mib(share) - (share[1] or 0) for share in usage.shares.values())
    room = width - 1
    columns: list[tuple[int, str, str]] = []
    far = 0.0
    for part, sign, tone in (
        (mine, _RUNS, "accent"),
        (others, *((_OTHERS, "other") if runs is not None else (_UNKNOWN, "text"))),
        (reserved, _RESERVED, "accent"),
        (waiting_mib, _WAITING, "accent"),
    ):
        before = round(share_between(far, 0.0, total) * room)
        far = min(far + part, float(total))
        length = round(share_between(far, 0.0, total) * room) - before
        if part > 0 and length == 0 and before < room:
            length = 1  # what is there is seen
        length = min(length, room - sum(count for count, _, _ in columns))
        columns.append((max(length, 0), sign, tone))
    rest = room - sum(count for count, _, _ in columns)
    pieces = [(sign * count, tone) for count, sign, tone in columns]
    return [*pieces, (_TRACK * rest + _END, "dim")]


def load_of(usage: GpuUsage) -> list[Toned]:
    """Utilization, heat and power; NVML has them of whole GPUs only."""
    if usage.is_slice:
        return [("", "text")] * 3
    reading = usage.reading
    cap = f"/{reading.power_limit_w:.0f}" if reading.power_limit_w is not None else ""
    return [
        ("n/a" if reading.utilization_percent is None else f"{reading.utilization_percent}%", "text"),
        (whole(reading.temperature_c), "warn" if (reading.temperature_c or 0) >= HOT_C else "text"),
        (f"{whole(reading.power_w)}{cap}", "text"),
    ]


def users_of(usage: GpuUsage, width: int) -> list[Toned]:
    """Runs, then other users; n/a where somebody holds memory and nobody is listed."""
    runs = " ".join(str(run.run) for run in usage.runs)
    others = usage.others
    names = " ".join(one_line(one.name or "n/a", 16) for one in others)
    used, mine = usage.reading.memory_used_mib, usage.used_by_runs_mib
    if not others and usage.processes is None:
        names = "" if runs else "n/a"
    elif not others and mine is not None and (used or 0) - mine > DRIVERS_MIB:
        names = "n/a"
    runs = fitted(runs, width)
    names = fitted(names, max(width - len(runs) - 1, 0)) if width - len(runs) > 4 else ""
    gap = " " if runs and names else ""
    rest = width - width_of(runs) - width_of(names) - len(gap)
    return [(runs, "accent"), (gap, "text"), (names, "other"), (" " * max(rest, 0), "text")]


_LEFT, _RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)  # dots of a column, from the bottom
_NEWEST = 120 // BUCKET_S  # buckets of two minutes


def curves_of(usage: GpuUsage, curve: GpuCurve | None, memory: int, util: int) -> list[Toned]:
    """Two minutes of memory and utilization in so many columns; NVML has them of whole GPUs only."""
    if curve is None or usage.is_slice:
        return [(" " * memory, "text"), (" " * util, "text")]
    return [
        (small_curve(curve.memory_mib[-_NEWEST:], memory, usage.usable_mib), "accent"),
        (small_curve(curve.utilization[-_NEWEST:], util, 100.0), "dim"),
    ]


def small_curve(values: Sequence[float | None], width: int, high: float | None) -> str:
    """The newest `2 * width` values as a filled curve from zero to `high`; blank where nobody looked."""
    if not high or width < 1:
        return " " * width
    newest = [*[None] * (2 * width - len(values)), *values[-2 * width :]]
    dots = [0 if value is None else min(int(share_between(value, 0.0, high) * 4), 3) + 1 for value in newest]
    pairs = zip(dots[::2], dots[1::2], strict=True)
    codes = (sum(_LEFT[:left]) + sum(_RIGHT[:right]) for left, right in pairs)
    return "".join(chr(0x2800 + code) if code else " " for code in codes)


def free_of(usage: GpuUsage) -> Toned:
    """`5.9 GiB free`: what one more run can be given. Of a GPU that MIG divides, its slices have it."""
    room = usage.room_mib
    if room is None or usage.slices:
        return "" if usage.slices else "n/a", "dim"
    gib = max(room, 0) / 1024
    return f"{gib:,.{0 if gib >= 100 else 1}f} GiB free", "text" if room > 0 else "warn"


def host_line(host: HostUse, profile: str | None = None) -> list[Toned]:
    """`profile`: the one that suits this machine, where its runs use the CPU."""
    cpus = "" if host.cpus is None else f" of {host.cpus}"
    memory = (
        f"{_gib(host.memory_used_mib)} of {_gib(host.memory_total_mib)} GiB"
        if host.memory_total_mib is not None
        else "n/a"
    )
    short = host.disk_free_mib is not None and host.disk_free_mib < 1024
    return [
        ("HOST", "head"),
        *([("  profile ", "text"), (profile, "good")] if profile else ()),
        ("  CPU ", "text"),
        ("n/a" if host.cpu_percent is None else f"{host.cpu_percent:.0f}%", "text"),
        (f"{cpus}  memory {memory}  disk ", "text"),
        (f"{_gib(host.disk_free_mib)} GiB left", "bad" if short else "text"),
        (f" of {_gib(host.disk_total_mib)}", "text"),
    ]


def _gib(mib: float | None) -> str:
    return "n/a" if mib is None else f"{mib / 1024:,.{0 if mib >= 10240 else 1}f}"
