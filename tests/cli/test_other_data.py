"""Other triples under the same names: a third of the training file is gone, and no entity and no relation with it."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from driving import Console, wait_for
from recording import events
from tracing import FILES, nations

TRAIN = (nations() / "train.txt").read_text().splitlines(keepends=True)


def with_names_kept(lines: list[str]) -> list[str]:
    """Without a third of the lines, but for each relation's first."""
    seen: set[str] = set()
    kept = []
    for number, line in enumerate(lines):
        relation = line.split("\t")[1]
        if relation not in seen or number % 3:
            kept.append(line)
        seen.add(relation)
    return kept


FEWER = with_names_kept(TRAIN)
OTHER = f"has other training triples than in the training: 1,592 then, {len(FEWER):,} now"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A folder of files that a test may write to."""
    folder = tmp_path / "graph"
    folder.mkdir()
    for name in FILES:
        shutil.copy(nations() / f"{name}.txt", folder / f"{name}.txt")
    return folder


def named(graph: Path, train: str = "train.txt") -> list[str | Path]:
    return ["--train", graph / train, "--valid", graph / "valid.txt", "--test", graph / "test.txt"]


QUESTIONS = {
    "tracin": ("--max-triples", "1"),
    "predict": ("--head", "usa", "--relation", "embassy"),
    "explain": ("--triple", "usa", "embassy", "china"),
}


@pytest.mark.parametrize("workload", QUESTIONS)
def test_a_model_is_asked_about_the_triples_it_was_trained_on(
    run_cli: Console, trained: Path, graph: Path, workload: str
) -> None:
    model = ("run", workload, "--checkpoint-dir", trained / "checkpoints", "--device", "cpu")
    (graph / "train.txt").write_text("".join(FEWER))
    refused = run_cli(*model, *named(graph), *QUESTIONS[workload])
    assert refused.code == 1
    assert f"Error: {graph / 'train.txt'} {OTHER}." in refused.err and "Hint: " in refused.err
    run_cli.must(*model, *named(graph), *QUESTIONS[workload], "--force")
    assert any(f"{OTHER}; --force takes them." in note["text"] for note in events(run_cli.folder(2), "note"))
    # The same lines in another order, packed, are the same data.
    (graph / "train.txt.gz").write_bytes(gzip.compress("".join(reversed(TRAIN)).encode()))
    same = run_cli(*model, *named(graph, "train.txt.gz"), *QUESTIONS[workload])
    assert (same.code, "has other" in same.err) == (0, False), same.err


SMALL = ("--embedding-dim", "16", "--output-channels", "2", "--device", "cpu", "--validate-every", "0")


def test_a_run_that_repeats_another_says_that_the_data_have_changed(run_cli: Console, graph: Path) -> None:
    train = ("run", "train", *named(graph), *SMALL, "--num-epochs", "1")
    assert run_cli(*train).code == 0
    unchanged = run_cli("run", "--again", "1")
    assert (unchanged.code, "changed since" in unchanged.err) == (0, False)
    (graph / "train.txt").write_text("".join(FEWER))
    again = run_cli("run", "--again", "1")
    change = f"training triples: 1,592 then, {len(FEWER):,} now"
    assert f"note: the data have changed since run 1, which this run repeats: {change}.\n" in again.err
    # The record has both: for people, as JSON and in a report, and beside the model.
    first, third = (run_cli.show(number)["data"]["train"] for number in (1, 3))
    assert (first.partition(":")[0], third.partition(":")[0]) == ("1592", str(len(FEWER)))
    config = json.loads((run_cli.folder(1) / "results" / "config.json").read_text())
    assert config["digests"] == run_cli.show(1)["data"]
    line = f"1,592 training triples ({first[5:13]}) · 199 validation triples"
    assert line in run_cli("show", "1").out
    assert run_cli("report", "1", "--output", graph / "report.html").code == 0
    assert line in (graph / "report.html").read_text()
    rows = run_cli("compare", "1", "2", "3", "--json").json()["settings"]
    assert rows["training triples"] == [f"1,592 ({first[5:13]})"] * 2 + [f"{len(FEWER):,} ({third[5:13]})"]
    assert "training triples" not in run_cli("compare", "1", "2").out
    assert "training triples" in run_cli("compare", "1", "3").out


def test_a_training_goes_on_with_its_own_triples_alone(run_cli: Console, graph: Path) -> None:
    endless = ("run", "train", "--detach", *named(graph), *SMALL, "--num-epochs", "1000000")
    assert run_cli(*endless).code == 0
    wait_for(lambda: events(run_cli.folder(1), "metric"), "an epoch")
    assert run_cli("stop", "1").code == 0
    for name, fewer, title in (("train", FEWER, "training"), ("valid", None, "validation")):
        whole = (graph / f"{name}.txt").read_text()
        lines = whole.splitlines(keepends=True)
        less = fewer or lines[1:]
        (graph / f"{name}.txt").write_text("".join(less))
        refused = run_cli("resume", "1")
        assert refused.code == 1
        counts = f"{len(lines):,} then, {len(less):,} now"
        assert f"{name}.txt has other {title} triples than in the training: {counts}." in refused.err
        (graph / f"{name}.txt").write_text("".join(reversed(lines)))
    assert run_cli("resume", "1", "--detach").code == 0
    wait_for(
        lambda: any(note["text"].startswith("resumed after") for note in events(run_cli.folder(1), "note")),
        "the training to go on",
    )
    assert run_cli("stop", "1").code == 0
