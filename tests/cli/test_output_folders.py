"""`--output` below a folder that is not there: each command makes it, and errors name what the person typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import Console

COMMANDS = {
    "report": ("report", "1", "--output", "{}.html"),
    "compare": ("compare", "1", "2", "--html", "--output", "{}.html"),
    "json": ("export", "1", "--to", "json", "--output", "{}.json"),
    "tar": ("export", "1", "--to", "tar", "--output", "{}.tar"),
    "csv": ("export", "1", "--to", "csv", "--output", "{}"),
    "tensorboard": ("export", "1", "--to", "tensorboard", "--output", "{}"),
    "profile": ("profiles", "new", "{}.toml", "--from", "t4"),
}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Console:
    """With two runs that have ended."""
    console = Console(tmp_path_factory.mktemp("home") / "kgops", tmp_path_factory.mktemp("cwd"))
    for _ in range(2):
        assert console("run", "exec", "--", "true").code == 0
    return console


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_folder_is_made(console: Console, tmp_path: Path, name: str) -> None:
    target = tmp_path / "made" / "deeper" / "it"
    done = console(*(word.format(target) for word in COMMANDS[name]))
    assert done.code == 0, done.err
    found = [path for path in target.parent.rglob("*") if path.is_file()]
    assert found and not any(path.name.endswith(".part") for path in found)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_cannot_be_written_is_named_as_it_was_typed(
    console: Console, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "it"
    done = console(*(word.format(target) for word in COMMANDS[name]))
    assert done.code == 1
    assert f"cannot write {target}" in done.err and "ot a directory" in done.err
    assert ".part" not in done.err and "Traceback" not in done.err
