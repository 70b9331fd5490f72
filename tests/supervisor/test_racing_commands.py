"""Commands that meet: deletions, a resume, twenty consoles at once, and a run that wants the CPUs to itself."""

import random
import re
import subprocess
from collections import Counter

import pytest
from driving import Console, all_of, files_of_runs, is_clear, patience, wait_for

_MANY = 6


def _together(console: Console, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
    children = [console.start(*args) for args in commands]
    ended = [(child.communicate(), child.returncode) for child in children]
    return [(code, err.decode()) for (_, err), code in ended]


def test_concurrent_deletions_of_one_run_end_in_sentences(run_cli: Console) -> None:
    for _ in range(3):
        assert run_cli("run", "exec", "--json", "--", "true").code == 0
    ended = _together(run_cli, *[("delete", "1", "2", "--yes")] * _MANY)
    assert 0 in {code for code, _ in ended} or all(is_clear(err) for _, err in ended)
    for _, err in ended:
        assert "Traceback" not in err, err
    run_cli("delete", "1", "2", "--yes")
    assert [run["id"] for run in run_cli("runs", "--json").json()] == [3]
    assert [path.name[:4] for path in (run_cli.home / "runs").iterdir()] == ["0003"]
    assert not list((run_cli.home / "pending").iterdir())


def test_resume_beside_deletions_leaves_the_run_whole_or_gone(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--", "false").code == 1
    ended = _together(run_cli, *[("resume", "1"), ("delete", "1", "--yes")] * 3)
    for _, err in ended:
        assert "Traceback" not in err, err
    left = run_cli("runs", "--json").json()
    folders = list((run_cli.home / "runs").iterdir())
    assert len(left) == len(folders)
    if left:
        assert run_cli.ended(1).state == "failed"


def test_what_cannot_be_removed_keeps_its_run_and_is_named(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--", "sh", "-c", "touch $KGOPS_RUN_FOLDER/results/kept").code == 0
    kept = run_cli.folder(1) / "results" / "kept"
    if subprocess.run(["chattr", "+i", str(kept)], capture_output=True).returncode:
        pytest.skip("no file can be made immutable here")
    try:
        deleted = run_cli("delete", "1", "--yes")
        assert deleted.code == 1
        assert is_clear(deleted.err), deleted.err
        assert "results/kept: Operation not permitted" in deleted.err
        assert [run["id"] for run in run_cli("runs", "--json").json()] == [1]
        assert kept.exists()
    finally:
        subprocess.run(["chattr", "-i", str(kept)], check=True)
    assert run_cli("delete", "1", "--yes").code == 0
    assert not list((run_cli.home / "runs").iterdir())


def test_pipes_of_a_worker_end_as_in_any_shell(run_cli: Console) -> None:
    """Python ignores SIGPIPE, and what it starts must not inherit that."""
    done = run_cli(
        "run", "exec", "--", "bash", "-c", "set -o pipefail; yes | head -n 1; echo ${PIPESTATUS[0]}"
    )
    assert "yes" not in run_cli("logs", "1").out
    assert run_cli("logs", "1").out.splitlines()[0] == "y"
    assert done.code == 0


BEGIN = ["run", "exec", "--detach", "--", "true"]
FOLLOW = ["run", "exec", "--", "true"]
OTHERS = (
    ["runs"],
    ["runs", "--json"],
    ["show", "last"],
    ["stop", "last"],
    ["stop", "1"],
    ["delete", "1", "--yes"],
    ["delete", "last", "--yes"],
    ["note", "1", "x"],
    ["logs", "1"],
)


def test_twenty_consoles_at_once_lose_no_run(run_cli: Console) -> None:
    assert run_cli(*FOLLOW).code == 0
    commands = [*[BEGIN] * 9, *[FOLLOW] * 2, *OTHERS]
    random.Random(0).shuffle(commands)
    children = [(args, run_cli.start(*args)) for args in commands]
    given = []
    for args, child in children:
        out, err = child.communicate(timeout=patience())
        told = err.decode()
        assert "Traceback" not in told, (args, told)
        assert "is locked" not in told, (args, told)
        if child.returncode == 2:
            assert re.search(
                "there is no run|has just been deleted|is being deleted|was deleted by another command", told
            ), (args, told)
        if args[0] == "run" and child.returncode not in (0, 130):  # another console may have stopped it
            raise AssertionError((args, child.returncode, told))
        if args is BEGIN:
            given.append(int(out))
    assert len(set(given)) == len(given) == 9
    wait_for(lambda: not all_of(run_cli.home), "every supervisor to leave")
    listed = run_cli("runs", "--json", "--limit", "100").json()
    assert Counter(run["state"] for run in listed).keys() <= {"succeeded", "cancelled"}
    assert len({run["id"] for run in listed}) >= 10  # of twelve at most two were deleted
    assert files_of_runs(run_cli) == {run["folder"] for run in listed}
    assert list((run_cli.home / "pending").iterdir()) == []


UNTIL_GATE = "while [ ! -e gate ]; do sleep 0.05; done"


def test_stream_of_small_runs_does_not_pass_an_exclusive_one(run_cli: Console) -> None:
    going = [run_cli.detach("sh", "-c", f"{UNTIL_GATE}; echo going >> order") for _ in range(2)]
    for number in going:
        run_cli.running(number)
    exclusive = run_cli.detach("sh", "-c", "echo exclusive >> order", flags=("--exclusive",))
    small = [run_cli.detach("sh", "-c", "echo small >> order") for _ in range(4)]
    listed = {run["id"]: run for run in run_cli("runs", "--json").json()}
    assert {listed[number]["state"] for number in (exclusive, *small)} == {"queued"}
    assert listed[exclusive]["reason"] == "this machine's CPUs to itself (in use by 1, 2)"
    assert all(listed[number]["reason"] for number in small)  # each says what it waits for
    (run_cli.cwd / "gate").touch()
    for number in (exclusive, *small):
        assert run_cli.ended(number).state == "succeeded"
    assert (run_cli.cwd / "order").read_text().split() == ["going"] * 2 + ["exclusive"] + ["small"] * 4


def test_stop_of_a_waiting_run_lets_those_behind_it_go_on(run_cli: Console) -> None:
    going = run_cli.going("sh", "-c", UNTIL_GATE)
    exclusive = run_cli.detach("true", flags=("--exclusive",))
    behind = run_cli.detach("true")
    stopped = run_cli("stop", str(exclusive))
    assert "cancelled" in stopped.out
    assert run_cli.ended(behind).state == "succeeded"  # with no console looking
    current = run_cli.row(going)
    assert current.state == "running"
