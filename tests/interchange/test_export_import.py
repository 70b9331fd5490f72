"""What is exported as JSON is the same run in another home; twice imported says so, and a damaged file is refused."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from driving import Console, Done

from kgops.errors import KgopsError
from kgops.interchange.importing import import_from
from kgops.settings import Home
from kgops.supervisor.run_json import IMPORTED
from storage.database import open_writer


@pytest.fixture
def elsewhere(run_cli: Console, tmp_path: Path) -> Console:
    """Another machine's kgops, as far as a record can tell."""
    return Console(tmp_path / "other-home", tmp_path)


SAYS_MUCH = (
    "import json, os, sys\n"
    "say = lambda **e: open(os.environ['KGOPS_EVENTS'], 'a').write(json.dumps(e) + '\\n')\n"
    "for i in range(5): say(event='metric', name='Verlust ∑', value=[.5, None, 1e-9, -0.0, 3][i], step=i, at=1e9 + i)\n"
    "say(event='option', name='precision', requested='fp16', effective='fp32', reason='no GPU')\n"
    "print('hello'); sys.exit(int(sys.argv[1]))\n"
)


def run_something(run_cli: Console, code: int = 0) -> None:
    flags = ("--label", "größe 🙂 = {x}", "--tag", "paper")
    run_cli("run", *flags, "exec", "--", sys.executable, "-c", SAYS_MUCH, str(code))
    assert run_cli("note", "1", "two\nlines — of it").code == 0


def exported(run_cli: Console) -> Path:
    """Run 1 and its export."""
    run_something(run_cli)
    run_cli.must("export", "1", "--to", "json")
    return run_cli.cwd / "run-1.json"


def shown(console: Console, number: int) -> dict[str, Any]:
    """All that `kgops show` says, but number, place and origin."""
    found = console.show(number)
    found["event"] = [event for event in found["event"] if event["kind"] != IMPORTED]
    found["note"] = [(note["at"], note["text"]) for note in found["note"]]
    found["attempt"] = [{**made, "run": None} for made in found["attempt"]]
    return {name: value for name, value in found.items() if name not in ("id", "folder", "path")}


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_is_shown_elsewhere_as_it_is_here(
    run_cli: Console, elsewhere: Console, tmp_path: Path, code: int
) -> None:
    run_something(run_cli, code)
    done = run_cli.must("export", "1", "--to", "json")
    assert done.out == "run-1.json\n"
    done = elsewhere("import", "run-1.json")
    assert done.code == 0, done.err
    assert done.out.startswith("run 1: imported exec run 1, ")
    assert shown(elsewhere, 1) == shown(run_cli, 1)
    mark = elsewhere.show(1)["event"][-1]
    assert mark["kind"] == IMPORTED and mark["body"]["source"] == str(tmp_path / "run-1.json")
    assert elsewhere("runs", "--search", "größe").out.count("\n") == 2
    assert elsewhere("resume", "1").code == 2


def test_twice_imported_says_so_and_again_makes_one_more(run_cli: Console) -> None:
    path = exported(run_cli)
    done = run_cli("import", path)
    assert (done.code, done.out) == (0, "")
    assert "already imported as run 1" in done.err and "--twice" in done.err
    assert run_cli("import", path, "--twice").out.startswith("run 2: imported")
    assert "already imported as run 1, 2" in run_cli("import", path).err
    assert shown(run_cli, 2) == shown(run_cli, 1)
    told_again = run_cli("import", path, "--json").json()
    assert told_again[0]["number"] is None and told_again[0]["known"] == [1, 2]


def test_an_imported_run_can_lose_its_row_and_be_found_again(run_cli: Console, elsewhere: Console) -> None:
    elsewhere.must("import", exported(run_cli))
    assert elsewhere("logs", "1").err == "Run 1 has no log.\n"
    before = elsewhere.show(1)
    for path in elsewhere.home.glob("kgops.db*"):
        path.unlink()
    assert "1 runs restored: 1" in elsewhere("doctor", "--rebuild").out
    after = elsewhere.show(1)
    del before["note"], after["note"]  # a note's id is the record's
    assert after == before


def test_a_run_that_goes_on_is_exported_as_it_is_and_imported_as_ended(
    run_cli: Console, elsewhere: Console
) -> None:
    run_cli.detach("sleep", "60")
    run_cli.running(1)
    assert run_cli("export", "1", "--to", "json").code == 0
    assert elsewhere("import", "run-1.json").code == 0
    found = elsewhere.show(1)
    assert found["state"] == "interrupted" and "had not ended when it was exported" in found["reason"]
    assert [made["outcome"] for made in found["attempt"]] == ["interrupted"]
    # When it ended is not known; time that nobody saw it run is not counted.
    assert found["ended_at"] == found["attempt"][0]["ended_at"] >= found["started_at"]
    assert found["ended_at"] < next(event["at"] for event in found["event"] if event["kind"] == "imported")


