"""Rows of the hosts screen: what did not change is kept, and a page drawn anew would be the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kgops.hosts.mirror import HostState, Mirror, Reach
from kgops.hosts.protocol import PROTOCOL
from kgops.present.rows import Row
from screens.hosts_page import HostsPage


def test_rows_kept_from_the_last_draw_are_those_that_a_first_draw_gives() -> None:
    """Hosts that say something at random, vanish and return: whatever is kept, the page is the same."""
    rng = random.Random(24)
    mirrors = {name: _mirror(_picture(rng)) for name in ("lab1", "lab2", "lab3")}
    reaches: dict[str, Reach] = dict.fromkeys(mirrors, "live")
    page = HostsPage()
    changed = 0
    before: list[Row] = []
    for turn in range(200):
        name = rng.choice(list(mirrors))
        what = rng.random()
        if what < 0.15:
            reaches[name] = "live" if reaches[name] != "live" else "unreachable"
        elif what < 0.3:
            mirrors[name].read(json.dumps({"type": "picture", **_picture(rng)}).encode())
        else:
            part = {
                table: dict(rng.sample(list(rows.items()), 1))
                for table, rows in _picture(rng).items()
                if rng.random() < 0.5
            }
            gone = {"run": [str(rng.randint(1, 6))]} if rng.random() < 0.2 else {}
            mirrors[name].read(json.dumps({"type": "change", "set": part, "drop": gone}).encode())
        states = [
            HostState(one, one, reaches[one], heard_at=1e9, tables=mirror.tables)
            for one, mirror in mirrors.items()
        ]
        width = rng.choice((80, 120, 120, 120))
        rows = page.rows(states, width, 1e9 + turn)
        assert rows == HostsPage().rows(states, width, 1e9 + turn)
        changed += rows != before
        before = rows
    assert changed > 150


def test_change_of_one_gpu_draws_its_row_alone() -> None:
    mirror, page = _mirror(_picture(random.Random(24))), HostsPage()

    def drawn() -> dict[object, Row]:
        state = HostState("lab1", "lab1", "live", heard_at=1e9, tables=mirror.tables)
        return {row.key: row for row in page.rows([state], 120, 1e9)}

    before = drawn()
    mirror.read(json.dumps({"type": "change", "set": {"gpu": {"1": {"memory_used_mib": 16_000}}}}).encode())
    after = drawn()
    assert after["gpu", "lab1", "0"] is before["gpu", "lab1", "0"]
    assert "16,000/" in "".join(piece.text for piece in after["gpu", "lab1", "1"].pieces)


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
    (row,) = (row for row in HostsPage().rows([state], 120, 1e9) if row.key == ("run", "lab1", 4))
    assert f"{sign} succeeded" in "".join(piece.text for piece in row.pieces)
