"""What people type who know other tools: short forms, labels, filters, changed repetitions, and answers that help."""

from __future__ import annotations

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
    assert "Use --learning-rate." in console("train", "--lr", "3").err
    planned = console("sweep", "1", "--vary", "lr=0.5", "--dry-run")
    assert planned.code == 0 and "learning_rate = 0.5" in planned.out
    for job in (("train", "--dataset", "nations", "--seed", "3"), ("small",)):
        planned = console("sweep", *job, "--vary", "batch_size=64,128", "--dry-run", "--json")
        assert [one["job"]["options"]["batch_size"] for one in planned.json()] == [64, 128], planned.err
    assert "No such option" in console("sweep", "small", "--vary", "batch_size=64", "--seeds", "3").err
    assert 'workload = "pipeline"' in console("run", "pipeline").err
    assert "--relation: missing; give it with --head or --tail" in console("predict", "--head", "usa").err


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
    assert console("delete", "failed", "--yes").out == "run 2 deleted\nrun 3 deleted\n"
