"""README: its session is typed as it stands there and prints what is shown; each command it names is one."""

import importlib.util
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from documented import (
    ROOT,
    SCRIPTS,
    Desk,
    Reader,
    Typed,
    at_a_desk,
    commands,
    document_pages,
    in_sentences,
    page,
    typed_in,
    unlike,
)
from driving import wait_for
from parsing import parse

from kgops.cli import WORKLOADS, group, main
from kgops.cli.follow import EXIT_CODES
from kgops.errors import BadJob, KgopsError, NoSuchRun, Usage, WontFit

README, REFERENCE = page("README.md"), page("docs/COMMANDS.md")
SESSION = typed_in(README, "console")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    for reader in at_a_desk(tmp_path_factory.mktemp("here"), SESSION):
        for name, text in SCRIPTS.items():
            (reader.desk.folder / name).write_text(text)
        yield reader


@pytest.mark.parametrize("typed", SESSION, ids=[typed.line[:50] for typed in SESSION])
def test_a_line_of_the_session_prints_what_is_shown_below_it(session: Reader, typed: Typed) -> None:
    went = session.typed(typed)
    assert unlike(typed.shown, went.err + went.out) is None, went.err + went.out
    assert not went.written


def test_what_the_session_leaves_is_what_it_says(session: Reader) -> None:
    session.typed(SESSION[-1])
    show = session.desk.console.show
    assert [show(number)["state"] for number in (1, 2, 3, 4)] == ["succeeded"] * 3 + ["cancelled"]
    table = (session.desk.run(2) / "results/tracin.csv").read_text().splitlines()
    assert len(table) == 1 + 100
    assert "; score tracin, loss target." in json.dumps(show(2))


def test_a_profile_without_its_gpu_keeps_what_applies_and_says_why_nothing_else_did(
    session: Reader,
) -> None:
    session.typed(SESSION[0])
    shown = session.desk.console.show(1)
    told = {one["name"]: (one["requested"], one["applied"], one["reason"]) for one in shown["option"]}
    assert told["compile"] == ("default", "off", "no CUDA device")
    assert told["precision"][:2] == ("fp16", "fp32") and told["precision"][2]
    (segments,) = [choice for choice in shown["plan"]["choices"] if choice["option"] == "expandable_segments"]
    assert (segments["requested"], segments["applied"]) == (True, False)
    assert segments["reason"] == "no CUDA device"
    assert told["expandable_segments"] == ("on", "off", "no CUDA device")
    log = (session.desk.run(1) / "worker.log").read_text().splitlines()
    assert "expandable segments: off (requested on: no CUDA device)" in log
    written = json.loads((session.desk.run(1) / "results" / "config.json").read_text())["optimizations"]
    assert set(told) <= set(written)
    assert written["expandable_segments"] == {"requested": True, "applied": False, "reason": "no CUDA device"}


def test_the_files_that_readme_lists_are_in_every_folder_of_a_run(session: Reader) -> None:
    session.typed(SESSION[0])
    folder = session.desk.run(1)
    table = REFERENCE.partition("## Where files live")[2].partition("\n## ")[0]
    names = re.findall(
        r"`([^`]+)`", " ".join(row.split("|")[1] for row in re.findall(r"^\| `.*", table, re.M))
    )
    assert len(names) >= 9
    removed_at_end = {"private.json", "room.reserved"}
    assert removed_at_end <= set(names)
    for name in names:
        assert (folder / name).exists() is (name not in removed_at_end), name
    assert (folder / "results/manifest.json").is_file() and (folder / "results/checkpoints").is_dir()
    assert session.desk.home.stat().st_mode & 0o777 == 0o700


# --- the table of commands and what sentences name ------------------------------------------------

# What a person puts there; a name in capitals that is not here fails.
STANDS_FOR = {
    "RUN": "1",
    "RUN…": "1 2",
    "NAME": "colab_optimized",
    "DIR": "flights",
    "COMMAND": "true",
    "FILE.toml": "job.toml",
    "JOB": "job.toml",
    "PATH…": "runs.json",
    "…": "",
}


def typed_out(span: str) -> list[str]:
    words = [
        word
        for each in shlex.split(span)
        for word in (STANDS_FOR[each].split() if each in STANDS_FOR else [each])
    ]
    assert not [word for word in words if re.fullmatch(r"[A-Z]{2,}…?", word)], span
    # A workload that is left out of a sentence is a training; a command that is cut short has no more words.
    if words[1:2] == ["run"] and words[2:3] and words[2].startswith("--"):
        words += (
            ["train", "--dataset", "nations"] if "--again" not in words and "--profile" not in words else []
        )
    if words[:3] == ["kgops", "bench", "matrix"] and words[-1] == "--vary":
        words.append("batch_size=256,512")
    return words


SPANS = {
    (name, span)
    for name in document_pages()
    for span in (*in_sentences(page(name)), *(typed.line for typed in typed_in(page(name), "sh|console")))
    if span.startswith("kgops ")
}


