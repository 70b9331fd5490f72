"""One benchmark as two machines measured it: a Tesla T4 on three dates, and an A100 on the last one."""

import calendar
from typing import Any

from storage import benches
from storage.benches import Pair
from storage.database import Connection

BY = "matrix nations.toml by batch_size, precision"
COMMAND = "kgops bench matrix nations.toml --vary batch_size=128,512 --vary precision=fp32,fp16 --repeat 5"
SLOW, FAST = "batch_size=128 precision=fp32", "batch_size=512 precision=fp16"
NAMES = (SLOW, "batch_size=128 precision=fp16", "batch_size=512 precision=fp32", FAST)
_ROUNDS = (0.99, 0.995, 1.0, 1.005, 1.01)  # of the median


def noon(month: int, day: int) -> float:
    return float(calendar.timegm((2026, month, day, 12, 0, 0)))


def machine(gpu: str, host: str, *, torch: str = "2.10.0", commit: str = "a" * 40) -> dict[str, Any]:
    """A fingerprint, as far as the tests look at it."""
    return {
        "python": "3.11.7",
        "packages": {"torch": torch},
        "machine": {"host": host, "processor": "Intel Xeon", "cores": 2, "system": "Linux 6.8"},
        "driver": "550.54",
        "gpus": [{"name": gpu, "uuid": "GPU-1", "mib": 15_360}],
        "git": {"commit": commit, "changed": False},
    }


T4 = machine("Tesla T4", "colab")
T4_LATER = machine("Tesla T4", "colab-2", torch="2.13.0", commit="b" * 40)
A100 = machine("NVIDIA A100-SXM4-40GB", "dgx", torch="2.13.0", commit="b" * 40)


def add(
    conn: Connection,
    at: float,
    body: dict[str, Any],
    seconds: dict[str, float],
    *,
    rounds: int = 5,
    epochs: int = 5,
    ended: bool = True,
) -> int:
    """A benchmark with these medians; the first name is the baseline."""
    first, *others = seconds
    plan = {"variants": [_variant(name, epochs) for name in seconds], "rounds": 5, "cwd": "/"}
    number = benches.begin(conn, "matrix nations.toml", plan, COMMAND, body, at - 600)
    for i, factor in enumerate(_ROUNDS[:rounds]):
        for name in others:
            base, other = (_trial(seconds[one] * factor) for one in (first, name))
            benches.add_pair(conn, number, Pair(i + 1, name, None, None, base, other, 0.0, (), at))
    if ended:
        benches.end(conn, number, at)
    return number


def _variant(name: str, epochs: int) -> dict[str, Any]:
    varied = dict(word.split("=") for word in name.split())
    job = {"workload": "train", "train": {"dataset": "nations", "num_epochs": epochs}, "options": varied}
    return {"name": name, "job": job, "varied": varied}


def _trial(seconds: float) -> dict[str, Any]:
    of = {"seconds_of": "an epoch", "memory_of": "GPU memory", "memory_mib": 400.0}
    return {**of, "seconds": seconds, "took_s": seconds * 5, "trouble": None, "metrics": {}, "options": {}}


def add_all(conn: Connection) -> None:
    """Benchmarks 1 to 3 on the T4: steady until the end of October, then slower. Benchmark 4 on the A100."""
    add(conn, noon(10, 3), T4, dict(zip(NAMES, (0.80, 0.60, 0.50, 0.36), strict=True)))
    add(conn, noon(10, 28), T4, dict(zip(NAMES, (0.80, 0.61, 0.50, 0.362), strict=True)))
    add(conn, noon(11, 20), T4_LATER, dict(zip(NAMES, (0.80, 0.60, 0.51, 0.41), strict=True)))
    add(conn, noon(11, 21), A100, dict(zip(NAMES, (0.25, 0.20, 0.15, 0.10), strict=True)))
