"""What is listed, shown, searched and deleted: the columns of the database, and nothing left behind."""

import json
import shlex
import sqlite3
import time
from pathlib import Path
from typing import Any

from driving import Console
from records import add

from kgops.settings import Home
from kgops.supervisor.end_hook import facts_of
from storage import attempts, benches, runs


def columns_of(conn: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}


def test_json_keys_are_the_columns_of_the_database(run_cli: Console, conn: sqlite3.Connection) -> None:
    events = [
        {"event": "metric", "name": "loss", "value": 0.5, "step": 1},
        {
            "event": "option",
            "name": "precision",
            "requested": "fp16",
            "applied": "fp32",
            "reason": "no GPU",
        },
        {"event": "artifact", "path": "results/a.txt", "kind": "text", "bytes": 3},
        {"event": "note", "text": "hello"},
        {"event": "progress", "done": 1, "total": 2},
    ]
    script = "".join(f"echo {shlex.quote(json.dumps(event))} >> $KGOPS_EVENTS\n" for event in events)
    printed = run_cli.must("run", "exec", "--json", "--tag", "t", "--", "sh", "-c", script)
    run_cli("note", "1", "worth keeping")
    (listed,) = run_cli("runs", "--json").json()
    shown = run_cli.show(1)
    assert set(listed) == {*columns_of(conn, "run"), *runs.OF_ATTEMPTS} & {*runs.FIELDS}
    assert set(listed) < set(shown)
    assert set(printed.json()) == set(shown)
    for table in ("attempt", "option", "series", "event", "artifact", "note"):
        assert shown[table], f"{table} has no row"
        assert set(shown[table][0]) <= columns_of(conn, table)
    assert shown["tag"] == ["t"]
    assert {(e["kind"], e["body"].get("text")) for e in shown["event"]} >= {("note", "hello")}
    option = shown["option"][0]
    assert (option["requested"], option["applied"], option["effect"]) == ("fp16", "fp32", "rounding")
    page = run_cli("show", "1").out
    words = (
        "precision",
        "fp32",
        "no GPU",
        "loss",
        "results/a.txt",
        "hello",
        "worth keeping",
        "tags       t",
    )
    for word in words:
        assert word in page


def put_ended(conn: sqlite3.Connection, number: int, state: str) -> None:
    add(conn, number, label=f"label {number}", submitted_at=time.time() - 86400 * (5 - number) - 60)
    runs.end(conn, number, state=state, reason=None, exit_code=number, ended_at=time.time())


def test_listing_filters_sorts_and_pages(run_cli: Console, conn: sqlite3.Connection) -> None:
    for number, state in enumerate(["succeeded", "failed", "succeeded", "cancelled", "failed"], start=1):
        put_ended(conn, number, state)

    def numbers(*args: str) -> list[int]:
        return [run["id"] for run in run_cli("runs", "--json", *args).json()]

    assert numbers() == [5, 4, 3, 2, 1]
    assert numbers("--state", "failed", "--state", "cancelled") == [5, 4, 2]
    assert numbers("--sort", "exit_code", "--ascending", "--limit", "2") == [1, 2]
    assert numbers("--sort", "exit_code", "--ascending", "--limit", "2", "--after", "2") == [3, 4]
    assert run_cli("delete", "3", "--yes").code == 0
    assert numbers("--after", "3") == [2, 1]
    gone = run_cli("runs", "--sort", "exit_code", "--after", "3")
    assert gone.code == 2 and "run 3 is gone, and with it its place in this order" in gone.err
    put_ended(conn, 6, "succeeded")
    assert numbers("--since", "2d") == [6, 5, 4]
    assert numbers("--search", "BEL 2") == [2]
    assert numbers("--workload", "train") == []
    limited = run_cli("runs", "--limit", "2")
    assert "--after 5" in limited.err
    assert "No run matches." in run_cli("runs", "--tag", "nothing").err


def test_before_the_first_run_listing_is_empty_and_makes_nothing(run_cli: Console, tmp_path: Path) -> None:
    fresh = {"KGOPS_HOME": str(tmp_path / "fresh")}
    for line in ("runs", "bench show", "bench show claims"):
        told = run_cli(*line.split(), "--json", env=fresh)
        assert told.code == 0 and told.json() == [], line
    assert "No runs yet" in run_cli("runs", env=fresh).err
    assert run_cli("show", "last", env=fresh).code == 2
    assert not (tmp_path / "fresh").exists()


def test_tags_notes_and_search_find_a_run_again(run_cli: Console) -> None:
    run_cli("run", "exec", "--label", "baseline", "--", "true")
    run_cli("run", "exec", "--label", "other", "--", "true")
    assert run_cli("tag", "1", "paper", "draft").out == "draft paper\n"
    assert run_cli("tag", "1", "--remove", "draft", "--json").json() == ["paper"]
    assert run_cli("note", "1", "the embedding of aspirin").code == 0
    assert [note["text"] for note in run_cli("note", "1", "--json").json()] == ["the embedding of aspirin"]
    for words in ("aspirin", "paper base", "PAPER", "se em", "%", "_", '"', "\\"):
        found = [run["id"] for run in run_cli("runs", "--json", "--search", words).json()]
        assert found == ([] if words in ("%", "_", '"', "\\") else [1]), words
    assert [run["id"] for run in run_cli("runs", "--json", "--tag", "paper").json()] == [1]


