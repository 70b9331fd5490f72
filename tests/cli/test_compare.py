"""Runs side by side: only what differs, with ratios to the first."""

from __future__ import annotations

from dataclasses import replace

import pytest
import records
from driving import Console

from kgops.present.comparison import Comparison, Difference, Metric, compare
from storage import run_list, runs
from storage.database import Connection, open_reader

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
SMALL = (
    "train",
    "--dataset",
    "nations",
    "--num-epochs",
    "4",
    "--embedding-dim",
    "16",
    "--output-channels",
    "4",
)


def test_two_trainings_that_differ_in_one_option_show_that_option_and_the_ratios(run_cli: Console) -> None:
    for batch in ("64", "128"):
        assert run_cli("run", *SMALL, "--batch-size", batch, env=ONE_THREAD).code == 0
    page = run_cli("compare", "1", "2").out
    assert "options.batch_size  64         128" in page
    assert "num_epochs" not in page
    assert "environment: no differences" in page
    assert "num_epochs" in run_cli("compare", "1", "2", "--all").out
    found = run_cli("compare", "2", "1", "--json").json()
    assert found["same_machine"] is True
    assert found["options"]["batch_size"] == ["128", "64"]
    mrr = found["metrics"]["test_mrr"]
    assert mrr["ratios"] == [1.0, pytest.approx(mrr["values"][1] / mrr["values"][0])]
    epochs = found["metrics"]["epoch_seconds"]
    seconds = [p["last_value"] for p in run_cli.show(2)["series"] if p["name"] == "epoch_seconds"]
    low, high = epochs["quartiles"][0]
    assert low <= epochs["values"][0] <= high
    assert low * 0.2 < seconds[0] < high * 5


def test_an_epoch_that_warms_up_is_compared_with_its_like_alone(run_cli: Console) -> None:
    for times in ("9", "9 1 3", "8"):
        words = (
            "--metric-regex",
            r"took=(?P<epoch_seconds>\S+)",
            "--",
            "printf",
            "took=%s\\n",
            *times.split(),
        )
        assert run_cli("run", "exec", *words).code == 0

    def seconds(*chosen: str) -> list[float | None]:
        values: list[float | None] = run_cli("compare", *chosen, "--json").json()["metrics"]["epoch_seconds"][
            "values"
        ]
        return values

    assert seconds("1", "2") == [None, 2.0]
    assert seconds("1", "3") == [9.0, 8.0]


def test_a_run_beside_itself_or_nothing_is_no_comparison(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    assert run_cli("run", "exec", "--", "true").code == 0
    assert run_cli("compare", "1").code == 2
    assert run_cli("compare", "1", "1").code == 2
    assert run_cli("compare", "1", "9").code == 2
    both = run_cli("compare", "1", "2")
    assert both.code == 0
    assert "setting: no differences" in both.out


def test_commands_are_compared_by_what_their_logs_reported(run_cli: Console) -> None:
    for line in ("loss=0.5, mrr=0.2;", "\\033[32mloss=0.25\\033[0m"):
        words = ("--metric-regex", r"loss=(?P<loss>\S+)", "--", "printf", line)
        assert run_cli("run", "exec", *words).code == 0
    metrics = run_cli("compare", "1", "2", "--json").json()["metrics"]
    assert metrics["loss"]["values"] == [0.5, 0.25] and metrics["loss"]["ratios"] == [1.0, 0.5]
    assert "host_memory_mib" not in metrics  # sampled, not reported


def test_ratios_of_time_on_different_machines_are_marked(run_cli: Console) -> None:
    for _ in range(2):
        assert run_cli("run", "exec", "--", "true").code == 0
    conn = open_reader(run_cli.home / "kgops.db")
    chosen = [run for number in (1, 2) if (run := runs.get(conn, number)) is not None]
    found = compare(conn, chosen)
    assert found.same_machine
    moved = Difference("machine.host", ("here", "there"))
    elsewhere: Comparison = replace(found, environment=(*found.environment, moved))
    assert not elsewhere.same_machine
    took = next(one for one in found.metrics if one.name == "took")
    peak = Metric("peak_host_mib", "MiB", (2.0, 3.0), (None, None))
    assert found.ratio(took, 1) is not None
    assert (elsewhere.ratio(took, 1), elsewhere.ratio(peak, 1)) == (None, 1.5)


def test_a_ratio_needs_both_values_and_a_first_that_is_not_zero() -> None:
    metric = Metric("x", "", (2.0, None, 5.0), (None, None, None))
    assert [metric.ratio(i) for i in range(3)] == [1.0, None, 2.5]
    assert Metric("x", "", (0.0, 1.0), (None, None)).ratio(1) is None
    assert Metric("x", "", (None, 1.0), (None, None)).ratio(1) is None


def test_a_pipeline_has_its_settings_in_the_rows_of_those_who_train_or_trace_alone(conn: Connection) -> None:
    train = {"dataset": "nations", "num_epochs": 12}
    records.add(conn, 1, workload="train", job={"workload": "train", "train": train})
    both = {"train": train | {"num_epochs": 60}, "tracin": {"max_triples": 3}}
    records.add(conn, 2, workload="pipeline", job={"workload": "pipeline", "pipeline": both})
    records.add(conn, 3, workload="exec", job={"workload": "exec", "exec": {"command": ["true"]}})
    found = compare(conn, run_list.of_numbers(conn, [1, 2, 3]))
    values = {row.name: row.values for row in found.settings}
    assert values["train.num_epochs"] == (12, 60, None)
    assert values["train.seed"] == (None, 0, None)  # where nothing is said, what it takes then
    assert values["tracin.max_triples"] == (None, 3, None)
    assert not [name for name in values if name.startswith("pipeline")]
    of_one = {row.name for row in found.settings if found.is_of_one_workload(row)}
    assert {"train.dataset", "tracin.max_triples", "exec.command"} <= of_one
    assert "train.num_epochs" not in of_one
