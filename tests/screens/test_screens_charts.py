"""Charts of a run have both axes, and their labels at every size."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from records import add

from kgops.present.rows import Row
from kgops.present.run_detail import RunDetail, read_run_detail
from kgops.settings import Home
from kgops.tour.filling import put_sample
from screens.widgets.curve_panels import panels
from storage import series
from storage.database import Connection, transaction


def detail_with(home: Path, conn: Connection, *points: series.Point) -> RunDetail:
    forecast = {
        "on": "Tesla T4",
        "on_gpu": True,
        "predicted_mib": 13_562.0,
        "modelled_s": None,
        "estimate": {"phase": "training", "parts_mib": {"weights": 13_562.0}},
    }
    with transaction(conn):
        add(
            conn,
            1,
            workload="train",
            label="nations",
            folder="0001-train-nations",
            submitted_at=time.time() - 600,
            predicted_mib=13_562.0,
            plan={"forecast": forecast},
        )
        series.append(conn, 1, list(points))
    detail = read_run_detail(Home(home), conn, 1)
    assert detail is not None
    return detail


def texts(rows: list[Row]) -> list[str]:
    return ["".join(piece.text for piece in row.pieces) for row in rows]


def test_a_curve_over_epochs_names_its_first_and_last_epoch(home: Path, conn: Connection) -> None:
    detail = detail_with(home, conn, *(series.Point("loss", i, 1 / i, float(i)) for i in range(1, 51)))
    below = texts(panels(detail, 80))[-1]
    assert below.split() == ["1", "26", "epoch", "50"]


def test_samples_are_drawn_over_time_since_the_start(home: Path, conn: Connection) -> None:
    began = time.time() - 600
    memory = [series.Point("gpu_memory_mib", began + i, 300.0 + i, began + i) for i in range(0, 601, 10)]
    detail = detail_with(home, conn, *memory)
    started = replace(detail, run=detail.run._replace(started_at=began))
    assert texts(panels(started, 80))[-1].split() == ["0:00", "5:00", "10:00"]


def test_a_step_is_drawn_at_its_place_on_the_axis(home: Path, conn: Connection) -> None:
    """Dense points at the start and one far to the right: a line over most of the width joins them."""
    early = [series.Point("loss", i, 1.0, float(i)) for i in range(1, 50)]
    detail = detail_with(home, conn, *early, series.Point("loss", 500, 0.0, 500.0))
    chart = texts(panels(detail, 80))[2:7]
    flat = sum(char != " " for char in chart[0][9:])
    assert flat < 25  # by the number of points it would be all but the last column


def test_rates_start_at_zero(home: Path, conn: Connection) -> None:
    now = time.time()
    rates = [series.Point("batch_per_s", now + i, 5.0 + i % 2, now + i) for i in range(20)]
    chart = texts(panels(detail_with(home, conn, *rates), 80))[2:7]
    assert [line[:8].strip() for line in chart] == ["6", "", "3", "", "0"]


def test_the_estimate_is_drawn_over_the_curve_under_one_name(home: Path, conn: Connection) -> None:
    memory = [series.Point("gpu_memory_mib", i, 13_400.0, float(i)) for i in range(100)]
    loss = [series.Point("loss", i, 1 / (1 + i), float(i)) for i in range(100)]
    detail = detail_with(home, conn, *memory, *loss)
    for width in (34, 80, 120, 200):
        drawn = "\n".join(texts(panels(detail, width)))
        assert drawn.count("predicted 13,562") == 1
        assert "GPU memory MiB" in drawn
        assert "13,400" in drawn
        assert drawn.count("─") >= 3


def test_charts_are_higher_on_a_higher_screen(home: Path, conn: Connection) -> None:
    detail = detail_with(home, conn, *(series.Point("loss", i, 1 / i, float(i)) for i in range(1, 51)))
    assert len(panels(detail, 80)) == 8  # two headings, five lines, the axis
    assert [len(panels(detail, 80, room)) for room in (5, 12, 60)] == [8, 12, 19]


def test_shares_in_the_sample_data_are_at_most_one(home: Path, conn: Connection) -> None:
    for number in put_sample(Home(home), conn):
        for one in series.of_run(conn, number):
            if "hits" in one.name or one.name.endswith("mrr"):
                assert all((bucket.max or 0.0) <= 1 for bucket in series.curve(conn, number, one.name))
