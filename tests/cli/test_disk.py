"""What a run writes: predicted, refused where there is no room, and no file that nobody asked for."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import small_disk
from driving import Console
from tracing import files, nations

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


@pytest.mark.parametrize(
    ("asked", "left", "kept"),
    [
        ((), {"tracin.csv"}, 100),
        (("--output", "x.json"), {"tracin.json"}, None),
        (("--csv-output", "x.csv"), {"tracin.csv"}, None),
        (("--csv-output", "x.csv", "--top-k", "20"), {"tracin.csv"}, 20),
        (("--output-dir", "all", "--top-k", "300"), {"tracin.json", "tracin.csv"}, 300),
    ],
    ids=["nothing", "json", "csv", "few", "folder"],
)
def test_a_run_writes_the_files_that_were_named_no_other_and_as_much_as_was_predicted(
    run_cli: Console,
    tracin: tuple[str | Path, ...],
    asked: tuple[str, ...],
    left: set[str],
    kept: int | None,
) -> None:
    run_cli.must(*tracin, "--test", files()["test"], "--max-triples", "60", *asked)
    results = run_cli.folder(1) / "results"
    assert names(results) == left
    if "tracin.csv" in left:
        trains = len((nations() / "train.txt").read_text().splitlines())
        assert len(rows(results / "tracin.csv")) == 60 * (kept or trains)
    if "--output-dir" in asked:
        assert names(run_cli.cwd / "all") == left | {"kgops-files.json"}
    shown = run_cli("influences", "1", "--test", "2", "--json", "--top-k", "3")
    assert len(shown.json()[0]["influences"]) >= 3
    assert "strongest of each side" not in shown.err
    writes_what_was_predicted(run_cli)
    if kept is None:  # the record has less, and says where the rest is
        (file,) = left
        many = run_cli("influences", "1", "--test", "2", "--top-k", "500")
        assert "the 50 strongest of each side" in many.err and f"results/{file}" in many.err


def writes_what_was_predicted(run_cli: Console) -> None:
    shown = run_cli.show(1)
    assert shown["metric"]["disk_mib"] == pytest.approx(shown["plan"]["disk"]["total_mib"], rel=0.1)
    assert "MiB · predicted" in run_cli("show", "1").out


# --- predicted and measured -----------------------------------------------------------------------


def test_self_influences_take_what_was_predicted(run_cli: Console, tracin: tuple[str | Path, ...]) -> None:
    run_cli.must(*tracin, "--self-influence", "--output", "self.json")
    writes_what_was_predicted(run_cli)


def test_a_training_writes_what_was_predicted(run_cli: Console) -> None:
    small = ("--embedding-dim", "64", "--output-channels", "8", "--num-epochs", "6")
    run_cli.must("run", "train", "--dataset", "nations", *small, "--output-dir", "out", *CPU)
    writes_what_was_predicted(run_cli)
    assert run_cli.show(1)["plan"]["disk"]["parts_mib"]["checkpoints for TracIn"] > 0


def test_a_pipeline_that_traces_its_answers_writes_no_more_than_predicted(run_cli: Console) -> None:
    """How many it traces is known before they are: each question has so many answers."""
    (run_cli.cwd / "p.toml").write_text(
        'workload = "pipeline"\n[pipeline.train]\ndataset = "nations"\nembedding_dim = 16\noutput_channels = 2\n'
        'num_epochs = 2\ndevice = "cpu"\nvalidate_every = 0\n'
        '[pipeline.predict]\nhead = "USA"\nrelation = "embassy"\ntop_k = 14\n[pipeline.tracin]\ntop_k = 300\n'
    )
    run_cli.must("run", "p.toml")
    shown = run_cli.show(1)
    predicted, wrote = shown["plan"]["disk"]["total_mib"], shown["metric"]["disk_mib"]
    assert shown["metric"]["tests"] == 14 and shown["plan"]["disk"]["at_most"]
    assert 0.7 * predicted < wrote <= predicted


# --- room -----------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight MiB."""
    with small_disk(tmp_path / "small", "size=8m") as disk:
        yield disk.path


def test_a_run_that_will_not_fit_on_a_disk_exits_3_with_what_would(
    run_cli: Console, tracin: tuple[str | Path, ...], place: Path
) -> None:
    whole = ("--test", files()["test"], "--max-triples", "60", "--csv-output", place / "x.csv")
    refused = run_cli(*tracin, *whole)
    assert refused.code == 3
    assert "would write" in refused.err and str(place) in refused.err
    assert "--top-k 1000 would write" in refused.err and "--force" in refused.err
    assert run_cli("runs", "--json").out.strip() in ("", "[]")
    planned = run_cli(*tracin, *whole, "--dry-run")
    assert planned.code == 0 and "# disk: " in planned.out and str(place) in planned.out
    suggested = run_cli("suggest", *tracin[1:], *whole)
    assert suggested.code == 3
    assert "nearest change that fits on the disk: --top-k 1000" in suggested.out
    table = run_cli("suggest", *tracin[1:], *whole, "--json").json()[0]["disk"]
    assert table["fits"] is False and len(table["places"]) == 2
    assert run_cli(*tracin, *whole, "--top-k", "1000").code == 0
    assert [path.name for path in place.iterdir()] == ["x.csv"]
