"""docs/MIGRATING.md: each command is run as it stands there, and those of fixtures/migrating.sh; what the page promises
is read."""

import csv
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from documented import Desk, Went, page, typed_in
from small_graph import put_graph

from kgops.cli import main
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.workloads.outputs import LEDGER

# Sixteen runs, one after the other, on a machine that may be busy.
PAGE = page("docs/MIGRATING.md")
WORKLOADS = {
    "train_pytorch.py": "train",
    "run_tracin.py": "tracin",
    "batch_tracin_with_filtering.py": "tracin",
    "main.py": "regress",
}
# What a flag of a table is given with: the least that its command takes.
LEAST = {
    "train_pytorch.py": "--train data/train.txt --valid data/valid.txt --test data/test.txt",
    "run_tracin.py": "--model-path models/conve/final_model.pt --train data/train.txt --self-influence",
    "batch_tracin_with_filtering.py": (
        "--model-path models/conve/final_model.pt --train data/train.txt --test-triples data/batch.txt"
    ),
}


def pairs() -> list[tuple[str, str]]:
    """Old command line and new, as they stand one under the other."""
    lines = [typed.line for typed in typed_in(PAGE)]
    return list(zip(lines[::2], lines[1::2], strict=True))


MORE = [typed.line for typed in typed_in(f"```sh\n{page('tests/fixtures/migrating.sh')}```")]
LINES = [*(new for _, new in pairs()), *MORE]


def rows() -> list[tuple[str, str, str]]:
    """Script, flag, and the line of the job that it becomes."""
    found = []
    for script, text in re.findall(r"^## `(\S+\.py)`(.*?)(?=^## )", PAGE, re.M | re.S):
        found += [(script, *row) for row in re.findall(r"^\| `(--[^`]+)` \| `([^`]+)` \|", text, re.M)]
    return found


def flags_of(line: str) -> dict[str, str]:
    """Each flag with the words behind it."""
    found: dict[str, str] = {}
    name = ""
    for word in shlex.split(line)[2:]:
        if word.startswith("--"):
            name = word
            found[name] = ""
        else:
            found[name] = f"{found[name]} {word}".strip()
    return found


# --- the lines, really run ------------------------------------------------------------------------


