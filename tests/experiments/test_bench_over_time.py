"""Words find the fastest configuration of a machine, its results over time say whether it became slower, and two
machines stand side by side."""

import sqlite3

import dated_benchmarks as dated
from dated_benchmarks import FAST, NAMES, SLOW
from driving import Console

from kgops.experiments.benchmark_results import Change, ResultReader, compared
from kgops.experiments.trial_result import Spread


def test_what_is_fastest_on_my_t4(run_cli: Console, conn: sqlite3.Connection) -> None:
    dated.add_all(conn)
    (told,) = run_cli("bench", "show", "t4", "--json").json()
    assert told["machine"] == "Tesla T4, Intel Xeon, 2 cores" and told["id"] == 3
    assert told["name"] == dated.BY and told["bench"] == [1, 2, 3]
    assert told["fastest"]["variant"] == FAST
    assert told["fastest"]["seconds"]["median"] == 0.41
    shown = run_cli("bench", "show", "t4").out
    assert f"Fastest on Tesla T4: {FAST}, 0.41 s (an epoch), 1.95× as fast as {SLOW}." in " ".join(
        shown.split()
    )
    assert "Against 2026-10-28, the time before: 13% slower." in shown and "A100" not in shown
    everything = run_cli("bench", "show", "nations", "fp16", "--json").json()
    assert [one["machine"].partition(",")[0] for one in everything] == ["NVIDIA A100-SXM4-40GB", "Tesla T4"]


def test_has_it_become_slower_since_october(run_cli: Console, conn: sqlite3.Connection) -> None:
    dated.add_all(conn)
    (told,) = run_cli("bench", "show", "t4", "--over-time", "--json").json()
    results = told["result"]
    assert [one["bench"] for one in results] == [1, 2, 3]
    assert [one["than_before"] and one["than_before"]["verdict"] for one in results] == [
        *(None, "within noise", "slower")
    ]
    assert [one["until_now"] and one["until_now"]["verdict"] for one in results] == ["slower", "slower", None]
    assert [one["torch"] for one in results] == ["2.10.0", "2.10.0", "2.13.0"]
    assert told["fastest"]["since_first"]["bench"] == 1
    shown = run_cli("bench", "show", "t4", "--over-time").out
    assert shown == run_cli("bench", "show", "2", "--over-time").out
    for words in ("first", "within noise", "13% slower", "14% slower", "aaaaaaaa", "2.13.0"):
        assert words in shown, words


def test_this_machine_or_that(run_cli: Console, conn: sqlite3.Connection) -> None:
    dated.add_all(conn)
    told = run_cli("bench", "compare", "t4", "a100", "--json").json()
    (only,) = told
    assert only["bench"] == [3, 4]
    assert only["answer"].startswith("NVIDIA A100-SXM4-40GB against Tesla T4: 4.1× faster.")
    times = {one["variant"]: one for one in only["time"]}
    assert list(times) == list(NAMES) and times[SLOW]["verdict"] == "faster"
    shown = run_cli("bench", "compare", "a100", "colab").out
    assert "4.1× slower" in shown and f"0.41 s on Tesla T4 with {FAST}" in shown.replace("\n", " ")
    nothing = run_cli("bench", "compare", "t4", "h200")
    assert nothing.code == 2 and "no benchmark was measured on two machines" in nothing.err


def test_of_configurations_within_noise_the_first_is_the_fastest(conn: sqlite3.Connection) -> None:
    """An option that has no effect is not recommended."""
    dated.add(conn, dated.noon(10, 3), dated.T4, dict(zip(NAMES, (0.400, 0.60, 0.398, 0.399), strict=True)))
    (series,) = ResultReader().read(conn)
    fastest = series.fastest
    assert fastest is not None and fastest.row.variant == SLOW
    assert fastest.alike == (NAMES[2], FAST) and fastest.baseline is None


def test_times_of_another_job_or_of_too_few_rounds_are_not_judged(conn: sqlite3.Connection) -> None:
    times = dict(zip(NAMES, (0.80, 0.60, 0.50, 0.36), strict=True))
    dated.add(conn, dated.noon(10, 3), dated.T4, times)
    dated.add(conn, dated.noon(10, 4), dated.T4, {name: 2 * one for name, one in times.items()}, epochs=10)
    dated.add(conn, dated.noon(10, 5), dated.T4, times, epochs=10, rounds=2, ended=False)
    (series,) = ResultReader().read(conn)
    steps = series.over_time(FAST)
    assert [str(one.than_before) for one in steps[1:]] == ["another job", "too few rounds"]
    assert series.results[-1].state == "unfinished: 6 of 15 pairs"


def test_a_difference_within_the_measured_spread_is_noise() -> None:
    wide, shifted = Spread(1.0, 0.8, 1.2, 5), Spread(1.15, 0.95, 1.4, 5)
    assert compared(wide, shifted) == Change("within noise", 1.15)
    assert compared(Spread(1.0, 1.0, 1.0, 5), Spread(1.04, 1.04, 1.04, 5)).verdict == "within noise"
    slower = compared(Spread(1.0, 0.99, 1.01, 5), Spread(1.15, 1.14, 1.16, 5))
    assert str(slower) == "15% slower"
    # A control that differed by a fifth shows more noise than this.
    assert compared(Spread(1.0, 0.99, 1.01, 5), Spread(1.15, 1.14, 1.16, 5), 0.2).verdict == "within noise"