@pytest.mark.parametrize(("name", "span"), sorted(SPANS), ids=[f"{a} {b[:40]}" for a, b in sorted(SPANS)])
def test_a_command_in_a_sentence_is_one_that_is_taken(
    name: str, span: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text('workload = "exec"\n')
    (tmp_path / "flights").mkdir()
    words = typed_out(span)
    try:
        parse(group, words[0], words[1:])
    except click.MissingParameter:  # of a command that is named alone, or with one flag
        assert not [word for word in span.split()[2:] if word.isupper()], span
    except NoSuchRun:
        assert "--again" in words
    except click.exceptions.NoArgsIsHelpError:
        assert len(words) == 2
    except click.exceptions.Exit:
        assert words[-1] == "--help"


def test_every_module_that_is_to_be_run_is_there() -> None:
    texts = [page(name) for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "Makefile")]
    texts += [path.read_text() for path, _ in COMMENTS]
    modules = {
        name
        for text in texts
        for name in re.findall(r"(?:python|BIN\)/python) -m ((?:kgops|benchmarks)[\w.]+)", text)
    }
    assert len(modules) >= 2  # the pattern still finds them
    for name in modules:
        assert importlib.util.find_spec(name.rstrip(".")), name


def test_every_command_stands_in_the_table_and_no_other_does() -> None:
    table = REFERENCE.partition("## Start a run")[2].partition("\n## What you can rely on")[0]
    for words, _ in commands():
        parts = words.split()
        if len(parts) == 2 and parts[1] != "data":
            assert f"`{words}" in table or f"`{parts[1]}`" in table, words
    for span in in_sentences(table):
        first = [word for word in span.split()[1:2] if word.isalpha() and word.islower()]
        assert not first or first[0] in {*group.list_commands(None), *WORKLOADS}, span  # type: ignore[arg-type]


# --- exit codes, profiles, recipes, make ----------------------------------------------------------


def test_the_exit_codes_are_those_that_commands_end_with() -> None:
    table = REFERENCE.partition("| exit code |")[2].partition("\n\n")[0]
    told = {int(code): text for code, text in re.findall(r"^\| (\d+) \| (.+) \|$", table, re.M)}
    assert set(EXIT_CODES.values()) | {Usage.exit_code, WontFit.exit_code} == set(told)
    assert (KgopsError.exit_code, BadJob.exit_code) == (1, 2)


COMMENTS = [
    (path, line)
    for folder in ("profiles", "kgops/recipes")
    for path in sorted((ROOT / folder).glob("*.toml"))
    for line in re.findall(r"^# (kgops .*)$", path.read_text(), re.M)
]


def test_every_profile_and_recipe_begins_with_its_command() -> None:
    files = {*(ROOT / "profiles").glob("*.toml"), *(ROOT / "kgops/recipes").glob("*.toml")}
    assert {path for path, _ in COMMENTS} == files
    assert all(path.stem in shlex.split(line) for path, line in COMMENTS)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A folder with a job of its own, and a graph under the names that recipes are shown with."""
    from small_graph import put_graph

    desk = Desk.at(tmp_path_factory.mktemp("comments"))
    (desk.folder / "kgops.toml").write_text('workload = "exec"\n[exec]\ncommand = ["true"]\n')
    put_graph(desk.folder)
    yield desk
    desk.close()


def test_the_command_of_each_profile_runs_the_job_of_a_folder(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk.folder)
    monkeypatch.setenv("KGOPS_HOME", str(desk.home))
    lines = [line for path, line in COMMENTS if path.parent.name == "profiles"]
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    listed = desk.console("runs", "--json").json()
    assert [run["profile"] for run in listed] == [line.split()[-1] for line in reversed(lines)]
    assert {run["state"] for run in listed} == {"succeeded"}


def test_the_command_of_a_recipe_trains_what_it_says(desk: Desk) -> None:
    """That each recipe is a job that training accepts, test_recipes.py holds."""
    (line,) = (line for path, line in COMMENTS if path.stem == "umls")
    number = int(desk.type(f"{line} --detach").out)

    def losses() -> list[Any]:
        shown = desk.console.show(number)
        assert shown["state"] in ("queued", "starting", "running", "succeeded"), shown["reason"]
        return [curve for curve in shown["series"] if curve["name"] == "loss"]

    wait_for(losses, "an epoch")
    assert desk.console("stop", str(number), "--grace", "5").code == 0


MAKE = [typed.line for typed in typed_in(README, "sh")]
MAKE += [span for span in re.findall(r"`(make [a-z-]+)`", page("docs/contributing.md")) if span not in MAKE]


@pytest.mark.parametrize("line", MAKE)
def test_make_knows_what_to_do(line: str) -> None:
    """Without doing it: this very test is among what it does."""
    done = subprocess.run([*shlex.split(line), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
