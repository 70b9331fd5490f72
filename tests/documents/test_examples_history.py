"""Examples of help pages that are about runs and benchmarks there are: on the sample data of a tour."""

import csv
import io
import json
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import dated_benchmarks
import pytest
from documented import Desk, Went
from driving import patience

from kgops.settings import Home
from kgops.supervisor.import_record import put_record
from kgops.tour.filling import mark, put_benches, put_sample
from storage import run_list, transfer
from storage.database import open_writer

Check = Callable[[Desk, Went], None]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A tour's history, a TracIn run as its last run, and the benchmarks of two tours and two GPUs."""
    desk = Desk.at(tmp_path_factory.mktemp("history"))
    conn = open_writer(desk.home / "kgops.db")
    home = Home(desk.home)
    numbers = put_sample(home, conn)
    (traced, *_) = run_list.page(conn, run_list.Filter(workload="tracin", states=("succeeded",)))
    rows = transfer.read_rows(conn, traced.id)
    assert rows is not None
    put_record(home, conn, rows._replace(run={**rows.run, "submitted_at": time.time() - 8640}), mark())
    put_benches(conn, {number: number for number in numbers})
    dated_benchmarks.add_all(conn)
    conn.close()
    assert desk.console("tag", "46", "paper").code == 0
    yield desk
    desk.close()


def says(*patterns: str) -> Check:
    """Prints lines that have these, and writes nothing."""

    def check(desk: Desk, went: Went) -> None:
        for pattern in patterns:
            assert re.search(pattern, went.out, re.M), f"{pattern!r} is not in {went.out}"
        assert went.written == frozenset()

    return check


def lists_the_best_first(desk: Desk, went: Went) -> None:
    names, *rows = went.out.splitlines()
    assert 1 <= len(rows) <= 20 and " mrr " in names
    assert went.written == frozenset()


def has_a_table(desk: Desk, went: Went) -> None:
    assert went.written == {"runs.csv"}
    table = list(csv.DictReader(io.StringIO((desk.folder / "runs.csv").read_text())))
    listed = json.loads(desk.type("kgops runs workload:train --json --all").out)
    assert [int(row["id"]) for row in table] == [run["id"] for run in listed]
    assert any(row["test_mrr"] for row in table)


def has_a_page(desk: Desk, went: Went) -> None:
    assert went.written == {"run-42.html"}
    assert "run 42" in (desk.folder / "run-42.html").read_text()


def has_two_runs(desk: Desk, went: Went) -> None:
    assert went.written == {"two-runs.json"}
    assert len(json.loads((desk.folder / "two-runs.json").read_text())["runs"]) == 2


def has_markdown(desk: Desk, went: Went) -> None:
    assert went.written == {"speed.md"}
    assert (desk.folder / "speed.md").read_text().startswith("**")


def has_changed_tags(desk: Desk, went: Went) -> None:
    tags = desk.console.show(42)["tag"]
    assert {"paper", "baseline"} <= set(tags) and "draft" not in tags


def has_a_note(desk: Desk, went: Went) -> None:
    assert "best so far; see the email of Tuesday" in desk.type("kgops note 42").out


def has_forgotten_two(desk: Desk, went: Went) -> None:
    assert [desk.console("show", number).code for number in ("41", "42")] == [2, 2]


WITH_A_HISTORY: dict[str, Check] = {
    "kgops show last": says(r"^run \d+ · tracin", r"^OPTION +\w+ +APPLIED +\w+ +BY +WHY"),
    "kgops runs 'mrr>0.3 tag:paper -state:failed since:7d' --sort mrr --limit 20": lists_the_best_first,
    "kgops runs workload:train --metric test_mrr --csv --all > runs.csv": has_a_table,
    "kgops compare 12 17 21": says(r"\b12\b.*\b17\b.*\b21\b"),
    "kgops report 42 --output run-42.html": has_a_page,
    "kgops export 12 17 --to json --output two-runs.json": has_two_runs,
    "kgops influences last --test 1": says("^test 1 · ", "^ +SCORE +HEAD +RELATION +TAIL", r"^ +\+\d"),
    "kgops logs -f last --grep loss": says(r"\Aloss=0.125\n\Z"),
    "kgops feed --run last --json < /dev/null": says('^{"type":"hello"', '^{"type":"shown"'),
    "kgops tag 42 paper baseline --remove draft": has_changed_tags,
    'kgops note 42 "best so far; see the email of Tuesday"': has_a_note,
    "kgops bench show 3": says(r"\bbench(mark)? 3\b"),
    "kgops bench show claims": says("^WHICH OPTIONS PAY on ", "^TRAINING GUIDE"),
    "kgops bench show t4": says(r"^  Fastest on Tesla T4: ", r"^  Against .*, the time before: "),
    "kgops bench show t4 --over-time": says(r"^BENCH +MEASURED .* THAN BEFORE +UNTIL NOW"),
    "kgops bench compare 1 3": says(r"\b1\b.*\b3\b"),
    "kgops bench compare t4 a100": says(r"^NVIDIA A100.* against Tesla T4: .* faster"),
    "kgops bench export 3 --to md --output speed.md": has_markdown,
    "kgops delete 41 42 --yes": has_forgotten_two,
}


@pytest.mark.parametrize("line", WITH_A_HISTORY)
def test_example_works_on_a_history(history: Desk, line: str) -> None:
    if line.startswith("kgops logs"):
        logged = "print('loss=0.125', flush=True); print('fine', flush=True)"
        assert history.console("run", "exec", "--", sys.executable, "-c", logged).code == 0
    WITH_A_HISTORY[line](history, history.must(line))


IMPORTS = (
    "kgops import run-12.json ~/old/.kgops/runs/0042-train-nations results/robokop",
    "kgops bench import bench-3.json",
)


def test_what_was_exported_or_lies_in_a_folder_is_imported(history: Desk, tmp_path: Path) -> None:
    desk = Desk.at(tmp_path / "place")
    there = {"KGOPS_HOME": str(desk.folder / "old/.kgops")}
    for label in ("first", "second"):
        assert desk.console("run", "exec", "--label", label, "--", "true", env=there).code == 0
    assert desk.console("export", "1", "--to", "json", "--output", "run-12.json", env=there).code == 0
    folder = desk.folder / "old/.kgops/runs"
    next(folder.glob("0002-*")).rename(folder / "0042-train-nations")
    output = desk.folder / "results/robokop"
    output.mkdir(parents=True)
    (output / "training_history.json").write_text('{"loss": [0.5, 0.25]}')
    history.must(f"kgops bench export 3 --to json --output {desk.folder / 'bench-3.json'}")
    of_runs, _ = (desk.must(line) for line in IMPORTS)
    assert of_runs.out.count(": imported ") == 3
    assert len(json.loads(desk.type("kgops bench show --json").out)) >= 1
    desk.close()


def test_example_serves_the_screens(history: Desk) -> None:
    child = history.start("exec kgops serve --port 8123")
    try:
        assert child.stdout is not None and child.stderr is not None
        address = child.stdout.readline().strip()
        if not address:
            pytest.skip(f"port 8123: {child.stderr.read()[:80]}")
        assert address.startswith("http://127.0.0.1:8123/")
        with urllib.request.urlopen(address, timeout=patience()) as answer:
            assert b"kgops" in answer.read()
    finally:
        child.terminate()
        child.communicate()