def test_delete_forgets_row_and_folder_and_never_gives_the_number_again(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    run_cli("run", "exec", "--", "true")
    folder = run_cli.folder(2)
    refused = run_cli("delete", "2")
    assert (refused.code, "pass --yes" in refused.err) == (2, True)
    assert run_cli("delete", "2", "--yes").out == "run 2 deleted\n"
    assert not folder.exists()
    assert run_cli("show", "2").code == 2
    assert run_cli.detach("true") == 3


def test_running_run_is_not_deleted(run_cli: Console) -> None:
    number = run_cli.going("sleep", "60")
    done = run_cli("delete", str(number), "--yes")
    assert (done.code, f"kgops stop {number}" in done.err) == (2, True)
    assert run_cli.folder(number).is_dir()


def test_terminal_that_knows_only_ascii_still_gets_an_answer(run_cli: Console) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = run_cli("run", "exec", "--label", "naïve – 測試", "--", "true", env=ascii_only)
    assert (done.code, done.err) == (0, "")
    assert "run 1 succeeded" in done.out
    assert run_cli("runs", env=ascii_only).code == 0
    assert run_cli.show(1)["label"] == "naïve – 測試"


def test_pauses_between_attempts_are_no_time_of_a_run(run_cli: Console, conn: sqlite3.Connection) -> None:
    """One stopped and resumed a day later: both attempts together took fifty seconds."""
    nobody: dict[str, Any] = {
        "boot_id": "x",
        "worker_pid": 1,
        "worker_started": 1,
        "supervisor_pid": 1,
    }
    day = 86400.0
    add(conn, 1, state="running", submitted_at=1000.0)
    for number, began, ended in ((1, 1000.0, 1030.0), (2, day, day + 20)):
        attempts.begin(conn, attempts.Attempt(1, number, started_at=began, **nobody))
        outcome: dict[str, Any] = {"outcome": "failed", "reason": None, "exit_code": 1, "signal": None}
        attempts.close(conn, 1, number, ended_at=ended, **outcome)
    add(conn, 2, state="succeeded", submitted_at=1000.0)  # imported: without attempts
    conn.execute("UPDATE run SET started_at = 1000.0, ended_at = 1040.0 WHERE id = 2")
    conn.execute("UPDATE run SET state = 'failed', ended_at = ? WHERE id = 1", (day + 20,))
    rows = {line.split()[0]: line.split() for line in run_cli("runs", "--all").out.splitlines()[1:]}
    assert "0:50" in rows["1"] and "0:40" in rows["2"]
    assert run_cli("runs", "time>45s", "--csv").out.count("\n") == 2
    assert [one["id"] for one in json.loads(run_cli("runs", "--sort", "time", "--json").out)] == [1, 2]
    assert "took       0:50" in run_cli("show", "1").out
    took = next(line for line in run_cli("compare", "1", "2").out.splitlines() if line.startswith("took"))
    assert "50" in took and "40" in took
    assert conn.execute("SELECT seconds FROM run_summary ORDER BY id").fetchall() == [(50.0,), (40.0,)]
    run = runs.get(conn, 1)
    assert run is not None and facts_of(run, Home(run_cli.home))["KGOPS_RUN_SECONDS"] == "50.0"
    conn.execute("UPDATE run SET state = 'queued', ended_at = NULL WHERE id = 1")
    assert "0:30" not in run_cli("runs").out and "0:50" in run_cli("runs").out


def test_a_list_that_is_cut_says_so_in_every_format(run_cli: Console, conn: sqlite3.Connection) -> None:
    for number in (1, 2, 3):
        put_ended(conn, number, "succeeded")
        begun = benches.begin(conn, f"matrix {number}", {"variants": [], "rounds": 1}, "x", {}, 1.0)
        benches.end(conn, begun, 2.0)
    for words in ((), ("--json",), ("--csv",)):
        assert "--all lists all runs" in run_cli("runs", "--limit", "2", *words).err
        assert run_cli("runs", "--limit", "2", "--all", *words).err == ""
    for words in ((), ("--json",)):
        assert "--limit lists more" in run_cli("bench", "show", "--limit", "2", *words).err
        assert run_cli("bench", "show", "--limit", "3", *words).err == ""


def test_a_page_past_the_last_and_an_order_by_metric_say_what_they_are(run_cli: Console) -> None:
    for loss in ("0.5", "nan", "0.75"):
        words = ("--metric-regex", r"loss=(?P<loss>\S+)", "--", "echo", f"loss={loss}")
        assert run_cli("run", "exec", *words).code == 0
    assert "Next page: --after 2" in run_cli("runs", "--limit", "2").err
    for last in (
        ("--limit", "3"),
        ("--limit", "2", "--after", "3"),
        ("--limit", "1", "--after", "2", "--json"),
    ):
        assert run_cli("runs", *last).err == ""
    past = run_cli("runs", "--after", "1")
    assert past.code == 0 and past.err == "No more runs after 1.\n"
    lines = run_cli("runs", "--sort", "metric").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["3", "1", "2"]
    assert "loss nan/inf" in lines[2]
