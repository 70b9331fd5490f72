"""A window onto any number of runs: metrics, pages that stay until they are refreshed, what is marked, exports."""

import random
import sqlite3
from pathlib import Path

from known_runs import (
    NOW,
    History,
    a_term,
    compared,
    found,
    make,
    small,
)
from records import add

from kgops.interchange import export
from kgops.present.listing import Listing, Sort, delete_marked, strictly
from kgops.settings import Home
from storage import conditions, filters, run_list, runs, search, series
from storage.database import open_reader

# --- metrics ----------------------------------------------------------------------------------------


def test_runs_sort_by_a_metric_of_the_test_first_and_those_that_lack_it_last(history: History) -> None:
    conn, known = history
    ended = [k for k in known if k.run["state"] in runs.ENDED]
    tested = {k.run["id"] for k in ended if k.metric("test_mrr") is not None}
    for descending in (True, False):
        have = sorted(
            ((value, k.run["id"]) for k in known if (value := k.metric("mrr")) is not None),
            reverse=descending,
        )
        have.sort(key=lambda pair: pair[1] not in tested)
        lack = sorted((k.run["id"] for k in known if k.metric("mrr") is None), reverse=descending)
        expected = [number for _, number in have] + lack
        assert list(run_list.ordered(conn, metric="mrr", descending=descending)) == expected
        pages: list[int] = []
        while page := run_list.page(
            conn, metric="mrr", descending=descending, limit=7, after=pages[-1] if pages else None
        ):
            pages += [run.id for run in page]
        assert pages == expected


def test_names_of_metrics_are_those_some_run_has(history: History) -> None:
    conn, known = history
    names = series.names(conn)
    assert {"mrr", "test_mrr", "valid_mrr", "loss", "hits@10"} <= set(names)
    for name in names:
        assert any(k.metric(name) is not None for k in known)


def test_metrics_of_an_ended_run_go_with_it_and_come_again(conn: sqlite3.Connection) -> None:
    for number in (1, 2):
        add(conn, number)
        series.append(conn, number, [series.Point("valid_mrr", 1, 0.25 * number, 1.0)])
    assert found(conn, "mrr>0.2") == [1, 2]  # as reported, before any end
    for number in (1, 2):
        runs.end(conn, number, state="failed", reason=None, exit_code=1, ended_at=2.0)
    assert found(conn, "mrr>0.2") == [1, 2]
    assert runs.reopen(conn, 1)
    assert found(conn, "mrr>0.2") == [1, 2]
    series.append(conn, 1, [series.Point("valid_mrr", 2, 0.125, 1.0)])
    assert found(conn, "mrr>0.2") == [2]
    assert runs.delete(conn, 2)
    assert conn.execute("SELECT count(*) FROM score").fetchone() == (0,)
    assert found(conn, "best.mrr>=0.25") == [1]


# --- the window -------------------------------------------------------------------------------------


def test_listing_shows_what_pages_show_at_every_position(history: History) -> None:
    conn, known = history
    listing = Listing(conn)
    chance = random.Random(17)
    for _ in range(300):
        chosen = [a_term(chance) for _ in range(chance.choice([0, 1, 2]))]
        text = " ".join(term for term, _ in chosen)
        by, metric = chance.choice([("id", False), ("peak_host_mib", False), ("label", False), ("mrr", True)])
        sort = Sort(by, metric, chance.random() < 0.5)
        terms = filters.read(text, now=NOW).terms
        listing.show(terms, sort)
        wanted = run_list.Filter(conditions=conditions.compiled(conn, terms))
        by_hand = list(
            run_list.ordered(
                conn,
                wanted,
                sort="id" if metric else by,
                metric=by if metric else None,
                descending=sort.descending,
            )
        )
        assert sorted(by_hand) == [k.run["id"] for k in known if all(means(k) for _, means in chosen)], text
        assert list(listing.numbers) == by_hand, (text, sort)
        assert (len(listing.numbers), listing.total) == (len(by_hand), len(known))
        at = chance.randrange(len(by_hand) + 3)
        rows = run_list.of_numbers(conn, list(listing.numbers[at : at + 9]))
        assert [run.id for run in rows] == by_hand[at : at + 9]
        if by_hand:
            assert by_hand[listing.position(by_hand[-1]) or 0] == by_hand[-1]
    assert listing.position(10**6) is None


