"""A folder to import may hold anything under any name: links, pipes, sockets. None is followed or waited for."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import QUICK, Console, is_clear
from test_import_group import write
from test_import_group_scores import TREATS, write_scores

from kgops.errors import KgopsError
from kgops.interchange.importing import import_from
from kgops.settings import Home

OF_A_RUN = (
    *(
        "plan.json",
        "environment.json",
        "job.toml",
        "imported.json",
        "record.json",
        "outcome.slot",
        "stop.slot",
    ),
    *("supervisor.lock", "worker.lock", "events.jsonl", "worker.log", "results/manifest.json", "results"),
    *("attempts", "attempts/1", "attempts/1/identity.json", "attempts/1/closed.json", "attempts/1/exit.slot"),
    *("attempts/1/begun", "attempts/1/asked-to-stop"),
)
LEFT_OUT_OF_A_RUN = ("results/kept.txt", "private.json", "supervisor.log")
OF_AN_OUTPUT = ("config.json", "training_history.json", "test_results.json", "batch_tracin_summary.json")
LEFT_OUT_OF_AN_OUTPUT = (
    *("best_model.pt", "final_model.pt", "checkpoints", "checkpoints/checkpoint_epoch_0000001.pt"),
    *("triple_0_tracin.csv", "triple_0_tracin.json"),
)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("zz-pipe"))
    path.symlink_to("zz-pipe")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # its name may be 107 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


KINDS = (pipe, directory, dangling, link_to_pipe, device, a_socket)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder and an output folder, each whole."""
    place = tmp_path_factory.mktemp("good")
    console = Console(place / "home", place)
    made = "import os\nopen(os.environ['KGOPS_RUN_FOLDER'] + '/results/kept.txt', 'w').write('x')\nprint(1)"
    assert console("run", "exec", "--", *QUICK, made).code == 0
    shutil.move(console.folder(1), place / "run")
    out = write(
        place / "output", config={"a": 1}, training_history=[{"loss": 1.0}], test_results={"mrr": 0.5}
    )
    write(out, batch_tracin_summary={"results": []}, triple_0_tracin={})
    write_scores(out / "triple_0_tracin.csv", TREATS, [1.0])
    (out / "checkpoints").mkdir()
    for name in ("best_model.pt", "final_model.pt", "checkpoints/checkpoint_epoch_0000001.pt"):
        (out / name).write_bytes(b"weights")
    return place


def replaced(folder: Path, name: str, by: Callable[[Path], None]) -> Path:
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    by(path)
    return folder


def is_empty(home: Path) -> bool:
    return not list((home / "runs").iterdir())


@pytest.mark.parametrize("by", KINDS)
@pytest.mark.parametrize(("what", "names"), [("run", OF_A_RUN), ("output", OF_AN_OUTPUT)])
def test_what_is_read_and_is_no_file_is_refused_by_its_name(
    conn: sqlite3.Connection,
    home: Path,
    tmp_path: Path,
    good: Path,
    what: str,
    names: tuple[str, ...],
    by: Callable[[Path], None],
) -> None:
    for name in names:
        if by is directory and name in ("attempts", "attempts/1", "results"):
            continue
        folder = replaced(shutil.copytree(good / what, tmp_path / name.replace("/", "-")), name, by)
        with pytest.raises(KgopsError) as caught:
            import_from(Home(home), conn, folder)
        assert str(folder / name) in caught.value.message and "it is " in caught.value.message
        assert caught.value.hint and caught.value.exit_code == 2
    assert is_empty(home) and conn.execute("SELECT count(*) FROM run").fetchone() == (0,)


@pytest.mark.parametrize("by", KINDS)
@pytest.mark.parametrize(("what", "names"), [("run", LEFT_OUT_OF_A_RUN), ("output", LEFT_OUT_OF_AN_OUTPUT)])
def test_what_is_only_copied_and_is_no_file_is_left_out_and_told(
    conn: sqlite3.Connection,
    home: Path,
    tmp_path: Path,
    good: Path,
    what: str,
    names: tuple[str, ...],
    by: Callable[[Path], None],
) -> None:
    for name in names:
        folder = replaced(shutil.copytree(good / what, tmp_path / name.replace("/", "-")), name, by)
        (one,) = import_from(Home(home), conn, folder, again=True)
        assert one.number is not None
        if by is not directory and name not in ("private.json", "supervisor.log"):
            assert any(trouble.startswith(f"{name} is not imported") for trouble in one.troubles), (
                one.troubles
            )
    for path in (home / "runs").rglob("*"):
        assert not path.is_symlink() and (path.is_dir() or path.is_file()), path


@pytest.mark.parametrize(("what", "names"), [("run", OF_A_RUN), ("output", OF_AN_OUTPUT)])
def test_import_ends_with_a_sentence_wherever_a_pipe_stands(
    run_cli: Console, tmp_path: Path, good: Path, what: str, names: tuple[str, ...]
) -> None:
    for name in names:
        folder = replaced(shutil.copytree(good / what, tmp_path / name.replace("/", "-")), name, pipe)
        done = run_cli("import", folder)
        assert (done.code, is_clear(done.err)) == (2, True), (name, done.err)
        assert str(folder / name) in done.err
    assert is_empty(run_cli.home)


def test_a_link_that_a_person_names_is_followed(run_cli: Console, tmp_path: Path, good: Path) -> None:
    (tmp_path / "run").symlink_to(good / "run")
    assert run_cli("import", tmp_path / "run").code == 0
    assert run_cli("export", "1", "--to", "json").code == 0
    (tmp_path / "link.json").symlink_to("run-1.json")
    assert run_cli("import", "link.json", "--twice").code == 0
    assert len(run_cli("runs", "--json").json()) == 2


@pytest.mark.parametrize("by", KINDS)
def test_a_log_that_is_no_file_is_told_and_not_waited_for(
    run_cli: Console, by: Callable[[Path], None]
) -> None:
    assert run_cli("run", "exec", "--", "echo", "hello").code == 0
    replaced(run_cli.folder(1), "worker.log", by)
    for command in (("logs", "1"), ("logs", "1", "-n", "3")):
        done = run_cli(*command)
        assert (done.code, is_clear(done.err)) == (1, True), done.err
        assert "worker.log: it is " in done.err
    assert run_cli("show", "1").code == 0
    assert run_cli("report", "1").code == 0


@pytest.mark.parametrize("by", KINDS)
def test_a_job_or_profile_or_configuration_that_is_no_file_is_refused(
    run_cli: Console, tmp_path: Path, by: Callable[[Path], None]
) -> None:
    for name in ("job.toml", "mine.toml", "c.yaml"):
        replaced(tmp_path, name, by)
        (tmp_path / "zz-pipe").unlink(missing_ok=True)
    for command in (
        ("run", "job.toml"),
        ("profiles", "show", "mine.toml"),
        ("run", "regress", "--config", "c.yaml"),
    ):
        done = run_cli(*command)
        assert done.code == 2 and "Traceback" not in done.err and done.err.count("Error: ") == 1, done.err
