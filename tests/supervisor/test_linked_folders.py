"""A link in the place of a run's folder: the run goes on where it is the run's own; nobody else's file is touched."""

import signal
from pathlib import Path

import pytest
from driving import Console, all_of, wait_for

from kgops.supervisor import processes


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below, with its inode and content."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_ino, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def _ended(console: Console, *command: str) -> int:
    number = console.detach(*command)
    console.ended(number)
    wait_for(lambda: not all_of(console.home), "the supervisor to leave")
    return number


def _moved(console: Console, number: int, to: Path) -> Path:
    """As a person moves a run's folder to another disk."""
    folder = console.folder(number)
    to.mkdir(parents=True, exist_ok=True)
    target = folder.rename(to / folder.name)
    folder.symlink_to(target)
    return target


def test_deleting_a_run_behind_a_link_leaves_its_files(run_cli: Console, tmp_path: Path) -> None:
    target = _moved(run_cli, _ended(run_cli, "true"), tmp_path / "big")
    (target / "thesis.txt").write_text("mine")
    before = snapshot(target)
    deleted = run_cli("delete", "1", "--yes")
    assert (deleted.code, deleted.out.strip()) == (0, f"run 1 deleted; its files are left in {target}")
    for _ in range(2):
        assert run_cli("runs").code == 0
    assert {name: before[name] for name in before} == {name: snapshot(target)[name] for name in before}
    assert not list((run_cli.home / "pending").iterdir())
    assert not list((run_cli.home / "runs").iterdir())


def test_link_that_an_older_kgops_left_to_delete_is_not_walked(run_cli: Console, tmp_path: Path) -> None:
    number = _ended(run_cli, "true")
    target = _moved(run_cli, number, tmp_path / "big")
    folder = run_cli.folder(number)
    folder.rename(run_cli.home / "pending" / f"{folder.name}.delete")
    before = snapshot(target)
    assert run_cli("runs", "--json").json() == []
    assert snapshot(target) == before
    assert not list((run_cli.home / "pending").iterdir())


def test_moved_run_is_shown_resumed_and_rebuilt(run_cli: Console, tmp_path: Path) -> None:
    number = _ended(run_cli, "sh", "-c", "echo tried; test -e go")
    target = _moved(run_cli, number, tmp_path / "big")
    assert "tried" in run_cli("logs", str(number)).out
    (run_cli.cwd / "go").touch()
    assert run_cli("resume", str(number)).code == 0
    assert run_cli.ended(number).state == "succeeded"
    wait_for(lambda: not all_of(run_cli.home), "the supervisor to leave")
    assert (target / "attempts" / "2").is_dir()
    for name in ("kgops.db", "kgops.db-wal", "kgops.db-shm"):
        (run_cli.home / name).unlink(missing_ok=True)
    assert run_cli("doctor", "--rebuild").out.startswith("1 runs restored: 1")


def test_links_to_other_runs_and_homes_are_neither_adopted_nor_written(run_cli: Console) -> None:
    """To run 1, to run 1 of another home, and to a link to it."""
    for _ in range(4):
        _ended(run_cli, "false")
    other = Console(run_cli.cwd / "home2", run_cli.cwd)
    _ended(other, "false")
    links = {2: run_cli.folder(1), 3: other.folder(1), 4: run_cli.cwd / "over"}
    (run_cli.cwd / "over").symlink_to(other.folder(1))
    for number, target in links.items():
        folder = run_cli.folder(number)
        folder.rename(run_cli.cwd / folder.name)
        folder.symlink_to(target)
    before = {target: snapshot(target) for target in links.values()}
    for number in links:
        refused = run_cli("resume", str(number))
        assert (refused.code, "which is not that run's folder" in refused.err) == (1, True), refused.err
        assert run_cli("stop", str(number)).code == 0
    assert run_cli("doctor").code in (0, 1)
    for name in ("kgops.db", "kgops.db-wal", "kgops.db-shm"):
        (run_cli.home / name).unlink(missing_ok=True)
    rebuilt = run_cli("doctor", "--rebuild").out
    assert rebuilt.startswith("1 runs restored: 1")
    assert rebuilt.count("it is a link to the folder of another run or home") == 3
    assert {target: snapshot(target) for target in links.values()} == before


