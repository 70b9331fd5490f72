"""What people type who know other tools: short forms, labels, filters, changed repetitions, and answers that help."""

from collections.abc import Iterator

import pytest
from driving import Console, end_all_of

from kgops.cli import ELSEWHERE, group
from kgops.cli import main as kgops

SMALL = "--num-epochs 1 --embedding-dim 16 --embedding-height 4 --embedding-width 4 --output-channels 4"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Run 1 is a training labelled `small`, tagged `keep`; runs 2 and 3 failed, run 4 succeeded."""
    folder = tmp_path_factory.mktemp("guessed")
    made = Console(folder / "home", folder)
    trained = made("train", "--dataset", "nations", *SMALL.split(), "--label", "small", "--tag", "keep")
    assert trained.code == 0, trained.err
    for code in (3, 4, 0):
        made("exec", "--label", "tried", "--tag", "old", "--", "sh", "-c", f"echo line {code}; exit {code}")
    yield made
    end_all_of(made.home)
    made.close()


@pytest.mark.parametrize("word", ELSEWHERE)
def test_a_word_of_another_tool_is_answered_with_the_command(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kgops([word]) == 2
    told = capsys.readouterr().err.split()
    assert told[told.index("kgops") + 1] in group.list_commands(None)  # type: ignore[arg-type]


def test_a_script_and_short_names_are_answered_with_the_right_words(console: Console) -> None:
    (console.cwd / "my.py").write_text("")
    assert "kgops exec -- python my.py --epochs 3" in console("run", "my.py", "--epochs", "3").err
    planned = console("train", "--model", "RotatE", "--dataset", "nations", "--dry-run", "--json").json()
    assert planned["job"]["train"]["engine"] == "pykeen"
    planned = console("train", "--dataset", "nations", "--lr=3", "--fp16", "--dry-run", "--json").json()[
        "job"
    ]
    assert planned["train"]["learning_rate"] == 3 and planned["options"]["precision"] == "fp16"
    planned = console("sweep", "1", "--vary", "lr=0.5", "--dry-run")
    assert planned.code == 0 and "learning_rate = 0.5" in planned.out
    for job in (
        ("train", "--dataset", "nations", "--epochs", "5", "--batch-size", "64,128"),
        ("small", "--batch-size=64,128"),
        ("small", "--vary", "batch_size=64,128"),
        ("--dataset", "nations", "--batch-size", "64,128"),
    ):
        planned = console("sweep", *job, "--dry-run", "--json")
        assert [one["job"]["options"]["batch_size"] for one in planned.json()] == [64, 128], planned.err
    assert "No such option" in console("sweep", "small", "--vary", "batch_size=64", "--seeds", "3").err
    assert 'workload = "pipeline"' in console("run", "pipeline").err
    assert "--relation: missing; give it with --head or --tail" in console("predict", "--head", "usa").err


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("explain small usa embassy china", {"triple": "usa\tembassy\tchina"}),
        ("predict 1 usa embassy --top-k 3", {"head": "usa", "relation": "embassy", "top_k": 3}),
        ("tracin 1", {}),
        ("evaluate last", {}),
    ],
)
def test_a_run_before_the_flags_is_the_model(console: Console, typed: str, asked: dict[str, object]) -> None:
    planned = console(*typed.split(), "--dry-run", "--json").json()["job"]
    settings = planned[planned["workload"]]
    assert {**settings, "run": 1, **asked} == settings


def test_a_dry_run_for_another_gpu_ends_with_the_command_that_plans_for_it(console: Console) -> None:
    lines = console("train", "--dataset", "nations", "--profile", "t4", "--dry-run").out.splitlines()
    assert lines[0].startswith("# Suggested for this CPU: fp16 off")
    assert lines[1] == "# The job has the requested values. The lines with → below say what applies here."
    planned = lines[-1].removeprefix("# to plan for a t4:  kgops ")
    assert planned == "suggest train --dataset nations --profile t4 --gpu t4"
    assert "on Tesla T4" in console(*planned.split()).out


def test_a_plan_without_a_workload_is_of_a_training(console: Console) -> None:
    (planned,) = console("suggest", "--dataset", "umls", "--gpu", "t4", "--json").json()
    assert planned["job"]["workload"] == "train" and planned["job"]["train"]["dataset"] == "umls"
    assert "Usage: kgops suggest" in console("suggest", "--help").out


@pytest.mark.parametrize("typed", ["run again 1", "rerun small", "again 1"])
def test_again_is_a_word_of_its_own(console: Console, typed: str) -> None:
    planned = console(*typed.split(), "--seed", "7", "--dry-run", "--json").json()["job"]
    assert planned["label"] == "small seed=7" and planned["train"]["seed"] == 7


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("delete --cancelled --yes", "'state:cancelled'"),
        ("delete --status cancelled --yes", "'state:cancelled'"),
        ("delete --state cancelled --older-than=30d --yes", "'state:cancelled older:30d'"),
        ("stop --tag night --grace 5", "'tag:night'"),
        ("export --tag night --to csv", "'tag:night'"),
    ],
)
def test_a_flag_that_selects_runs_is_read_as_the_filter(console: Console, typed: str, meant: str) -> None:
    done = console(*typed.split())
    assert done.code == 2 and f"no run matches {meant}" in done.err
    assert "No such option '--state'." in console("delete", "4", "--state", "failed").err, "4 or failed?"


def test_all_runs_are_exported_and_a_file_has_the_table_of_runs(console: Console) -> None:
    for words in (("export",), ("export", "all"), ("export", "run>0")):
        done = console(*words, "--format", "csv", "--output", "runs.csv", "--force")
        lines = (console.cwd / "runs.csv").read_text().splitlines()
        assert done.code == 0 and [line.split(",")[0] for line in lines] == ["id", "1", "2", "3", "4"]
    for typed in (
        "export --all --output runs.csv",
        "export runs.csv",
        "export -o runs.csv",
        "export --csv runs.csv",
    ):
        assert console(*typed.split(), "--force").code == 0
    assert len((console.cwd / "runs.csv").read_text().splitlines()) == 5
    assert "kgops export --to csv" in console("export", "1").err
    assert len(console("runs", "all", "--json").json()) == 4
    for words in (("--status", "queued"), ("--running",), ("--tag", "none"), ("--older", "30d")):
        assert console("runs", *words, "--json").json() == []
    assert "`all` or a filter such as state:failed" in console("export", "nope", "--to", "json").err


def test_a_run_is_named_by_its_label_and_the_newest_training_by_last(console: Console) -> None:
    assert console("show", "small").out.startswith("run 1 ")
    several = console("show", "tried")
    assert several.code == 2 and "4, 3, 2" in several.err
    for name in ("last", "small", "1"):
        planned = console(
            "predict", "--run", name, "--head", "usa", "--relation", "embassy", "--dry-run", "--json"
        )
        assert planned.json()["job"]["predict"]["run"] == 1
    far = console("predict", "--run", "last", "--host", "lab1", "--head", "usa", "--relation", "embassy")
    assert far.code == 2 and "give its number on lab1" in far.err


def test_commands_take_filters(console: Console) -> None:
    assert [run["id"] for run in console("runs", "failed", "--json").json()] == [3, 2]
    compared = console("compare", "tag:old").out.splitlines()[0].split()
    assert compared == ["2", "tried", "3", "tried", "4", "tried"]
    assert console("export", "tag:old", "older:0s", "--to", "json", "--output", "old.json").code == 0
    nothing = console("delete", "tag:none-has-it", "--yes")
    assert nothing.code == 2 and "no run matches 'tag:none-has-it'" in nothing.err
    asleep = int(console("exec", "--detach", "--tag", "night", "--", "sleep", "600").out)
    assert console("delete", "tag:night", "--yes").code == 2, "a filter deletes no run that goes on"
    stopped = console("stop", "tag:night", "tag:old")
    assert stopped.code == 2 and "no run matches 'tag:old'" in stopped.err
    assert console("stop", "tag:night").out == f"run {asleep}: cancelled\n"
    refused = console("delete", "failed")
    assert refused.code == 2 and refused.out == "run 2  failed  tried\nrun 3  failed  tried\n"
    assert console("delete", "failed", "--yes").out == "run 2 deleted\nrun 3 deleted\n"


def test_a_list_is_sorted_by_a_metric_that_no_run_has_yet(console: Console) -> None:
    """As right after a sweep was started; a metric that nobody reports is still refused."""
    listed = console("runs", "tag:old", "--sort", "test_mrr")
    assert listed.code == 0 and "exec" in listed.out
    assert "cannot sort by 'test_mr'; did you mean 'test_mrr'?" in console("runs", "--sort", "test_mr").err


def test_a_gpu_of_several_sizes_is_answered_with_each(console: Console) -> None:
    told = console("suggest", "train", "--dataset", "nations", "--gpu", "a100").err
    assert "did you mean 'a100-40' or 'a100-80'?" in told


def test_a_tracing_of_a_run_is_planned_from_what_that_run_left(console: Console) -> None:
    (found,) = console("suggest", "tracin", "--run", "1", "--gpu", "h100", "--json").json()
    assert found["unknown"] is None
    assert found["estimate"]["parts_mib"]["factors"] > 0
    shared = console("suggest", "tracin", "--run", "1", "--devices", "2").out
    assert "of one process;" in shared and "unknown: no run like it was measured" in shared


def test_the_log_of_a_training_has_its_validations(console: Console) -> None:
    lines = console("logs", "small", "--grep", "epoch 1").out.splitlines()
    assert lines[0].startswith("epoch 1: loss ") and lines[1].startswith("epoch 1: valid_mrr ")
