"""Which metrics there are is known without reading all of them again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from screen_benchmarks import (
    HERE,
    THERE,
    add_claims,
    add_many,
    add_own,
    key_of,
)

from storage import benches, measurements, metric_query
from storage.database import Connection
from storage.measurements import Measurement, MeasurementFilter


def test_metrics_that_came_or_went_are_known_without_reading_all_again(conn: Connection) -> None:
    add_many(conn, 400)
    known = metric_query.known(conn)
    assert list(known.numbers) == list(range(1, 401))
    add_many(conn, 100)
    assert metric_query.known(conn, known).numbers is known.numbers and len(known.numbers) == 500
    conn.execute("DELETE FROM measurement WHERE id BETWEEN 100 AND 199")
    add_many(conn, 50)
    fresh = metric_query.known(conn, known)
    assert len(fresh.numbers) == measurements.count(conn) == 450
    assert set(metric_query.of_numbers(conn, range(90, 210))) == {*range(90, 100), *range(200, 210)}
    conn.execute("DELETE FROM measurement WHERE id > 500")
    add_own(conn, times=17)  # under the numbers of those that are gone
    fresh = metric_query.known(conn, fresh)
    assert len(fresh.numbers) == measurements.count(conn) == 451
    assert len(metric_query.with_words(fresh, ["rss"], None)) == 17
    words = metric_query.with_words(fresh, ["Loss"], key_of(THERE))
    assert len(words) == measurements.count(conn, MeasurementFilter(("loss",), machine=key_of(THERE)))


def test_what_came_last_is_found_at_once_and_the_rest_counted(conn: Connection) -> None:
    add_own(conn, times=2)
    add_many(conn, 1_000)
    late, everything = (
        metric_query.recent_batches(conn, among=300),
        metric_query.batches(conn, metric_query.known(conn)),
    )
    add_claims(conn)
    number = next(iter(benches.newest(conn, limit=1))).id
    kept = Measurement("speed", "+ fp16", "fp32", 2.0, 1.9, 2.1, 3, "×", "kgops bench claims", HERE, 1.0)
    measurements.replace_of_bench(conn, number, [replace(kept, bench=number)])
    assert metric_query.batches(conn, metric_query.known(conn)) == everything  # that one is a benchmark's
    by_hand = conn.execute(
        "SELECT command, fingerprint, max(at), count(*) FROM measurement WHERE bench IS NULL"
        " GROUP BY command, fingerprint"
    )
    assert sorted(everything) == sorted(map(tuple, by_hand))
    assert "benchmarks.console" not in {one.command for one in late}
    assert sum(one.metrics for one in everything) == 1_006
    assert {one[:2] for one in late} <= {one[:2] for one in everything}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", metric_query.WORDS)
@pytest.mark.parametrize("machine", [None, key_of(HERE), key_of(THERE), "nobody"])
def test_by_words_metrics_stand_as_the_database_would_sort_them(
    conn: Connection, sort: str, descending: bool, machine: str | None
) -> None:
    add_many(conn, 300)
    odd = Measurement(
        "É", "\N{OGHAM SPACE MARK}z", None, 2.0, 1.9, 2.1, 3, "", "kgops bench claims", HERE, 1.0
    )
    measurements.add_all(conn, [odd, replace(odd, name="Z", subject="", unit="µs")])
    everything = metric_query.known(conn)
    truth = metric_query.ordered(conn, machine, sort, descending)
    assert list(metric_query.ordered_by_words(everything, machine, sort, descending)) == list(truth)
    some = metric_query.with_words(everything, ["s"], None)
    kept = [number for number in truth if number in {*some}]
    assert list(metric_query.in_order(truth, some)) == kept