_WAITS = "touch harmed-$KGOPS_RUN; while [ ! -e go ]; do sleep 0.05; done"
_LINKS = {
    "the run's folder": 'rm -rf "$KGOPS_RUN_FOLDER"; ln -s {target} "$KGOPS_RUN_FOLDER"',
    "attempts": 'rm -rf "$KGOPS_RUN_FOLDER/attempts"; ln -s {target}/attempts "$KGOPS_RUN_FOLDER/attempts"',
    "results": 'rm -rf "$KGOPS_RUN_FOLDER/results"; ln -s {target}/results "$KGOPS_RUN_FOLDER/results"',
    "each file": 'cd "$KGOPS_RUN_FOLDER"; for f in *.slot *.json *.log *.jsonl *.lock; do ln -sf {target}/$f $f; done',
    "a second name": 'cd "$KGOPS_RUN_FOLDER"; for f in *.slot *.json *.log *.jsonl attempts/1/*.slot; do '
    "ln -f {target}/$f $f; done",
}


@pytest.mark.parametrize("stops", [False, True], ids=["ends", "is stopped"])
def test_links_of_a_worker_lead_to_no_write_in_another_run(run_cli: Console, stops: bool) -> None:
    victim = _ended(run_cli, "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; false")
    before = snapshot(run_cli.folder(victim))
    numbers = [
        run_cli.detach(
            *("sh", "-c", f"{how.format(target=run_cli.folder(victim))}; cd {run_cli.cwd}; {_WAITS}"),
            flags=("--label", name, "--log-limit", "1"),
        )
        for name, how in _LINKS.items()
    ]
    for number in numbers:
        wait_for((run_cli.cwd / f"harmed-{number}").exists, f"the links of run {number}")
    late = set()  # on a busy machine a stop may end with an error first
    if stops:
        for number in numbers:
            done = run_cli("stop", str(number), "--grace", "0")
            assert "Traceback" not in done.err
            late |= {number} if done.code else set()
    (run_cli.cwd / "go").touch()
    states = {number: run_cli.ended(number).state for number in numbers}
    end = "cancelled" if stops else "succeeded"
    others = {number: state for number, state in states.items() if state != end and number not in late}
    assert len(others) <= 1 and set(others.values()) <= {"interrupted"}, states  # the folder itself
    wait_for(lambda: not all_of(run_cli.home), "everybody to leave")
    assert snapshot(run_cli.folder(victim)) == before
    assert run_cli("delete", *map(str, numbers), "--yes").code == 0
    assert run_cli("runs").code == 0
    assert snapshot(run_cli.folder(victim)) == before


def test_exit_is_recorded_though_the_worker_removed_its_attempts(run_cli: Console) -> None:
    """Also where no supervisor saw the end."""
    removes = 'rm -rf "$KGOPS_RUN_FOLDER/attempts"'
    assert run_cli("run", "exec", "--json", "--", "sh", "-c", removes).json()["state"] == "succeeded"
    failed = run_cli("run", "exec", "--json", "--", "sh", "-c", f"{removes}; exit 7").json()
    assert (failed["state"], failed["reason"]) == ("failed", "exit code 7")
    number = run_cli.detach("sh", "-c", f"{removes}; {_WAITS}; rm -f go; exit 7")
    wait_for((run_cli.cwd / f"harmed-{number}").exists, "the worker")
    supervisor = run_cli.supervisor(number)
    processes.send(supervisor, signal.SIGKILL)
    (run_cli.cwd / "go").touch()
    wait_for(lambda: not all_of(run_cli.home), "the gate to leave")
    assert run_cli("runs").code == 0
    ended = run_cli.ended(number)
    assert (ended.state, ended.reason) == ("failed", "exit code 7")
