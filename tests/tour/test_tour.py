"""A tour has something for every screen, labels its sample data, and touches nothing else."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Console, all_of, end_all_of, wait_for
from screen_driving import open_screens

from kgops.cli import WORKLOADS as KINDS
from kgops.errors import KgopsError
from kgops.experiments.claims import page
from kgops.experiments.documented import comparisons
from kgops.settings import Home
from kgops.supervisor.run_folder import RunFolder
from kgops.tour import MARK, SAMPLE
from kgops.tour import home as homes
from kgops.tour.filling import fill
from kgops.workloads.registry import WORKLOADS
from storage import benches, reports, run_list, runs
from storage.database import open_reader
from storage.runs import ACTIVE, STATES

_SHOWN_WHOLE = 30  # characters of a label that the dashboard shows where there is room


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """One for all tests that only look; with one run that really takes place."""
    home = Home(tmp_path_factory.mktemp("tour") / "kgops-tour")
    before = os.environ.get("KGOPS_HOME")
    os.environ["KGOPS_HOME"] = str(home.path.parent / "usual")
    try:
        real = {"workload": "exec", "label": "really", "exec": {"command": ["true"]}}
        fill(home, lambda _: None, [real])
        yield home
    finally:
        end_all_of(home.path)
        if before is None:
            del os.environ["KGOPS_HOME"]
        else:
            os.environ["KGOPS_HOME"] = before


@pytest.fixture
def record(tour: Home) -> Iterator[sqlite3.Connection]:
    conn = open_reader(tour.database)
    yield conn
    conn.close()


# --- what is in it --------------------------------------------------------------------------------


def test_every_workload_and_every_end_is_there(record: sqlite3.Connection) -> None:
    found = run_list.page(record, limit=1000)
    assert set(WORKLOADS) == {*KINDS, "pipeline"} - {"sweep"}
    # A run of evaluate looks like the end of a training.
    assert {run.workload for run in found} == set(WORKLOADS) - {"evaluate"}
    states = {run.state for run in found}
    assert states >= set(STATES) - set(ACTIVE)
    assert states & set(ACTIVE)
    assert len(found) > 36
    assert [run.submitted_at for run in found] == sorted((run.submitted_at for run in found), reverse=True)


async def test_every_screen_has_something_to_show(tour: Home) -> None:
    async with open_screens(tour.path, (150, 90)) as seen:
        await seen.until_shows("a curve to watch", "waits behind it", MARK)
        await seen.press("h")
        await seen.until_shows("fb15k-237", "umls seed")
        await seen.press("escape")
        await seen.until_shows("a curve to watch")
        await seen.press("i")
        await seen.until_shows("Veritol", "lunar fever")
        await seen.press("escape")
        await seen.until_shows("a curve to watch")
        await seen.press("f")
        await seen.until_shows("PROFILE", "any machine")


@pytest.mark.parametrize(
    "command", [("compare", "1", "2", "3"), ("show", "3"), ("bench", "show", "2"), ("logs", "3")]
)
def test_commands_read_a_tour_as_any_history(run_cli: Console, tour: Home, command: tuple[str, ...]) -> None:
    done = run_cli.must(*command, env={"KGOPS_HOME": str(tour.path)})
    assert SAMPLE in done.out.lower() or MARK in done.out


def test_the_sample_has_the_variants_of_today(
    record: sqlite3.Connection, run_cli: Console, tour: Home
) -> None:
    tables = page(record).tables
    assert all(table.machine for table in tables)
    for bench in benches.newest(record):
        if bench.name.startswith("claims "):
            comparison = comparisons(bench.name[7], quick=True, data=None, gpu=False)[0]
            assert bench.name == comparison.name.replace("(quick)", MARK)
            assert [one["name"] for one in bench.plan["variants"]] == [*comparison.variants]
    shown = run_cli("bench", "show", "claims", env={"KGOPS_HOME": str(tour.path)})
    assert shown.code == 0 and "→ use" in shown.out and "not yet measured" not in shown.out


# --- what it says of itself -----------------------------------------------------------------------


def test_every_sample_run_says_so_wherever_one_may_look(tour: Home, record: sqlite3.Connection) -> None:
    for run in run_list.page(record, limit=1000):
        tags = reports.tags(record, run.id)
        assert homes.TAG in tags
        if "real" in tags:
            continue
        assert run.label.endswith(MARK), run
        assert len(run.label) <= _SHOWN_WHOLE or run.label.startswith("bench "), run.label
        assert "sample" in tags, run
        assert any("sample" in note.text.lower() for note in reports.notes(record, run.id)), run
        if "a real process" in reports.notes(record, run.id)[0].text.lower():
            continue  # it really goes on here, and its curve is a sample
        machine = runs.spec(record, run.id).environment["machine"]
        assert machine["host"] == machine["processor"] == SAMPLE
        assert reports.events(record, run.id, kinds=("imported",))[0].body["source"] == SAMPLE
        assert SAMPLE in RunFolder(tour.runs / run.folder).log.read_text()


def test_every_benchmark_hangs_on_a_machine_of_the_sample(record: sqlite3.Connection) -> None:
    kept = benches.newest(record)
    assert kept
    for one in kept:
        assert MARK in one.name
        assert SAMPLE in one.command
        assert benches.fingerprint(record, one.fingerprint)["machine"]["processor"] == SAMPLE


def test_no_sample_data_gets_into_another_record(run_cli: Console, tour: Home, tmp_path: Path) -> None:
    there = {"KGOPS_HOME": str(tour.path)}
    out, live = tmp_path / "some.json", tmp_path / "live.json"
    for number, file in (("1", out), ("last", live)):
        assert run_cli("export", number, "--to", "json", "--output", file, env=there).code == 0
    waiting = max(tour.runs.glob("00*"))
    for path in (out, live, next(tour.runs.glob("0003-*")), waiting):
        done = run_cli("import", path)
        assert done.code == 2
        assert "sample data of a tour" in done.err
    assert run_cli("runs", "--json").json() == []


def test_no_prediction_is_corrected_by_sample_data(run_cli: Console, tour: Home) -> None:
    words = ("suggest", "train", "--dataset", "umls", "--gpu", "t4", "--json")
    fresh, there = (run_cli(*words, env=env) for env in ({}, {"KGOPS_HOME": str(tour.path)}))
    assert fresh.code == there.code == 0, there.err
    plans = [
        {**plan, "disk": None} for (plan,) in (fresh.json(), there.json())
    ]  # its room differs by the moment
    assert plans[0] == plans[1]


# --- where it is ----------------------------------------------------------------------------------


@pytest.fixture
def place(home: Path) -> Iterator[Path]:
    """Where a tour goes by itself."""
    beside = home.with_name(home.name + "-tour")
    yield beside
    if beside.exists():
        end_all_of(beside)


def test_it_is_made_beside_the_usual_home_and_removed_by_one_command(run_cli: Console, place: Path) -> None:
    before = sorted(run_cli.home.rglob("*"))
    made = run_cli.must("demo", "--tour", "--quick")
    assert f"KGOPS_HOME={place} python -m kgops\n" in made.out
    assert made.out.endswith("python -m kgops demo --remove-tour\n")
    assert place.stat().st_mode & 0o777 == 0o700
    assert "there is a tour" in run_cli("demo", "--tour").err
    (place / "thesis.tex").write_text("mine")
    assert "thesis.tex" in run_cli("demo", "--remove-tour").err
    (place / "thesis.tex").unlink()
    run_cli.must("run", "exec", "--detach", "--", "true", env={"KGOPS_HOME": str(place)})
    assert "runs of your own" in run_cli("demo", "--remove-tour").err
    assert place.is_dir()
    going = all_of(place)
    assert going
    run_cli.must("demo", "--remove-tour", "--yes")
    wait_for(lambda: not any(who.is_alive() for who in going), "all that ran there to end")
    assert not place.exists()
    assert sorted(run_cli.home.rglob("*")) == before
    assert run_cli("demo", "--remove-tour").code == 2


def test_no_folder_of_anybody_else_is_filled_or_removed(home: Path, tmp_path: Path) -> None:
    theirs, before = tmp_path / "theirs", sorted(home.iterdir())
    theirs.mkdir()
    (theirs / "kgops.db").write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    for place in (home, home / "inside", home.parent, theirs, link, file):
        with pytest.raises(KgopsError):
            fill(Home(place), lambda _: None, ())
        with pytest.raises(KgopsError):
            homes.remove(Home(place), own_too=True)
    assert (theirs / "kgops.db").read_text() == "mine"
    assert sorted(home.iterdir()) == before
