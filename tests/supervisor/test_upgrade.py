"""A newer kgops migrates the database while an older one has runs in all states: none is lost, none hangs."""

import re
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from driving import Console, Done, is_clear, wait_for

from kgops.supervisor import processes
from storage import runs
from storage.database import SCHEMA_VERSION, open_writer

_ROOT = Path(__file__).parents[2]
_MIGRATION = """

@migrations(name="999_raised")
def raised(db: Database) -> None:
    db.conn.execute("ALTER TABLE run ADD COLUMN raised INTEGER")
"""


def copy_packages(to: Path) -> Path:
    for name in ("kgops", "storage", "screens", "profiles"):
        shutil.copytree(_ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    return to


def raise_schema(packages: Path) -> None:
    database, migrations = packages / "storage/database.py", packages / "storage/migrations.py"
    raised = f"SCHEMA_VERSION = {SCHEMA_VERSION + 1}"
    database.write_text(re.sub(r"^SCHEMA_VERSION = \d+", raised, database.read_text(), flags=re.MULTILINE))
    migrations.write_text(migrations.read_text() + _MIGRATION)


class Upgrade:
    """The kgops under test, and a copy of it that is newer by one migration."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.old = console
        self._packages = copy_packages(folder)
        raise_schema(self._packages)

    def new(self, *args: str | Path) -> Done:
        return self.old(*args, env={"PYTHONPATH": str(self._packages)})

    def states(self) -> dict[int, str]:
        listed = self.new("runs", "--json", "--limit", "100")
        assert listed.code == 0, listed.err
        return {run["id"]: run["state"] for run in listed.json()}

    def start(self, label: str, script: str, *flags: str) -> int:
        """A run whose worker counts its starts, and whose file `go` ends it."""
        text = f"echo >> {label}.starts; {script}; while [ ! -e go ]; do sleep 0.05; done"
        return self.old.detach("sh", "-c", text, flags=("--label", label, *flags))

    def starts(self, label: str) -> int:
        file = self.old.cwd / f"{label}.starts"
        return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def upgrade(run_cli: Console, tmp_path_factory: pytest.TempPathFactory) -> Upgrade:
    return Upgrade(run_cli, tmp_path_factory.mktemp("newer"))


def test_runs_in_all_states_come_through_an_upgrade(upgrade: Upgrade) -> None:
    old = upgrade.old
    assert old("run", "exec", "--label", "ended", "--", "true").code == 0
    running, also = upgrade.start("running", ":"), upgrade.start("also", "trap '' TERM")
    stopping = upgrade.start("stopping", "trap '' TERM", "--grace", "600")
    orphan = upgrade.start("orphan", ":")
    for number in (running, also, stopping, orphan):
        old.running(number)
    starting = upgrade.start("starting", ":", "--exclusive")
    queued = upgrade.start("queued", ":", "--exclusive")
    assert old("stop", str(stopping), "--no-wait").code == 0
    wait_for((old.folder(stopping) / "attempts/1/asked-to-stop").exists, "the request to be seen")
    processes.send(old.supervisor(orphan), signal.SIGKILL)
    with closing(open_writer(old.home / "kgops.db")) as conn:
        assert runs.claim(conn, starting, gpu=None)  # and its supervisor died before its worker
    assert upgrade.states()[1] == "succeeded"  # the upgrade

    refused = old("stop", str(also), "--grace", "0")  # its supervisor may be there yet
    assert refused.code == 0 or is_clear(refused.err), refused.err
    assert "was written by a newer kgops" in refused.err
    assert upgrade.new("stop", str(also), str(stopping), "--grace", "0").code == 0
    (old.cwd / "go").touch()
    wait_for(lambda: not set(upgrade.states().values()) & set(runs.UNFINISHED), "all ends")
    cancelled = dict.fromkeys((also, stopping), "cancelled")
    assert upgrade.states() == dict.fromkeys((1, running, orphan, starting, queued), "succeeded") | cancelled
    assert {upgrade.starts(label) for label in ("running", "orphan", "starting", "queued")} == {1}


def test_supervisor_of_kgops_that_is_upgraded_in_place_goes_on_with_the_new_code(
    run_cli: Console, tmp_path_factory: pytest.TempPathFactory
) -> None:
    packages = copy_packages(tmp_path_factory.mktemp("installed"))
    env = {"PYTHONPATH": str(packages)}
    waiting = "while [ ! -e go ]; do sleep 0.05; done"
    number = run_cli.going("sh", "-c", waiting, flags=("--exclusive",), env=env)
    behind = run_cli.detach("true", env=env)
    log = run_cli.folder(number) / "supervisor.log"
    raise_schema(packages)
    assert run_cli("runs", env=env).code == 0
    wait_for(lambda: "was written by a newer kgops" in log.read_text(), "the supervisor to notice")
    (run_cli.cwd / "go").touch()

    def states() -> set[str]:
        with closing(sqlite3.connect(run_cli.home / "kgops.db")) as conn:
            return {state for (state,) in conn.execute("SELECT state FROM run")}

    wait_for(lambda: states() == {"succeeded"}, f"the ends of runs {number} and {behind}, with no command")
