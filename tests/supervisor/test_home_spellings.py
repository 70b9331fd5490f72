"""One home under many names, moved, or copied: a run has one supervisor and one worker, and a copy none of them."""

import shutil
from pathlib import Path

from driving import Console, all_of, end_all_of, identity_in, wait_for

_BEGUN = 'echo $$ > pid-$KGOPS_ATTEMPT; echo "$KGOPS_ATTEMPT" >> starts; '


def _linked(console: Console, tmp_path: Path) -> Console:
    """The same home by another name."""
    link = tmp_path / "link"
    link.symlink_to(console.home, target_is_directory=True)
    return Console(link, console.cwd)


def test_home_by_two_names_has_one_worker_at_a_time_after_a_kill(run_cli: Console, tmp_path: Path) -> None:
    other = _linked(run_cli, tmp_path)
    # Nobody but its environment gives this worker away: it closed the lock and left the session.
    script = _BEGUN + "exec setsid sh -c 'echo $$ > own; exec sleep 300' 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-"
    number = run_cli.detach("sh", "-c", script)
    worker = identity_in(run_cli.cwd / "own")
    run_cli.running(number)
    end_all_of(run_cli.home, but={worker})
    assert other("runs").code == 0
    assert other.ended(number).state == "interrupted"
    wait_for(lambda: not worker.is_alive(), "the worker to be ended, by the other name")
    assert (run_cli.cwd / "starts").read_text() == "1\n"
    assert other("resume", str(number), "--detach").code == 0
    second = identity_in(run_cli.cwd / "pid-2")
    assert run_cli("stop", str(number), "--grace", "0").code == 0
    wait_for(lambda: not second.is_alive(), "the second worker to be ended, by the first name")
    other.close()


def test_home_moved_while_a_run_goes_on_keeps_its_end(run_cli: Console, tmp_path: Path) -> None:
    point = """echo '{"event": "metric", "name": "x", "value": 1, "step": 1}' >&9"""
    script = f"exec 9>> $KGOPS_EVENTS; {_BEGUN} while [ ! -e go ]; do sleep 0.05; done; {point}; exit 7"
    number = run_cli.detach("sh", "-c", script)
    identity_in(run_cli.cwd / "pid-1")
    run_cli.running(number)
    moved = Console(tmp_path / "moved", run_cli.cwd)
    run_cli.home.rename(moved.home)
    assert moved("runs").code == 0
    (run_cli.cwd / "go").touch()
    run = moved.ended(number)
    assert (run.state, run.exit_code, run.attempts) == ("failed", 7, 1)
    assert [s["n"] for s in moved.show(number)["series"] if s["name"] == "x"] == [1]
    moved.close()


def test_copy_of_a_home_leaves_the_original_run_alone(run_cli: Console, tmp_path: Path) -> None:
    number = run_cli.detach(
        "sh", "-c", _BEGUN + "while [ ! -e go ]; do sleep 0.05; done", flags=("--attempts", "1")
    )
    worker = identity_in(run_cli.cwd / "pid-1")
    run_cli.running(number)
    copy = Console(tmp_path / "copy", run_cli.cwd)
    shutil.copytree(run_cli.home, copy.home)
    wait_for(lambda: copy("runs", "--json").json()[0]["state"] == "interrupted", "the copy's run to be over")
    assert worker.is_alive()
    assert (run_cli.cwd / "starts").read_text() == "1\n"
    (run_cli.cwd / "go").touch()
    assert run_cli.ended(number).state == "succeeded"
    copy.close()


def test_supervisor_of_a_removed_home_leaves_with_its_worker(run_cli: Console) -> None:
    number = run_cli.detach("sh", "-c", "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done")
    worker = identity_in(run_cli.cwd / "pid")
    run_cli.running(number)
    shutil.rmtree(run_cli.home)
    assert worker.is_alive()
    (run_cli.cwd / "go").touch()
    wait_for(lambda: not all_of(run_cli.home), "everybody to leave")
