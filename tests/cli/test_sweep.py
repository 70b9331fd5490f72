"""A sweep starts a run for each combination, tagged and named, and starts none of them where one cannot be."""

import json
import sys
from pathlib import Path

import pytest
from driving import Console, Done


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    command = [sys.executable, "-I", "-S", "-c", "print('{a}', '{b}')"]
    path.write_text(f'workload = "exec"\nlabel = "small"\n[exec]\ncommand = {json.dumps(command)}\n')
    return path


def test_every_combination_is_a_run_with_its_settings_in_its_name(run_cli: Console, job: Path) -> None:
    done = run_cli.must("run", "sweep", job, "--vary", "a=1,2", "--vary", "b=x,y", "--tag", "mine", "--json")
    started = done.json()
    assert [one["settings"] for one in started] == ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"]
    for one in started:
        run = run_cli.ended(one["run"])
        assert run.state == "succeeded"
        assert run.label == f"small {one['settings']}"
        a, b = (word.partition("=")[2] for word in one["settings"].split())
        assert (run_cli.folder(one["run"]) / "worker.log").read_text().split() == [a, b]
        assert run_cli.show(one["run"])["tag"] == ["mine"]
    assert f"kgops compare {' '.join(str(one['run']) for one in started)}" in done.err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--vary", "nosuch=1,2"), "{nosuch}"),
        (("--vary", "a=1,1"), "twice"),
    ],
)
def test_what_cannot_be_swept_starts_nothing(
    run_cli: Console, job: Path, given: tuple[str, ...], says: str
) -> None:
    done = run_cli("run", "sweep", job, *given)
    assert done.code == 2
    assert says in done.err
    assert run_cli("runs", "--json").json() == []


JOBS = {
    "train": '[train]\ndataset = "nations"\nembedding_dim = 16\n',
    "pipeline": '[pipeline.train]\ndataset = "nations"\nembedding_dim = 16\n[pipeline.predict]\nhead = "usa"\n'
    'relation = "embassy"\n[pipeline.tracin]\ntop_k = 4\n',
}


def swept(run_cli: Console, workload: str, varied: str) -> Done:
    path = run_cli.cwd / "swept.toml"
    path.write_text(f'workload = "{workload}"\n{JOBS[workload]}')
    return run_cli("run", "sweep", path, "--vary", varied, "--dry-run", "--json")


@pytest.mark.parametrize(
    ("workload", "name", "stage"),
    [
        ("train", "seed", None),
        ("train", "train.seed", None),
        ("pipeline", "train.seed", "train"),
        ("pipeline", "pipeline.train.seed", "train"),
        ("pipeline", "predict.top_k", "predict"),
    ],
)
def test_a_key_is_swept_by_its_name_or_its_path(
    run_cli: Console, workload: str, name: str, stage: str | None
) -> None:
    done = swept(run_cli, workload, f"{name}=4,5")
    assert done.code == 0, done.err
    settings = [one["job"][workload] for one in done.json()]
    tables = [one[stage] if stage else one for one in settings]
    assert [table[name.rpartition(".")[2]] for table in tables] == [4, 5]


@pytest.mark.parametrize(
    ("varied", "says"),
    [
        ("batch_size=0", "options.batch_size"),
        ("num_epochs=0", "train.num_epochs"),
        ("nope=1", "train.nope: cannot be varied"),
        (f"batch_size={','.join(map(str, range(1, 66)))}", "--vary gives 65 combinations"),
    ],
)
def test_a_wrong_name_or_value_is_said_before_a_wrong_count(run_cli: Console, varied: str, says: str) -> None:
    done = swept(run_cli, "train", varied)
    assert done.code == 2
    assert says in done.err and "matrix" not in done.err


def test_a_dry_run_shows_each_run_and_starts_none(run_cli: Console, job: Path) -> None:
    asked = ("run", "sweep", job, "--vary", "a=1,2", "--vary", "b=x", "--label", "mine", "--dry-run")
    shown = run_cli.must(*asked)
    assert [line for line in shown.out.splitlines() if line in ("# a=1 b=x", "# a=2 b=x")] == [
        "# a=1 b=x",
        "# a=2 b=x",
    ]
    plans = run_cli(*asked, "--json").json()
    assert [(one["settings"], one["job"]["label"]) for one in plans] == [
        ("a=1 b=x", "mine a=1 b=x"),
        ("a=2 b=x", "mine a=2 b=x"),
    ]
    assert run_cli("runs", "--json").json() == []
