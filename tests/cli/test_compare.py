"""Runs side by side: only what differs, with ratios to the first."""

from dataclasses import replace

import pytest
from driving import Console

from kgops.present.comparison import Comparison, Difference, Metric, compare
from storage import runs
from storage.database import open_reader


def test_two_trainings_show_the_options_that_differ_and_the_ratios(two_trainings: Console) -> None:
    page = two_trainings("compare", "1", "2").out
    assert ["options.batch_size", "128", "64"] in [line.split() for line in page.splitlines()]
    assert "num_epochs" not in page
    assert "environment: no differences" in page
    assert "num_epochs" in two_trainings("compare", "1", "2", "--all").out
    found = two_trainings("compare", "2", "1", "--json").json()
    assert found["same_machine"] is True
    assert found["options"]["batch_size"] == ["64", "128"]
    mrr = found["metrics"]["test_mrr"]
    assert mrr["ratios"] == [1.0, pytest.approx(mrr["values"][1] / mrr["values"][0])]
    epochs = found["metrics"]["epoch_seconds"]
    seconds = [p["last_value"] for p in two_trainings.show(2)["series"] if p["name"] == "epoch_seconds"]
    low, high = epochs["quartiles"][0]
    assert low <= epochs["values"][0] <= high
    assert low * 0.2 < seconds[0] < high * 5


def test_an_epoch_that_warms_up_is_compared_with_its_like_alone(run_cli: Console) -> None:
    for times in ("9", "9 1 3", "8"):
        flags = ("--metric-regex", r"took=(?P<epoch_seconds>\S+)")
        assert run_cli("run", "exec", *flags, "--", "printf", "took=%s\\n", *times.split()).code == 0

    def seconds(*chosen: str) -> list[float | None]:
        values: list[float | None] = run_cli("compare", *chosen, "--json").json()["metrics"]["epoch_seconds"][
            "values"
        ]
        return values

    assert seconds("1", "2") == [None, 2.0]
    assert seconds("1", "3") == [9.0, 8.0]


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


def test_runs_of_other_hosts_are_pulled_first(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    done = run_cli("compare", "1", "lab2:17")
    assert done.code == 2
    assert "`kgops pull lab2:17` brings it here" in done.err
