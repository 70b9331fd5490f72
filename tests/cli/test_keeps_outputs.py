"""`--output-dir` and `--output` of runs: nothing of a person, of another run or of the job's own inputs is lost."""

import json
import random
from pathlib import Path

import pytest
from driving import Console, is_clear
from foreign_files import Place

TINY = ("--num-epochs", "2", "--embedding-dim", "8", "--embedding-height", "2", "--output-channels", "2")
CPU = ("--device", "cpu")
TRAIN = ("run", "train", "--dataset", "nations", *TINY, *CPU)
ASKED = {
    "train": ("--dataset", "nations", *TINY, *CPU),
    "tracin": ("--dataset", "nations", "--max-triples", "1", *CPU),
    "predict": ("--dataset", "nations", "--head", "usa", "--relation", "embassy", *CPU),
}


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_ino, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "kgops-files.json"
    }


def refused(console: Console, *args: str | Path) -> str:
    """The error; no run was made."""
    runs = len(console("runs", "--json").json())
    done = console(*args)
    assert (done.code, is_clear(done.err)) == (2, True), (args, done.err)
    assert len(console("runs", "--json").json()) == runs
    return done.err


def test_output_folder_of_a_deleted_run_keeps_the_only_models(run_cli: Console) -> None:
    """Of tracin and predict that read them, and of another training; `--force` replaces what kgops wrote, no more."""
    out = run_cli.cwd / "out"
    assert run_cli(*TRAIN, "--output-dir", out).code == 0
    assert run_cli("delete", "1", "--yes").code == 0
    before = files(out)
    tracin = ("run", "tracin", *ASKED["tracin"], "--checkpoint-dir", "out/checkpoints", "--output-dir")
    predict = ("run", "predict", *ASKED["predict"], "--model-path", "out/best_model.pt", "--output-dir")
    for command in ((*tracin, "out"), (*predict, "out"), (*TRAIN, "--output-dir", "out")):
        assert "already has best_model.pt" in refused(run_cli, *command)
    for below in ("out/checkpoints", "out/checkpoints/new", "new/../out/checkpoints"):
        assert "which this job reads" in refused(run_cli, *tracin, below, "--force")
    assert files(out) == before
    evaluate = ("run", "evaluate", "--dataset", "nations", "--model-path", "out/best_model.pt", *CPU)
    asked = run_cli.cwd / "asked"
    for flags in ((), ("--force",)):
        run_cli.must(*evaluate, "--output-dir", asked, *flags)
    (asked / "test_results.json").write_text("mine")
    assert "has test_results.json, which" in refused(run_cli, *evaluate, "--output-dir", asked, "--force")
    run_cli.must(*predict, "out", "--force")
    after = files(out)
    assert {name: after[name] for name in before} == before and "predictions.csv" in after
    (out / "config.json").write_text("mine")
    assert "has config.json, which" in refused(run_cli, *TRAIN, "--output-dir", "out", "--force")
    (out / "config.json").unlink()
    (out / "notes.txt").write_text("mine")
    run_cli.must(*TRAIN, "--seed", "7", "--output-dir", "out", "--force")
    assert (out / "notes.txt").read_text() == "mine"
    assert files(out)["best_model.pt"] != before["best_model.pt"]
    written = json.loads((out / "kgops-files.json").read_text())
    assert written["run"].startswith(run_cli.folder(5).name) and "notes.txt" not in written["files"]


def test_outputs_in_homes_and_in_the_way_of_others_are_refused(run_cli: Console) -> None:
    assert run_cli(*TRAIN, "--output-dir", "mine").code == 0
    results = run_cli.folder(1) / "results"
    (run_cli.cwd / "to-run").symlink_to(results)
    (run_cli.cwd / "own.csv").write_text("mine")
    (run_cli.cwd / "link.csv").symlink_to(run_cli.cwd / "own.csv")
    before = files(run_cli.folder(1)) | files(run_cli.cwd)
    for where in (results, run_cli.home / "pending", run_cli.home / "runs" / "new", "to-run", "to-run/new"):
        assert "is in the kgops home" in refused(run_cli, *TRAIN, "--output-dir", where, "--force")
    predict = ("run", "predict", *ASKED["predict"], "--run", "1", "--output")
    assert "already exists" in refused(run_cli, *predict, "own.csv")
    assert "is a symbolic link" in refused(run_cli, *predict, "link.csv", "--force")
    assert files(run_cli.folder(1)) | files(run_cli.cwd) == before
    assert run_cli(*predict, "own.csv", "--force").code == 0
    assert (run_cli.cwd / "own.csv").read_text() != "mine"
    (run_cli.cwd / "job.toml").write_text(
        'workload = "train"\n[train]\ndataset = "nations"\noutput_dir = "o"'
    )
    sweep = ("run", "sweep", "job.toml", "--vary", "seed=1,2")
    assert "several runs of this sweep would write to" in refused(run_cli, *sweep)


def test_file_that_appears_during_a_run_is_kept_and_a_resume_only_copies(run_cli: Console) -> None:
    """A worker is refused what a console would be, when its turn comes; so is a second run for one folder."""
    run_cli.going("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done", flags=("--exclusive",))
    number = int(run_cli(*TRAIN, "--output-dir", "out", "--detach").out)
    assert f"run {number}, which is queued, writes to" in refused(run_cli, *TRAIN, "--output-dir", "./out")
    (run_cli.cwd / "out").mkdir()
    (run_cli.cwd / "out" / "best_model.pt").write_text("mine")
    (run_cli.cwd / "go").touch()
    ended = run_cli.ended(number)
    assert ended.state == "failed" and "already has best_model.pt" in (ended.reason or ""), ended
    assert (run_cli.cwd / "out" / "best_model.pt").read_text() == "mine"
    (run_cli.cwd / "out" / "best_model.pt").rename(run_cli.cwd / "kept")
    assert run_cli("resume", str(number)).code == 0
    assert run_cli.ended(number).state == "succeeded"
    assert (run_cli.cwd / "out" / "best_model.pt").stat().st_size > 100


def harm_of_random_commands(console: Console, count: int, seed: int) -> tuple[list[str], int]:
    """What whole runs did to files that are not theirs; and how many succeeded."""
    draw = random.Random(seed)
    console.must(*TRAIN)
    results = console.folder(1) / "results"
    place = Place(console.cwd / "place", results, draw, run=console.folder(1))
    harmed, succeeded = [], 0
    for number in range(count):
        command = place.command(("train", "tracin", "predict", "predict"))
        before = place.seen()
        done = console(*command.words(ASKED), cwd=place.root)
        after = place.seen()
        harmed += [f"{command}: {path}" for path in place.harmed(command, before, after)]
        assert "Traceback" not in done.err, done.err
        succeeded += done.code == 0
        place.note_written(before, after)
        if number % 20 == 19:
            place.meddle()
    return harmed, succeeded


@pytest.mark.timeout(600)
def test_random_commands_of_whole_runs_harm_no_file_of_others(run_cli: Console) -> None:
    harmed, succeeded = harm_of_random_commands(run_cli, 12, seed=5)
    assert harmed == []
    assert succeeded > 1
