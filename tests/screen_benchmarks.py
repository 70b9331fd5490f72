"""Benchmarks as some machines would have held them, and a person's hands on their screen."""

import platform
import random
import time
from typing import Any

from screen_driving import Seen

from screens.benchmarks import Benchmarks
from screens.widgets.lines import Lines
from screens.widgets.row_window import RowWindow
from storage import benches
from storage.benches import Pair
from storage.database import Connection

HERE = {
    "python": "3.11.7",
    "packages": {"torch": "2.13.0"},
    "machine": {"host": platform.node(), "processor": "AMD EPYC", "cores": 2, "system": "Linux 6.8"},
    "gpus": [],
    "git": {"commit": "798396031c", "changed": False},
}
CLAIMS_B: dict[str, Any] = {  # seconds, MiB, values
    "baseline again": (1.04, 12.75, {"score_error": 1.1e-07, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "+ cleanup": (30.0, 12.75, {"score_error": 1.1e-07, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "+ fp16": "no CUDA device: their mixed precision is CUDA's",
    "+ bf16": (1.7, 25.0, {"score_error": 0.0028, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "+ last layers": (0.61, 11.0, {"score_error": 0.32, "rank_agreement": 0.917, "top_50_shared": 0.88}),
    "+ vmap": (1.03, 70.0, {"score_error": 1.8e-07, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "+ filtering": (0.0007, 0.8, {"score_error": 0.65, "rank_agreement": -0.006, "top_50_shared": 0.06}),
    "all that is exact": (0.45, 70.0, {"score_error": 1.8e-07, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "kgops": (0.037, 23.6, {"score_error": 7.4e-08, "rank_agreement": 1.0, "top_50_shared": 1.0}),
}


def ran(rng: random.Random, seconds: float, mib: float, metrics: dict[str, float]) -> dict[str, Any]:
    of = {
        "seconds_of": "CPU time of one thread, loading left out",
        "memory_of": "resident set at its peak",
    }
    took = seconds * rng.uniform(0.97, 1.03)
    return {**of, "seconds": took, "memory_mib": mib, "metrics": metrics, "trouble": None, "took_s": took}


def add_claims(conn: Connection, machine: dict[str, Any] = HERE, at: float | None = None) -> int:
    """Table b, as `kgops bench claims --quick --only b` leaves it behind."""
    rng, began = random.Random(7), at or time.time() - 3600
    plan = {"variants": [{"name": name} for name in ("baseline", *CLAIMS_B)], "rounds": 3, "together": True}
    name, command = "claims b (quick): TracIn, one test triple", "kgops bench claims --quick --only b"
    number = benches.begin(conn, name, plan, command, machine, began)
    for i in range(3):
        base = ran(rng, 1.0, 12.75, {})
        for variant, told in CLAIMS_B.items():
            measured: dict[str, Any] = (
                {"trouble": told, "metrics": {}, "seconds": None, "memory_mib": None}
                if isinstance(told, str)
                else ran(rng, *told)
            )
            benches.add_pair(conn, number, Pair(i, variant, 1, 2, base, measured, 0.02, (), began + i))
    benches.end(conn, number, began + 100)
    return number


def add_matrix(conn: Connection) -> int:
    """`kgops bench matrix` over batch sizes in two precisions."""
    rng, began = random.Random(8), time.time() - 1800
    settings: dict[str, dict[str, Any]] = {
        f"batch_size={size} precision={precision}": {"batch_size": size, "precision": precision}
        for precision in ("fp32", "bf16")
        for size in (128, 256, 512, 1024)
    }
    variants = [{"name": name, "varied": setting} for name, setting in settings.items()]
    plan = {"variants": variants, "rounds": 5}
    command = "kgops bench matrix nations.toml --vary batch_size=128,256,512,1024 --vary precision=fp32,bf16"
    number = benches.begin(conn, "nations.toml by batch_size, precision", plan, command, HERE, began)
    for i in range(4):
        base = ran(rng, 1.0, 400.0, {"test_mrr": 0.6})
        for name, setting in list(settings.items())[1:]:
            size, half = setting["batch_size"], setting["precision"] == "bf16"
            seconds, mib = (0.3 + 90 / size) * (0.8 if half else 1.0), (300 + size / 2) * (0.7 if half else 1)
            measured = ran(rng, seconds, mib, {"test_mrr": 0.59 if half else 0.6})
            measured["options"] = (
                {"precision": {"requested": "bf16", "applied": "fp32", "why": "[b]no bf16\x1b[31m[/b] here"}}
                if half and size == 128
                else {}
            )
            benches.add_pair(conn, number, Pair(i, name, 1, 2, base, measured, 0.3, (), began + i))
    return number


async def opened(seen: Seen) -> None:
    await seen.press("b")
    await seen.until(lambda: isinstance(seen.app.screen, Benchmarks), "the benchmarks")
    await seen.until(lambda: seen.app.screen.query_one("#body", Lines).rows, "what there is")


async def go_to(seen: Seen, start: str, name: str = "") -> None:
    """The cursor on the first row that begins so, and what is told of it, which begins with `name`."""
    body = seen.app.screen.query_one("#body", Lines)
    for _ in range(len(body.rows)):
        if "".join(piece.text for piece in body.rows[at(seen)].pieces).startswith(start):
            break
        await seen.press("down")
    else:
        raise AssertionError(f"no row begins with {start!r}:\n{seen.text}")
    await seen.until(lambda: detail_text(seen).startswith(name or start), f"what is told of {start}")


def at(seen: Seen) -> int:
    return seen.app.screen.query_one("#body", RowWindow).at


def detail_text(seen: Seen) -> str:
    """All that is told of the row under the cursor, in sight or not."""
    detail = seen.app.screen.query_one("#detail", Lines)
    margin = "  " if detail.draws_panels else ""
    return "\n".join("".join(piece.text for piece in row.pieces).removeprefix(margin) for row in detail.rows)
