"""Rows of the hosts screen."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kgops.hosts.mirror import HostState, Mirror
from kgops.hosts.protocol import PROTOCOL
from screens.hosts_page import rows


def _mirror(picture: dict[str, Any]) -> Mirror:
    mirror = Mirror()
    mirror.read(json.dumps({"type": "hello", "protocol": PROTOCOL, "kgops": "0.1.0"}).encode())
    mirror.read(json.dumps({"type": "picture", **picture}).encode())
    return mirror


def _picture(rng: random.Random) -> dict[str, dict[str, dict[str, object]]]:
    ended = {"state": "succeeded", "ended_at": 9e8 + rng.randint(0, 99), "metric": "test_mrr"}
    going = {"state": "running", "done": rng.randint(0, 9), "total": 10, "metric": "loss"}
    return {
        "host": {"host": {"problem": None}},
        "gpu": {
            str(i): {
                "name": "Tesla T4",
                "memory_used_mib": rng.randint(0, 15_000),
                "memory_total_mib": 15_360,
                "utilization_percent": rng.randint(0, 100),
            }
            for i in range(2)
        },
        "process": {"0/17": {"gpu": "0", "user": rng.choice(("ada", "bob")), "used_mib": 100.0}},
        "run": {
            str(i): {
                "workload": "train",
                "label": f"run {i}",
                "started_at": 8e8,
                "metric_value": rng.random(),
                **rng.choice((ended, going)),
            }
            for i in range(1, 7)
        },
    }


@pytest.mark.parametrize(("oom_attempts", "sign"), [(0, "✓"), (1, "▼")])
def test_sign_of_a_run_is_the_one_of_dashboard_and_history(oom_attempts: int, sign: str) -> None:
    add_run = {"workload": "train", "state": "succeeded", "label": "x", "oom_attempts": oom_attempts}
    mirror = _mirror({**_picture(random.Random(24)), "run": {"4": add_run}})
    state = HostState("lab1", "lab1", "live", heard_at=1e9, tables=mirror.tables)
    (row,) = (row for row in rows([state], 120, 1e9) if row.key == ("run", "lab1", 4))
    assert f"{sign} succeeded" in "".join(piece.text for piece in row.pieces)