def test_a_folder_from_another_home_is_copied_and_its_run_is_the_same(
    run_cli: Console, elsewhere: Console
) -> None:
    run_something(run_cli)
    folder = run_cli.folder(1)
    done = elsewhere("import", folder)
    assert done.code == 0, done.err
    found, wanted = shown(elsewhere, 1), shown(run_cli, 1)
    assert (elsewhere.folder(1) / "worker.log").read_bytes() == (folder / "worker.log").read_bytes()
    for name in ("state", "label", "workload", "job", "environment", "option", "exit_code", "submitted_at"):
        assert found[name] == wanted[name], name
    curves = {one["name"]: one for one in wanted["series"]}
    assert [one == curves[one["name"]] for one in found["series"]] == [True]
    assert "already imported as run 1" in elsewhere("import", folder).err
    assert "already imported as run 1" in run_cli("import", folder).err


def test_a_run_whose_folder_is_gone_has_no_archive(run_cli: Console) -> None:
    run_something(run_cli)
    shutil.rmtree(run_cli.folder(1))
    refused = run_cli("export", "1", "--to", "tar", "--output", "run.tar")
    assert refused.code == 1 and "the folder of run 1 is gone" in refused.err
    assert not (run_cli.cwd / "run.tar").exists()


def test_a_folder_that_lost_its_row_gets_it_back_where_it_is(run_cli: Console) -> None:
    run_something(run_cli)
    folder = run_cli.folder(1)
    for path in run_cli.home.glob("kgops.db*"):
        path.unlink()
    assert run_cli("import", folder).out.startswith("run 1: imported")
    assert run_cli.folder(1) == folder


def test_a_folder_whose_run_goes_on_is_left_alone(run_cli: Console, elsewhere: Console) -> None:
    run_cli.detach("sleep", "60")
    run_cli.running(1)
    done = elsewhere("import", run_cli.folder(1))
    assert done.code == 2 and "still running" in done.err
    assert elsewhere("runs").out == ""


def test_files_that_are_not_what_the_manifest_says_are_named(
    run_cli: Console, elsewhere: Console, tmp_path: Path
) -> None:
    run_something(run_cli)
    folder = tmp_path / "copy"
    shutil.copytree(run_cli.folder(1), folder)
    found = json.loads((folder / "results" / "manifest.json").read_text())
    found["files"].append({"path": "worker.log", "kind": "file", "sha256": "0" * 64, "bytes": 1})
    (folder / "results" / "manifest.json").write_text(json.dumps(found))
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/etc/hostname")
    done = elsewhere("import", folder)
    assert done.code == 0 and "worker.log is not what the result manifest says" in done.err
    assert not {"pipe", "link"} & {path.name for path in elsewhere.folder(1).iterdir()}


def test_what_is_no_export_is_refused_with_its_place(run_cli: Console, tmp_path: Path) -> None:
    good = json.loads(exported(run_cli).read_text())
    cases: dict[str, Any] = {
        "not JSON at line 1": '{"kgops_export": 1, "runs": [',
        "NaN is not valid JSON": '{"kgops_export": 2, "runs": [NaN]}',
        "not a kgops export": {"hello": 1},
        "its format is 9": {**good, "kgops_export": 9},
        "runs is no list": {**good, "runs": None},
        "runs[0].run.label is no text: 5": with_run(good, label=5),
        "runs[0].run.submitted_at is no number: None": with_run(good, submitted_at=None),
        "there is no state 'flying'": with_run(good, state="flying"),
        "runs[0].run has 'wings'": with_run(good, wings=2),
        "runs[0].metric is no list": with_part(good, metric={}),
        "runs[0].job is no table": with_part(good, job=[1]),
        "half a surrogate pair": with_run(good, label="\ud800"),
        "1 steps, 0 values": with_part(good, series=[{"name": "a", "step": [1], "value": [], "at": []}]),
        "UNIQUE constraint": with_part(good, tag=[{"tag": "a"}, {"tag": "a"}]),
        "run.ended_at is not a valid time: 1e+308": with_run(good, ended_at=1e308),
        "plan.choices[0].option is no text: 5": with_part(good, plan={"choices": [{"option": 5}]}),
        "plan.forecast is no table": with_part(good, plan={"forecast": "much"}),
        "outside the run's folder": with_part(good, artifact=[{"path": "../x", "kind": "file", "at": 0.0}]),
    }
    for i, (said, body) in enumerate(cases.items()):
        path = tmp_path / f"bad-{i}.json"
        path.write_text(body if isinstance(body, str) else json.dumps(body))
        with pytest.raises(KgopsError) as error, closing(open_writer(run_cli.home / "kgops.db")) as conn:
            import_from(Home(run_cli.home), conn, path, again=True)
        assert said in error.value.message and str(path) in error.value.message
    assert run_cli("runs", "--json").json()[0]["id"] == 1
    assert [path.name for path in (run_cli.home / "runs").iterdir()] == [run_cli.folder(1).name]
    assert run_cli("import", tmp_path / "nothing").code == 2