class Reader:
    """Somebody who types the page's lines from the top, as far as a test asks."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.sizes = put_graph(desk.folder / "data")
        make_flights(desk.folder / "flights", 2, Sky(frames=10, size=8))

    def typed(self, line: str) -> Went:
        """After the trainings, whose models it may trace."""
        for each in [*(TRAININGS if line in TRACINGS + BATCHES else ()), line]:
            if each not in self.desk.went:
                self.desk.type(each)
        went = self.desk.went[line]
        assert went.code == 0, went.err
        return went

    def number(self, line: str) -> int:
        (said,) = re.findall(r"^run (\d+) ", self.typed(line).out, re.M)
        return int(said)

    def show(self, line: str) -> dict[str, Any]:
        return self.desk.console.show(self.number(line))

    def read(self, name: str) -> Any:
        return json.loads((self.desk.folder / name).read_text())

    def csv(self, name: str) -> list[dict[str, str]]:
        with (self.desk.folder / name).open(newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    desk = Desk.at(tmp_path_factory.mktemp("migrating"))
    # No C++ compiler: compiling takes a minute, and a run that cannot compile says so and goes on.
    desk.more["CXX"] = str(desk.folder / "no-compiler")
    yield Reader(desk)
    desk.close()


def named(line: object) -> str:
    words = str(line).split()[2:]
    return " ".join(word for word in words if word.startswith("--"))[:50]


TRAININGS = [line for line in LINES if shlex.split(line)[1] == "train"]
BATCHES = [line for line in LINES if "--test-triples" in line]
TRACINGS = [line for line in LINES if shlex.split(line)[1] == "tracin" and line not in BATCHES]
REGRESSIONS = [line for line in LINES if shlex.split(line)[1] == "regress"]


@pytest.mark.parametrize("line", TRAININGS, ids=named)
def test_a_training_leaves_the_files_it_always_left(reader: Reader, line: str) -> None:
    done = reader.typed(line)
    flags = flags_of(line)
    folder = flags["--output-dir"]
    epochs, every = int(flags.get("--num-epochs", 100)), int(flags.get("--checkpoint-frequency", 2))
    kept = [f"checkpoints/checkpoint_epoch_{n:07d}.pt" for n in range(every, epochs + 1, every)]
    models = ["final_model.pt", "best_model.pt", *kept]
    metrics = {"config.json", "training_history.json", "test_results.json", LEDGER}
    promised = metrics | set(models) | {f"{name}.sha256" for name in models}
    assert done.written == {f"{folder}/{name}" for name in promised}
    assert len(reader.read(f"{folder}/training_history.json")) == epochs
    printed = re.search(r"test_mrr ([\d.]+)", done.err)
    ranked = reader.read(f"{folder}/test_results.json")["both"]
    assert printed and float(printed[1]) == pytest.approx(ranked["mrr"], rel=1e-3)
    there = {
        str(path.relative_to(reader.desk.folder)) for path in (reader.desk.folder / folder).rglob("*.pt")
    }
    assert there == {f"{folder}/{name}" for name in models}, "checkpoints of another training lie among them"


@pytest.mark.parametrize("line", TRACINGS, ids=named)
def test_a_tracing_writes_what_was_asked_for_whole(reader: Reader, line: str) -> None:
    done = reader.typed(line)
    flags = flags_of(line)
    asked = {flags[name] for name in ("--output", "--csv-output") if name in flags}
    assert done.written == asked
    body = reader.read(flags["--output"])
    if "--self-influence" in flags:
        scores = [one["score"] for one in body["self_influences"]]
        assert len(scores) == reader.sizes["train"] and scores == sorted(scores, reverse=True)
        summary = body["summary"]
        assert summary["total"] == pytest.approx(sum(scores), rel=1e-6)
        assert summary["mean"] == pytest.approx(sum(scores) / len(scores), rel=1e-6)
        assert summary["largest"] == pytest.approx(scores[0], rel=1e-6)
        assert summary["largest_triple"]["head"] == body["self_influences"][0]["head"]
        assert f"self-influence of {len(scores):,} training triples" in done.out
        refused = reader.desk.console("influences", str(reader.number(line)))
        assert refused.code == 2 and "self_influence" in refused.err
        if "--csv-output" in flags:
            rows = [float(row["TracInScore"]) for row in reader.csv(flags["--csv-output"])]
            assert rows == pytest.approx(scores, rel=1e-6)
        return
    assert body["loss"] == "target"
    found = body["results"]
    tests = 1 if "--test-triple" in flags else int(flags["--max-triples"])
    each = min(int(flags.get("--top-k", 10**9)), reader.sizes["train"])
    assert [len(one["influences"]) for one in found] == [each] * tests
    if "--csv-output" in flags:
        table = reader.csv(flags["--csv-output"])
        scores = [one["score"] for one in found[0]["influences"]]
        assert [float(row["TracInScore"]) for row in table] == pytest.approx(scores, rel=1e-6)
        head, relation, tail = flags["--test-triple"].split()
        assert {(row["TestHead"], row["TestRel"], row["TestTail"]) for row in table} == {
            (head, relation, tail)
        }
    if "--node-name-dict" in flags:
        assert found[0]["influences"][0]["head_label"].startswith("name of ")


@pytest.mark.parametrize("line", BATCHES, ids=named)
def test_a_batch_leaves_files_for_each_triple_and_a_summary(reader: Reader, line: str) -> None:
    done = reader.typed(line)
    flags = flags_of(line)
    folder = flags["--output-dir"]
    many = reader.sizes["batch"]
    summary = reader.read(f"{folder}/batch_tracin_summary.json")
    assert (summary["total_triples"], summary["successful"], summary["failed"]) == (many, many, 0)
    kinds = [f"{'filtered.tsv' if '--skip-tracin' in flags else 'tracin.csv'}"]
    kinds += [kinds[0].replace("tsv", "json").replace("csv", "json")]
    names = {re.sub(r"(triple_\d+)_.*_(tracin|filtered)", r"\1_…_\2", name) for name in done.written}
    each = {f"{folder}/triple_{n:03d}_…_{kind}" for n in range(1, many + 1) for kind in kinds}
    assert names == {*each, f"{folder}/batch_tracin_summary.json", f"{folder}/{LEDGER}"}
    for one in summary["results"] if kinds[:1] == ["tracin.csv"] else []:
        kept = min(int(flags.get("--top-k", 10**9)), one["num_training_triples"])
        assert len(reader.csv(f"{folder}/{one['csv']}")) == kept
        assert len(reader.read(f"{folder}/{one['json']}")["influences"]) == kept


@pytest.mark.parametrize("line", REGRESSIONS, ids=named)
def test_a_regression_evaluates_and_writes_nothing_unasked(reader: Reader, line: str) -> None:
    done = reader.typed(line)
    assert done.written == frozenset()
    results = reader.desk.run(reader.number(line)) / "results"
    stages = json.loads((results / "test_results.json").read_text())
    flags = flags_of(line)
    held_out = ["loo flight_01", "loo flight_02"] if "--loo" in flags else []
    assert set(stages) == {"pretrain" if "--no_final" in flags else "final", *held_out}
    for one in stages.values():
        assert {"mae", "rmse", "r2"} <= set(one["model"])
    assert len((results / "predictions.tsv").read_text().splitlines()) > 1
    assert (results / "loo").is_dir() == ("--loo" in flags)
    assert (results / "pretrained_model.pt").is_file() == ("--no_pretrain" not in flags)


def options(reader: Reader, line: str) -> dict[str, tuple[str | None, str | None]]:
    """What took effect, and why nothing else did."""
    reader.typed(line)
    return {one["name"]: (one["applied"], one["reason"]) for one in reader.show(line)["option"]}


def test_what_buys_nothing_is_said(reader: Reader) -> None:
    mixed = next(line for line in TRAININGS if "--num-workers" in line)
    applied, reason = options(reader, mixed)["num_workers"]
    assert applied == "0" and reason and "nothing to load" in reason
    assert "there is nothing to load" in reader.desk.type(f"kgops show {reader.number(mixed)}").out
    found = options(reader, next(line for line in TRACINGS if "--use-torch-compile" in line))
    for name in ("gradient_checkpointing", "compile"):
        assert found[name][0] == "off" and found[name][1], name
    assert found["vectorized_gradients"][0] == "on" and found["devices"][0] == "1"


def test_a_second_training_into_a_folder_leaves_no_checkpoint_of_the_first(reader: Reader) -> None:
    """Nor its best model; what did not come from a run stays. Only with --force."""
    line = next(line for line in TRAININGS if "models/conve" in line)
    reader.typed(line)
    models = reader.desk.folder / "models"
    shutil.copytree(models / "conve", models / "again")
    (models / "again" / "mine.txt").write_text("mine")
    before = {path.name for path in (models / "again").rglob("*.sha256")}
    small = (
        "--num-epochs 4 --embedding-dim 16 --output-channels 2 --validate-every 0 --output-dir models/again"
    )
    went = reader.desk.type(f"kgops train --train data/train.txt {small}")
    assert went.code == 2 and "models/again already has best_model.pt" in went.err, went.err
    reader.desk.must(f"kgops train --train data/train.txt {small} --force")
    left = {path.name for path in (models / "again").rglob("*.pt")}
    assert left == {"final_model.pt", *(f"checkpoint_epoch_{n:07d}.pt" for n in (2, 4))}
    assert (models / "again" / "mine.txt").read_text() == "mine"
    gone = before - {path.name for path in (models / "again").rglob("*.sha256")}
    assert "best_model.pt.sha256" in gone
    told = reader.desk.type("kgops show last").out
    assert f"removed {len(gone)} models and checkpoints of an earlier run" in told


# --- what the tables say of single flags ----------------------------------------------------------


@pytest.fixture
def planned(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], dict[str, Any]]:
    """The job that a command line would start, in a folder with the files that are named."""
    monkeypatch.chdir(tmp_path)
    put_graph(tmp_path / "data")

    def plan(line: str) -> dict[str, Any]:
        capsys.readouterr()
        code = main([*shlex.split(line)[1:], "--dry-run"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return tomllib.loads(said.out)

    return plan


def test_every_script_has_its_commands_on_the_page() -> None:
    assert {shlex.split(old)[1] for old, _ in pairs()} == set(WORKLOADS)
    assert sorted(LINES) == sorted([*TRAININGS, *TRACINGS, *BATCHES, *REGRESSIONS])
    assert len(rows()) >= 15


@pytest.mark.parametrize(("old", "new"), pairs(), ids=[named(new) for _, new in pairs()])
def test_the_name_of_the_script_is_all_that_changes(old: str, new: str) -> None:
    python, script, *flags = shlex.split(old)
    assert python == "python"
    same_objective = ["--recipe", "script"] if script == "train_pytorch.py" else []
    assert shlex.split(new) == ["kgops", WORKLOADS[script], *same_objective, *flags]


@pytest.mark.parametrize(("script", "flag", "line"), rows(), ids=[f"{s} {f}" for s, f, _ in rows()])
def test_a_flag_becomes_what_the_table_says(
    planned: Callable[[str], dict[str, Any]], script: str, flag: str, line: str
) -> None:
    workload = WORKLOADS[script]
    job = planned(f"kgops {workload} {LEAST[script]} {flag}")
    ((name, value),) = tomllib.loads(line).items()
    found = job["options"].get(name, job[workload].get(name))
    assert found == value


NOWHERE = [row for row in rows() if not any(f" {row[1]}" in line for line in LINES)]


@pytest.mark.parametrize(("script", "flag", "line"), NOWHERE, ids=[f"{s} {f}" for s, f, _ in NOWHERE])
def test_a_flag_that_no_line_of_the_page_has_is_run_too(
    reader: Reader, script: str, flag: str, line: str
) -> None:
    reader.typed(TRACINGS[-1])
    went = reader.desk.type(f"kgops {WORKLOADS[script]} {LEAST[script]} {flag}")
    if flag == "--device cuda" and went.code:
        assert went.code == 2 and "a GPU was requested" in went.err, went.err
        return
    assert went.code == 0, went.err
    ((name, value),) = tomllib.loads(line).items()
    (run,) = json.loads(reader.desk.type("kgops runs --limit 1 --json").out)
    (one,) = (one for one in reader.desk.console.show(run["id"])["option"] if one["name"] == name)
    assert one["requested"] == {True: "on", False: "off"}.get(value, str(value))
    assert one["applied"] == one["requested"] or one["reason"], "it buys nothing, and nobody says so"
    if flag in ("--disable-vectorized-gradients", "--disable-test-gradient-caching"):
        assert one["applied"] == "on"
