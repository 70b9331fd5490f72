"""A home belongs to one user: others are refused in a sentence, and leave nothing there that its owner cannot use."""

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from driving import Console, end_all_of, is_clear, wait_for

ALICE, BOB = 54321, 54322  # nobody's on any machine, and they need no account
READING = (["runs", "--json"], ["logs", "1"], ["bench", "show"])
WRITING = (["run", "exec", "--", "true"], ["stop", "1"], ["note", "1", "x"], ["delete", "1", "--yes"])


@dataclass(slots=True)
class User(Console):
    """`kgops` as another user calls it."""

    uid: int = 0

    def argv(self, *args: str | Path) -> list[str]:
        own = ["/usr/bin/python3", "-B", "-m", "kgops", *map(str, args)]
        if self.uid == os.getuid():
            return own
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return [*become, *own]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        paths = f"{Path(__file__).parents[2]}:{sysconfig.get_path('purelib')}"
        # Not super(): a class with slots is another one than the compiler saw.
        return {**Console.environment(self, more), "HOME": str(self.cwd), "PYTHONPATH": paths}


@pytest.fixture
def place() -> Iterator[Path]:
    """Where several users may go: pytest's own folders are closed to all but one."""
    if os.getuid() != 0:
        pytest.skip("needs root, to be several users")
    path = Path(tempfile.mkdtemp(prefix="kgops-users-"))
    path.chmod(0o755)
    yield path
    end_all_of(path / "alice" / "kgops")
    shutil.rmtree(path)


def user(place: Path, name: str, uid: int) -> User:
    cwd = place / name
    cwd.mkdir(exist_ok=True)
    os.chown(cwd, uid, uid)
    return User(place / "alice" / "kgops", cwd, uid=uid)


@pytest.fixture
def alice(place: Path) -> User:
    """The owner of the home, with one run in it."""
    owner = user(place, "alice", ALICE)
    could = subprocess.run(
        owner.argv("--help"), env=owner.environment(), cwd=owner.cwd, capture_output=True, text=True
    )
    if could.returncode:
        pytest.skip(f"another user cannot run this kgops here: {could.stderr[-200:]}")
    done = owner("run", "exec", "--label", "first", "--", "true")
    assert done.code == 0, done.err
    wait_for(lambda: not (owner.home / "kgops.db-wal").exists(), "its supervisor to leave")
    return owner


def of_others(home: Path, uid: int) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.lstat().st_uid != uid)


def test_another_user_is_refused_in_a_sentence(place: Path, alice: User) -> None:
    bob = user(place, "bob", BOB)
    for mode, commands in ((0o700, (*READING, *WRITING)), (0o777, (["runs"], ["run", "exec", "--", "true"]))):
        alice.home.chmod(mode)
        for args in commands:
            refused = bob(*args)
            assert (refused.code, is_clear(refused.err)) == (1, True), (args, refused)
            assert "KGOPS_HOME" in refused.err, (args, refused.err)
    assert of_others(alice.home, ALICE) == []
    assert [run["state"] for run in alice("runs", "--json").json()] == ["succeeded"]
    told = bob("doctor")
    assert (told.code, "Traceback" in told.err) == (1, False)
    assert "Permission denied" in told.out or "belongs to another user" in told.out


def test_root_reads_a_users_home_and_changes_nothing(place: Path, alice: User) -> None:
    number = alice.going("sleep", "300")
    root = user(place, "root", 0)
    for args in READING:
        assert root(*args).code == 0, args
    for args in (*WRITING, ["stop", str(number)]):
        refused = root(*args)
        assert (refused.code, is_clear(refused.err)) == (1, True), (args, refused)
        assert str(ALICE) in refused.err
    assert of_others(alice.home, ALICE) == []
    assert alice("stop", str(number)).code in (0, 130)
    assert alice("delete", str(number), "--yes").code == 0
