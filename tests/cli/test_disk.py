"""What a run writes: predicted, refused where there is no room, and no file that nobody asked for."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Console
from tracing import files, first_test_triples, nations

CPU = ("--device", "cpu")


@pytest.fixture
def tracin(run_cli: Console, trained: Path) -> tuple[str | Path, ...]:
    """Words of a command that traces on the small training; what is traced comes behind."""
    data = [word for name in ("train", "valid") for word in (f"--{name}", files()[name])]
    return "run", "tracin", "--model-path", trained / "final_model.pt", *data, *CPU


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()} - {"manifest.json"}


def test_self_influence_is_written_as_json_and_csv_with_a_summary(
    run_cli: Console, tracin: tuple[str | Path, ...], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run_cli(
        *tracin, "--self-influence", "--output", out / "self.json", "--csv-output", out / "self.csv"
    )
    assert done.code == 0, done.err
    train = {tuple(line.split("\t")) for line in (nations() / "train.txt").read_text().splitlines()}
    body = json.loads((out / "self.json").read_text())
    found = body["self_influences"]
    assert {(one["head"], one["relation"], one["tail"]) for one in found} == train
    scores = [one["score"] for one in found]
    assert scores == sorted(scores, reverse=True)
    assert body["num_training_triples"] == len(train)
    assert body["summary"]["largest"] == pytest.approx(scores[0])
    assert body["summary"]["total"] == pytest.approx(sum(scores))
    assert body["summary"]["mean"] == pytest.approx(sum(scores) / len(scores))
    assert body["summary"]["largest_triple"]["head"] == found[0]["head"]
    table = rows(out / "self.csv")
    assert [float(row["TracInScore"]) for row in table] == scores
    assert f"self-influence of {len(train):,} training triples" in done.out
    asked = run_cli("influences", "1")
    assert asked.code == 2 and "self_influence" in asked.err


def test_json_of_a_test_triple_has_all_influences_unless_top_k(
    run_cli: Console, tracin: tuple[str | Path, ...], tmp_path: Path
) -> None:
    train = (nations() / "train.txt").read_text().splitlines()
    triple = ("--test-triple", ",".join(first_test_triples(1)[0]))
    for top_k, expected in ((None, len(train)), (7, 7)):
        few = () if top_k is None else ("--top-k", str(top_k))
        done = run_cli(*tracin, *triple, "--output", tmp_path / "x.json", *few, "--force")
        assert done.code == 0, done.err
        body = json.loads((tmp_path / "x.json").read_text())
        assert len(body["results"][0]["influences"]) == expected
        assert body["top_k"] == top_k
    assert expected < 1000 < len(train)


@pytest.mark.parametrize(
    ("asked", "left", "kept"),
    [
        ((), {"tracin.csv"}, 100),
        (("--output", "x.json"), {"tracin.json"}, None),
        (("--csv-output", "x.csv"), {"tracin.csv"}, None),
        (("--output-dir", "all"), {"tracin.json", "tracin.csv"}, None),
    ],
    ids=["nothing", "json", "csv", "folder"],
)
def test_a_run_writes_the_files_that_were_named_and_no_other(
    run_cli: Console,
    tracin: tuple[str | Path, ...],
    asked: tuple[str, ...],
    left: set[str],
    kept: int | None,
) -> None:
    triples = ("--test", files()["test"], "--max-triples", "2")
    done = run_cli(*tracin, *triples, *asked)
    assert done.code == 0, done.err
    results = run_cli.folder(1) / "results"
    assert names(results) == left
    if "tracin.csv" in left:
        trains = len((nations() / "train.txt").read_text().splitlines())
        assert len(rows(results / "tracin.csv")) == 2 * (kept or trains)
    if asked == ("--output-dir", "all"):
        assert names(run_cli.cwd / "all") == left | {"kgops-files.json"}
    shown = run_cli("influences", "1", "--test", "2", "--json", "--top-k", "3")
    assert len(shown.json()[0]["influences"]) >= 3


def test_the_record_says_where_the_rest_of_what_was_found_is(
    run_cli: Console, tracin: tuple[str | Path, ...]
) -> None:
    triples = ("--test-triple", ",".join(first_test_triples(1)[0]))
    assert run_cli(*tracin, *triples, "--csv-output", "x.csv").code == 0
    few = run_cli("influences", "1", "--top-k", "5")
    assert few.code == 0 and "strongest of each side" not in few.err
    many = run_cli("influences", "1", "--top-k", "500")
    assert "the 50 strongest of each side" in many.err and "results/tracin.csv" in many.err


# --- predicted and measured -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        ("--output", "x.json"),
        ("--csv-output", "x.csv"),
        ("--csv-output", "x.csv", "--top-k", "20"),
        ("--output-dir", "all", "--top-k", "300"),
        ("--self-influence", "--output", "self.json"),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_tracing_writes_what_was_predicted(
    run_cli: Console, tracin: tuple[str | Path, ...], asked: tuple[str, ...]
) -> None:
    what = () if "--self-influence" in asked else ("--test", files()["test"], "--max-triples", "60")
    assert run_cli(*tracin, *what, *asked).code == 0
    shown = run_cli.show(1)
    predicted, wrote = shown["plan"]["disk"]["total_mib"], shown["metric"]["disk_mib"]
    assert wrote == pytest.approx(predicted, rel=0.1)
    assert "MiB · predicted" in run_cli("show", "1").out


def test_a_training_writes_what_was_predicted(run_cli: Console) -> None:
    small = ("--embedding-dim", "64", "--output-channels", "8", "--num-epochs", "6")
    done = run_cli("run", "train", "--dataset", "nations", *small, "--output-dir", "out", *CPU)
    assert done.code == 0, done.err
    shown = run_cli.show(1)
    assert shown["metric"]["disk_mib"] == pytest.approx(shown["plan"]["disk"]["total_mib"], rel=0.1)
    assert shown["plan"]["disk"]["parts_mib"]["checkpoints for TracIn"] > 0


def test_a_pipeline_that_traces_its_answers_writes_no_more_than_predicted(run_cli: Console) -> None:
    """How many it traces is known before they are: each question has so many answers."""
    (run_cli.cwd / "p.toml").write_text(
        'workload = "pipeline"\n[pipeline.train]\ndataset = "nations"\nembedding_dim = 16\noutput_channels = 2\n'
        'num_epochs = 2\ndevice = "cpu"\nvalidate_every = 0\n'
        '[pipeline.predict]\nhead = "USA"\nrelation = "embassy"\ntop_k = 14\n[pipeline.tracin]\ntop_k = 300\n'
    )
    done = run_cli("run", "p.toml")
    assert done.code == 0, done.err
    shown = run_cli.show(1)
    predicted, wrote = shown["plan"]["disk"]["total_mib"], shown["metric"]["disk_mib"]
    assert shown["metric"]["tests"] == 14 and shown["plan"]["disk"]["at_most"]
    assert 0.7 * predicted < wrote <= predicted


# --- room -----------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight MiB."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "none", place], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("only root can mount a file system of its own here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_run_that_will_not_fit_on_a_disk_exits_3_with_what_would(
    run_cli: Console, tracin: tuple[str | Path, ...], small_disk: Path
) -> None:
    whole = ("--test", files()["test"], "--max-triples", "60", "--csv-output", small_disk / "x.csv")
    refused = run_cli(*tracin, *whole)
    assert refused.code == 3
    assert "would write" in refused.err and str(small_disk) in refused.err
    assert "--top-k 1000 would write" in refused.err and "--force" in refused.err
    assert run_cli("runs", "--json").out.strip() in ("", "[]")
    planned = run_cli(*tracin, *whole, "--dry-run")
    assert planned.code == 0 and "# disk: " in planned.out and str(small_disk) in planned.out
    suggested = run_cli("suggest", *tracin[1:], *whole)
    assert suggested.code == 3
    assert "nearest change that fits on the disk: --top-k 1000" in suggested.out
    table = run_cli("suggest", *tracin[1:], *whole, "--json").json()[0]["disk"]
    assert table["fits"] is False and len(table["places"]) == 2
    assert run_cli(*tracin, *whole, "--top-k", "1000").code == 0
    assert [path.name for path in small_disk.iterdir()] == ["x.csv"]