def test_listing_stays_until_it_is_refreshed_and_follows_what_others_commit(
    home: Path, conn: sqlite3.Connection
) -> None:
    known = small(conn, 40)
    listing = Listing(open_reader(home / "kgops.db"))
    listing.show(strictly("state:ended"))
    ended = [k.run["id"] for k in known if k.run["state"] in runs.ENDED][::-1]
    assert list(listing.numbers) == ended
    assert not listing.refresh()
    make(conn, 41, random.Random(1))
    listing.show(strictly("attempts>=0"))  # a new run is not there before the next look
    assert list(listing.numbers) == list(range(40, 0, -1))
    listing.show(strictly("attempts<9"), Sort("label"))
    assert set(listing.numbers) == set(range(1, 41))
    listing.show(strictly("state:ended"), Sort())
    assert listing.refresh()
    known.append(make(conn, 42, random.Random(2)))
    conn.execute("DELETE FROM run WHERE id = 41")
    search.forget(conn, 41)
    listing.show(strictly("attempts>-1"))  # as many runs as before, and not the same ones
    assert list(listing.numbers) == list(range(40, 0, -1))
    listing.show(strictly("state:ended"))
    assert listing.refresh()
    ended = [k.run["id"] for k in known if k.run["state"] in runs.ENDED][::-1]
    gone = ended[3]
    assert runs.delete(conn, gone)
    assert run_list.of_numbers(conn, list(listing.numbers[2:5])) == [
        runs.get(conn, number) for number in (ended[2], ended[4])
    ]
    assert listing.refresh()
    ended.remove(gone)
    assert list(listing.numbers) == ended
    listing.show(strictly("-a"))  # with a gap among the numbers
    assert (
        list(listing.numbers)
        == [k.run["id"] for k in known if "a" not in k.text.lower() and k.run["id"] != gone][::-1]
    )
    listing.show(strictly("-peak_host>600"))
    expected = [
        k.run["id"] for k in known if not compared(k.run["peak_host_mib"], ">", 600) and k.run["id"] != gone
    ]
    assert list(listing.numbers) == expected[::-1]


def test_marked_runs_that_ended_are_deleted_with_their_folders_and_others_say_why_not(
    home: Path, conn: sqlite3.Connection
) -> None:
    known = small(conn, 30)
    for k in known:
        (home / "runs" / f"{k.run['id']:04d}").mkdir()
    marked = [*range(5, 20), 77]
    told = {deleted.run: deleted for deleted in delete_marked(Home(home), conn, marked)}
    assert list(told) == marked
    for number in marked[:-1]:
        ended = known[number - 1].run["state"] in runs.ENDED
        assert (told[number].done, told[number].why is None) == (ended, ended)
        assert (runs.get(conn, number) is None) == ended
        assert (home / "runs" / f"{number:04d}").exists() != ended
    assert told[77].why == "it was deleted already"


def test_export_has_every_column_tags_and_metrics_and_nothing_a_spreadsheet_runs(
    conn: sqlite3.Connection,
) -> None:
    import csv
    import json

    known = small(conn, 30)
    conn.execute("UPDATE run SET label = '=1+1, \"x\"\n\x1b[2J' WHERE id = 3")
    numbers = [k.run["id"] for k in known][::-1]
    rows = list(csv.DictReader("".join(export.as_csv(conn, numbers, ["mrr", "best.loss"])).splitlines()))
    assert [int(row["id"]) for row in rows] == numbers
    assert rows[-3]["label"].startswith('\'=1+1, "x" ')
    assert "\x1b" not in rows[-3]["label"]
    elements = json.loads("".join(export.as_json(conn, numbers, ["mrr", "best.loss"])))
    for k, row, element in zip(reversed(known), rows, elements, strict=True):
        assert set(row["tags"].split()) == k.tags == set(element["tags"])
        assert row["mrr"] == ("" if k.metric("mrr") is None else str(k.metric("mrr")))
        assert element["metrics"] == {"mrr": k.metric("mrr"), "best.loss": k.best("loss")}
        assert element["peak_host_mib"] == k.run["peak_host_mib"]
    assert json.loads("".join(export.as_json(conn, []))) == []