def test_several_runs_travel_in_one_file_and_none_of_a_damaged_one_is_kept(
    run_cli: Console, elsewhere: Console, tmp_path: Path
) -> None:
    for _ in range(2):
        run_something(run_cli)
    assert run_cli("export", "2", "1", "--to", "json").out == "runs-2-and-1-more.json\n"
    path = tmp_path / "runs-2-and-1-more.json"
    whole = json.loads(path.read_text())
    whole["runs"][1]["plan"]["choices"] = 5
    (tmp_path / "bad.json").write_text(json.dumps(whole))
    done = elsewhere("import", "bad.json")
    assert done.code == 2 and "runs[1].plan.choices is no list" in done.err
    assert elsewhere("runs").out == ""
    assert [line.split(":")[0] for line in elsewhere("import", path).out.splitlines()] == ["run 1", "run 2"]
    assert shown(elsewhere, 1) == shown(run_cli, 2) and shown(elsewhere, 2) == shown(run_cli, 1)


def test_no_workload_leads_out_of_the_home(run_cli: Console, tmp_path: Path) -> None:
    good = json.loads(exported(run_cli).read_text())
    (tmp_path / "evil.json").write_text(json.dumps(with_run(good, workload="../../../evil", label="../x")))
    assert run_cli("import", "evil.json").code == 0
    assert run_cli.folder(2) == run_cli.home / "runs" / "0002-evil-x" and run_cli.folder(2).is_dir()


def with_part(whole: dict[str, Any], **changed: Any) -> dict[str, Any]:
    (one,) = whole["runs"]
    return {**whole, "runs": [{**one, **changed}]}


def with_run(whole: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return with_part(whole, run={**whole["runs"][0]["run"], **changed})


# --- killed while it imports ----------------------------------------------------------------------

DIES = """
import os, sys
from pathlib import Path
from kgops.cli import main
import {module} as there
there.{name} = lambda *_, **__: os._exit(9)
main(["import", sys.argv[1]])
"""


def dies_in(console: Console, module: str, name: str, path: Path) -> None:
    code = DIES.format(module=module, name=name)
    done = subprocess.run([sys.executable, "-c", code, str(path)], env=console.environment(), cwd=console.cwd)
    assert done.returncode == 9


@pytest.mark.parametrize("is_folder", [True, False])
def test_an_import_killed_before_its_rows_are_written_is_finished_by_the_next_command(
    run_cli: Console, elsewhere: Console, is_folder: bool
) -> None:
    path = exported(run_cli)
    if is_folder:
        dies_in(elsewhere, "kgops.supervisor.rebuild", "restore_run", run_cli.folder(1))
    else:
        dies_in(elsewhere, "storage.transfer", "insert_rows", path)
    assert elsewhere("runs", "--json").json()[0]["label"] == "größe 🙂 = {x}"
    found = elsewhere.show(1)
    assert [event["kind"] for event in found["event"]].count(IMPORTED) == 1
    assert found["state"] == "succeeded"
    assert "already imported as run 1" in elsewhere("import", path).err


def test_an_import_killed_while_it_copies_leaves_nothing_once_there_is_another(
    run_cli: Console, elsewhere: Console
) -> None:
    run_something(run_cli)
    dies_in(elsewhere, "kgops.interchange.import_folder", "enter", run_cli.folder(1))
    assert len(list((elsewhere.home / "runs").iterdir())) == 1
    assert elsewhere("runs").out == ""
    assert elsewhere("import", run_cli.folder(1)).out.startswith("run 1: imported")
    assert [path.name for path in (elsewhere.home / "runs").iterdir()] == [elsewhere.folder(1).name]


@pytest.mark.parametrize("kind", ["export", "folder"])
def test_a_run_that_many_import_at_once_is_imported_once(
    run_cli: Console, elsewhere: Console, kind: str
) -> None:
    path = exported(run_cli)
    source = path if kind == "export" else run_cli.folder(1)
    said = [child.communicate(timeout=300) for child in [elsewhere.start("import", source) for _ in range(4)]]
    assert sum(out.startswith(b"run 1: imported") for out, _ in said) == 1, said
    assert sum(err.startswith(b"already imported as run 1") for _, err in said) == 3, said


def test_an_export_of_the_end_follows_one_of_before(
    run_cli: Console, elsewhere: Console, tmp_path: Path
) -> None:
    number = run_cli.going("sh", "-c", "while [ ! -e gate ]; do sleep 0.02; done")

    def import_it() -> Done:
        exported = tmp_path / "run.json"
        assert run_cli("export", str(number), "--to", "json", "--output", exported, "--force").code == 0
        return elsewhere("import", exported)

    assert import_it().out.startswith("run 1: imported")
    assert import_it().err.startswith("already imported as run 1")
    copy = tmp_path / "copy.json"
    assert elsewhere("export", "1", "--to", "json", "--output", copy).code == 0
    assert elsewhere("import", copy, elsewhere.folder(1)).out == ""
    (run_cli.cwd / "gate").touch()
    run_cli.ended(number)
    at_its_end = import_it()
    assert at_its_end.out.startswith(f"run 2: imported exec run {number}, succeeded"), at_its_end
    assert at_its_end.err == "Note: run 1 is a copy of the same run, imported earlier\n"
    assert import_it().err.startswith("already imported as run 1, 2")
    assert elsewhere.show(2)["state"] == "succeeded"
