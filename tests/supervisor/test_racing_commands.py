"""Commands that meet: deletions, a resume, launches and whoever settles; and a supervisor that does not answer."""

from __future__ import annotations

import subprocess

import pytest
from driving import Console, is_clear

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
