"""How fast a run was is a curve of its own, bounded however long it goes on; memory is compared with its like."""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from driving import Console
from screen_driving import Seen, look

from kgops.supervisor.intake import Intake
from kgops.supervisor.log_patterns import LogPatterns
from kgops.supervisor.run_folder import RunFolder
from storage import runs, series
from storage.database import Connection

NO_PATTERNS = LogPatterns(None, None)


def add_run(conn: Connection, *, forecast: dict[str, Any] | None = None, **given: Any) -> None:
    wanted: dict[str, Any] = {
        "workload": "train",
        "label": "nations",
        "profile": None,
        "state": "queued",
        "folder": "0001-train-nations",
        "submitted_at": time.time(),
        "gpu_request": None,
        "reserved_mib": None,
        "exclusive": False,
        "predicted_mib": None,
        **given,
    }
    spec = runs.RunSpec({}, {"forecast": forecast} if forecast else {}, {})
    runs.add(conn, number=1, spec=spec, **wanted)


def told(at: float, rate: float | None, unit: str | None = "batch") -> bytes:
    said = {"event": "progress", "done": 1, "total": 9, "at": at, "rate": rate, "unit": unit}
    return json.dumps(said).encode() + b"\n"


def test_rates_are_kept_a_second_apart_and_under_the_name_of_their_unit(
    conn: Connection, tmp_path: Path
) -> None:
    add_run(conn)
    folder = RunFolder(tmp_path)
    lines = [told(100 + i / 4, 10 + i) for i in range(9)]
    lines += [told(103, None), told(104, 3.5, "epoch"), told(105, 2.5, None)]
    folder.events.write_bytes(b"".join(lines))
    Intake(conn, 1, folder, NO_PATTERNS).take_all(1)
    kept = {
        one.name: [(p.at, p.value) for p in series.points(conn, 1, one.name)]
        for one in series.of_run(conn, 1)
    }
    assert kept == {
        "batch_per_s": [(100.0, 10.0), (101.0, 14.0), (102.0, 18.0)],
        "epoch_per_s": [(104.0, 3.5)],
        "it_per_s": [(105.0, 2.5)],
    }


def test_days_of_rates_are_some_thousand_points_that_become_ever_more_seldom(
    conn: Connection, tmp_path: Path
) -> None:
    add_run(conn)
    folder = RunFolder(tmp_path)
    seconds = range(0, 200_000, 2)
    with folder.events.open("wb") as file:
        file.writelines(told(1e9 + at, 5.0) for at in seconds[:50_000])
    intake = Intake(conn, 1, folder, NO_PATTERNS)
    while intake.take(1, final=False):
        pass
    with folder.events.open("ab") as file:
        file.writelines(told(1e9 + at, 5.0) for at in seconds[50_000:])
    Intake(conn, 1, folder, NO_PATTERNS).take_all(1)
    at = [point.at - 1e9 for point in series.points(conn, 1, "batch_per_s")]
    gaps = [after - before for before, after in pairwise(at)]
    assert 5000 < len(at) < 8000
    assert at[-1] > 199_000
    assert gaps == sorted(gaps)  # never denser again, whoever takes it in


def emit(event: dict[str, Any]) -> str:
    return f"echo '{json.dumps(event)}' >> \"$KGOPS_EVENTS\";"


def test_the_page_of_a_run_draws_its_rate_and_only_tells_what_never_changed(run_cli: Console) -> None:
    now = time.time()
    script = "".join(
        emit({"event": "progress", "done": i, "total": 9, "at": now + 2 * i, "rate": 20.0 + i, "unit": "it"})
        + emit({"event": "metric", "name": "learning_rate", "value": 0.125, "step": i})
        + emit({"event": "memory", "mib": {"libraries": 512}, "at": now + i})
        for i in range(5)
    )
    assert run_cli("run", "exec", "--", "sh", "-c", script).code == 0

    async def story(seen: Seen) -> None:
        await seen.until(lambda: "RECENT" in seen.text, "runs")
        await seen.press("enter")
        await seen.until_shows("CURVES")
        assert re.search(r"\bit/s +24\b", seen.text)  # a panel of its own, with its last value
        unchanged = seen.row_of("constant: ")
        assert "libraries MiB 512" in unchanged
        assert "learning rate 0.125" in unchanged

    look(run_cli.home, story)
