"""A database that was moved away, or an older one put in its place: folders are the record, and none is touched."""

import shutil
from pathlib import Path

from driving import Console, identity_in, wait_for


def _lose(console: Console, to: Path) -> None:
    to.mkdir()
    for path in console.home.glob("kgops.db*"):
        path.rename(to / path.name)


def test_launch_beside_a_folder_without_a_row_leaves_it_alone(run_cli: Console, tmp_path: Path) -> None:
    script = "echo weights > $KGOPS_RUN_FOLDER/results/model.pt"
    assert run_cli("run", "exec", "--label", "precious", "--", "sh", "-c", script).code == 0
    model = run_cli.folder(1) / "results" / "model.pt"
    _lose(run_cli, tmp_path / "elsewhere")
    launched = run_cli("run", "exec", "--label", "precious", "--json", "--", "true")
    assert (launched.code, launched.json()["id"]) == (0, 2)
    assert "doctor --rebuild" in launched.err
    assert model.read_text() == "weights\n"
    assert "1 runs restored: 1" in run_cli("doctor", "--rebuild").out
    assert {run["id"] for run in run_cli("runs", "--json").json()} == {1, 2}
    assert "doctor --rebuild" not in run_cli("run", "exec", "--", "true").err


def test_older_database_gives_no_number_that_a_folder_has(run_cli: Console, tmp_path: Path) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    shutil.copy(run_cli.home / "kgops.db", tmp_path / "older.db")
    for _ in range(2):
        assert run_cli("run", "exec", "--", "true").code == 0
    before = sorted((run_cli.home / "runs").iterdir())
    _lose(run_cli, tmp_path / "elsewhere")
    shutil.copy(tmp_path / "older.db", run_cli.home / "kgops.db")
    assert run_cli("run", "exec", "--json", "--", "true").json()["id"] == 4
    assert set(before) < set((run_cli.home / "runs").iterdir())
    assert run_cli("doctor").out.count("doctor --rebuild") == 1


def test_run_that_goes_on_while_its_database_is_lost_comes_back(run_cli: Console, tmp_path: Path) -> None:
    script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; exit 5"
    number = run_cli.detach("sh", "-c", script, flags=("--label", "alive"))
    worker = identity_in(run_cli.cwd / "pid")
    run_cli.running(number)
    _lose(run_cli, tmp_path / "elsewhere")
    assert run_cli("run", "exec", "--label", "alive", "--", "true").code == 0
    assert worker.is_alive()
    assert run_cli("doctor", "--rebuild").code == 0
    (run_cli.cwd / "go").touch()

    def has_ended() -> bool:
        assert run_cli("runs").code == 0
        run = run_cli.run(number)
        return run is not None and run.ended

    wait_for(has_ended, "its end")
    run = run_cli.row(number)
    assert (run.state, run.exit_code) == ("failed", 5)


def test_environment_of_a_run_does_not_stay_after_a_resume_that_died(run_cli: Console) -> None:
    """As a kill between writing it and reopening the run leaves it: the marker stands, the row says ended."""
    assert run_cli("run", "exec", "--", "false").code == 1
    folder = run_cli.folder(1)
    (folder / "private.json").write_text('{"environment": {"TOKEN": "secret"}}')
    (folder / "outcome.slot").write_bytes(bytes(4096))
    (run_cli.home / "pending" / f"{folder.name}.resume").touch()
    listed = run_cli("runs", "--json")
    assert listed.json()[0]["state"] == "failed"
    assert not (folder / "private.json").exists()
    assert b'"failed"' in (folder / "outcome.slot").read_bytes()
    assert not list((run_cli.home / "pending").iterdir())


def test_doctor_removes_what_a_failing_disk_kept_of_an_ended_run(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--", "false").code == 1
    folder = run_cli.folder(1)
    (folder / "private.json").write_text("{}")
    (folder / "outcome.slot").write_bytes(bytes(4096))
    assert "repaired" in run_cli("doctor").out
    assert not (folder / "private.json").exists()
    assert b'"failed"' in (folder / "outcome.slot").read_bytes()
    assert "repaired" not in run_cli("doctor").out
