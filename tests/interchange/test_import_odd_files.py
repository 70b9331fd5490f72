"""A folder to import may hold anything: links, pipes, sockets, damaged files. Each is imported, left out or refused by
its name, none is followed or waited for, and nothing of what is refused is kept."""

import json
import os
import random
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import QUICK, Console, is_clear
from test_import_group import TREATS, group_line, write, write_scores

from kgops.errors import KgopsError
from kgops.interchange.importing import import_from
from kgops.present.log_lines import newest_lines
from kgops.present.report_page import page
from kgops.present.run_detail import read_run_detail
from kgops.settings import Home
from kgops.supervisor.run_json import read_runs, write_runs
from storage import runs, transfer
from storage.database import integrity_problems

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


KINDS = (os.mkfifo, Path.mkdir, dangling, link_to_pipe, device, a_socket)


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


ALL_READ = pytest.mark.parametrize(("what", "names"), [("run", OF_A_RUN), ("output", OF_AN_OUTPUT)])


@pytest.mark.parametrize("by", KINDS)
@ALL_READ
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
        if by is Path.mkdir and name in ("attempts", "attempts/1", "results"):
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
        if by is not Path.mkdir and name not in ("private.json", "supervisor.log"):
            assert any(trouble.startswith(f"{name} is not imported") for trouble in one.troubles), (
                one.troubles
            )
    for path in (home / "runs").rglob("*"):
        assert not path.is_symlink() and (path.is_dir() or path.is_file()), path


@ALL_READ
def test_import_ends_with_a_sentence_wherever_a_pipe_stands(
    run_cli: Console, tmp_path: Path, good: Path, what: str, names: tuple[str, ...]
) -> None:
    for name in names:
        folder = replaced(shutil.copytree(good / what, tmp_path / name.replace("/", "-")), name, os.mkfifo)
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


ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 0.5, 1 << 70, -(1 << 63), 1e308, [], [[]], {}, {"a": None}),
    *("", "x", "\0", "é" * 3, "../..", "\ud800", "results/../../x"),
    *("NaN", "Infinity", "succeeded", "running"),
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value at which there could be another."""
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def with_odd_node(text: bytes, generator: random.Random) -> bytes:
    """Valid JSON in which one value is another, is missing, or stands twice."""
    whole = json.loads(text)
    *way, last = generator.choice(list(places(whole)))
    node = whole
    for key in way:
        node = node[key]
    act = generator.randrange(4)
    if act == 0:
        del node[last]
    elif act == 1 and isinstance(node, list):
        node.append(node[last])
    else:
        node[last] = generator.choice(ODD)
    return json.dumps(whole).encode()


def cut(text: bytes, generator: random.Random) -> bytes:
    return text[: generator.randrange(len(text))]


def flipped(text: bytes, generator: random.Random) -> bytes:
    out = bytearray(text)
    for _ in range(generator.choice((1, 1, 4))):
        out[generator.randrange(len(out))] = generator.randrange(256)
    return bytes(out)


def spliced(text: bytes, generator: random.Random) -> bytes:
    a, b, c = sorted(generator.randrange(len(text)) for _ in range(3))
    return text[:b] + text[a:c] + text[c:]


def try_it(home: Home, conn: sqlite3.Connection, target: Path, named: str) -> bool:
    """Whether it was imported; what was is whole and can be shown, what was not left nothing."""
    before, folders = runs.count(conn), set(home.runs.iterdir())
    try:
        found = import_from(home, conn, target, again=True)
    except KgopsError as error:
        assert named in error.message, error.message
        assert runs.count(conn) == before and set(home.runs.iterdir()) == folders
        return False
    for one in found:
        assert one.number is not None
        rows = transfer.read_rows(conn, one.number)
        assert rows is not None and rows.run["state"] in runs.ENDED
        text = "".join(write_runs(iter([rows])))
        (again,) = read_runs(conn, text.encode(), "again")
        assert "".join(write_runs(iter([again]))).partition("runs")[2] == text.partition("runs")[2]
        shown = read_run_detail(home, conn, one.number)
        assert shown is not None
        page(shown, newest_lines(shown.path / "worker.log", 200))
    return True


def mutants(good: Path, folder: Path, many: int) -> Iterator[tuple[Path, Path]]:
    """Copies of a folder in which one file is damaged each, and that file."""
    names = sorted(path.relative_to(good).as_posix() for path in good.rglob("*") if path.is_file())
    for seed in range(many):
        generator = random.Random(seed)
        bad = shutil.copytree(good, folder / f"bad-{seed}")
        path = bad / generator.choice(names)
        ways = [cut, flipped, spliced] + ([with_odd_node] * 3 if path.suffix == ".json" else [])
        text = path.read_bytes()
        path.write_bytes(generator.choice(ways)(text, generator) if text else b"\xff{")
        yield bad, path


@pytest.mark.parametrize("mutate", [with_odd_node, cut, flipped, spliced])
def test_a_mutated_export_is_imported_whole_or_refused_by_name(
    run_cli: Console,
    conn: sqlite3.Connection,
    tmp_path: Path,
    mutate: Callable[[bytes, random.Random], bytes],
) -> None:
    assert run_cli("run", "--tag", "x", "exec", "--", "true").code == 0
    assert run_cli("export", "1", "--to", "json", "--output", tmp_path / "x.json").code == 0
    good = (tmp_path / "x.json").read_bytes()
    imported = 0
    for seed in range(40):
        path = tmp_path / f"mutant-{seed}.json"
        path.write_bytes(mutate(good, random.Random(seed)))
        imported += try_it(Home(run_cli.home), conn, path, str(path))
    assert integrity_problems(conn) == []
    if mutate is with_odd_node:
        assert imported > 5  # else nothing but refusals was tried


def test_a_mutated_output_folder_is_imported_whole_or_refused_by_name(
    home: Path, conn: sqlite3.Connection, tmp_path: Path
) -> None:
    history = [{"epoch": n, "loss": 1 / n, "valid": {"both": {"mrr": 0.1 * n}}} for n in range(1, 4)]
    good = write(
        tmp_path / "good",
        config={"model": {"dim": 2}},
        training_history=history,
        test_results={"both": {"mrr": 0.3}},
        batch_tracin_summary={"total_triples": 1, "results": [group_line(0, TREATS)]},
    )
    write_scores(good / "triple_000_tracin.csv", TREATS, [0.5, -0.5, 1e-9])
    bad = mutants(good, tmp_path, 100)
    assert 15 < sum(try_it(Home(home), conn, folder, str(path)) for folder, path in bad) < 100
    assert integrity_problems(conn) == []


def test_a_mutated_run_folder_is_imported_or_refused_by_name(
    run_cli: Console, conn: sqlite3.Connection, tmp_path: Path
) -> None:
    code = 'import os; open(os.environ[\'KGOPS_EVENTS\'], \'a\').write(\'{"event": "note", "text": "x"}\\n\')'
    assert run_cli("run", "exec", "--", "python3", "-c", code).code == 0
    bad = mutants(run_cli.folder(1), tmp_path, 40)
    assert sum(try_it(Home(run_cli.home), conn, folder, str(folder)) for folder, _ in bad) > 10
    assert integrity_problems(conn) == []
