"""Numbers that are not finite, options that are gone, thousands of metrics, and folders that are not there yet."""

import json
import sqlite3
import sys
from pathlib import Path

import pytest
from driving import Console

WORDS = ("nan", "inf", "-inf")
FLAGS = (
    "run exec --grace {} -- true",
    "run exec --log-limit {} -- true",
    "run train --dataset nations --learning-rate {}",
    "run train --dataset nations --input-dropout {}",
    "run regress --data_directory x --loss_alpha {}",
    "suggest train --dataset nations --weight-decay {}",
    "stop 1 --grace {}",
)


@pytest.mark.parametrize("words", FLAGS)
def test_flags_take_no_number_that_is_not_finite(run_cli: Console, words: str) -> None:
    for word in WORDS:
        done = run_cli(*words.format(word).split())
        assert done.code == 2
        assert "finite number" in done.err
        assert "Traceback" not in done.err
    assert list((run_cli.home / "runs").iterdir()) == []


@pytest.mark.parametrize("table", ["limits]\ngrace_s", "limits]\nlog_mib", "options]\ncompile"])
def test_job_files_take_no_number_that_is_not_finite(run_cli: Console, tmp_path: Path, table: str) -> None:
    for word in (*WORDS, "1" + "0" * 400):
        job = tmp_path / "job.toml"
        job.write_text(f'workload = "exec"\n[exec]\ncommand = ["true"]\n[{table} = {word}\n')
        done = run_cli("run", job)
        assert done.code == 2, done
        assert done.err.count("Error: ") == 1
        assert "Traceback" not in done.err
    assert list((run_cli.home / "runs").iterdir()) == []


OLD = {
    1: {
        "workload": "tracin",
        "label": "old",
        "tracin": {"run": 1, "use_index": "ix", "score": "trak"},
        "options": {},
    },
    2: {
        "workload": "train",
        "label": "old",
        "train": {"dataset": "nations"},
        "options": {"devices": 2},
    },
}


def test_a_run_with_removed_options_is_shown_and_compared_but_not_repeated(run_cli: Console) -> None:
    for _ in OLD:
        assert run_cli("run", "exec", "--", "true").code == 0
    with sqlite3.connect(run_cli.home / "kgops.db") as conn:
        for number, job in OLD.items():
            conn.execute("UPDATE run_spec SET job = ? WHERE run = ?", (json.dumps(job), number))
            conn.execute("UPDATE run SET workload = ? WHERE id = ?", (job["workload"], number))
    for words in (
        ("show", "1"),
        ("show", "1", "--json"),
        ("show", "2"),
        ("compare", "1", "2"),
        ("report", "1"),
    ):
        done = run_cli.must(*words)
        assert "Traceback" not in done.err
    assert "use_index" in run_cli("compare", "1", "2").out
    again = run_cli("run", "--again", "1")
    assert again.code == 2
    assert "tracin.use_index" in again.err and "Traceback" not in again.err


_REPORTS = """
import json, os
with open(os.environ["KGOPS_EVENTS"], "a") as file:
    for i in range(30_000):
        file.write(json.dumps({"event": "metric", "name": f"m{i:05}", "value": i}) + "\\n")
"""


def test_thirty_thousand_names_leave_a_record_that_can_be_read(run_cli: Console, tmp_path: Path) -> None:
    done = run_cli.must("run", "exec", "--", sys.executable, "-c", _REPORTS)
    assert "'m01000' and later ones are in no curve" in done.err
    shown = run_cli("show", "1").out
    assert len(shown.splitlines()) < 300
    assert "more curves: kgops show 1 --json has all" in shown
    assert len(run_cli("show", "1", "--json").json()["series"]) <= 1_004
    assert run_cli("report", "1", "--output", tmp_path / "run.html").code == 0
    assert "more curves are not in this page" in (tmp_path / "run.html").read_text()


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
    console.must(*(word.format(target) for word in COMMANDS[name]))
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
