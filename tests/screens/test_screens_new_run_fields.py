"""What a new run can set: values as their options are declared, and a pipeline by a job file that really works."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from driving import Console
from screen_driving import Seen, look
from test_screens_new_run import go_to, opened, turn, write

from kgops.present.draft_fields import BadField
from kgops.present.drafts import Draft, job_of
from kgops.present.what_if import WhatIf, step
from kgops.settings import Home
from screens.new_run import NewRun


def test_rate_seed_model_and_label_are_in_the_command_and_in_its_job(run_cli: Console) -> None:
    async def story(seen: Seen) -> None:
        await opened(seen)
        await write(seen, "learning_rate", "0.02")
        await write(seen, "seed", "7")
        await write(seen, "label", "a try of mine")
        await turn(seen, "model", "TransE")
        await turn(seen, "optimizer", "adagrad")
        await seen.until_shows("--optimizer adagrad", "--label 'a try of mine'", "no memory estimate")
        await seen.press("y")
        await seen.until_shows("sent to the terminal: ")
        words = shlex.split(seen.app.clipboard)
        job = run_cli(*words[1:], "--dry-run", "--json").json()["job"]
        assert job["label"] == "a try of mine"
        wanted = {"engine": "pykeen", "model": "TransE", "learning_rate": 0.02, "seed": 7}
        assert wanted.items() <= job["train"].items()
        assert job["train"]["optimizer"] == "adagrad"

    look(run_cli.home, story, (160, 40))


@pytest.mark.parametrize(
    ("workload", "field", "text", "why"),
    [
        ("train", "learning_rate", "fast", "expected a number, found 'fast'"),
        ("train", "learning_rate", "-1", "must be above 0, found -1"),
        ("train", "learning_rate", "nan", "must be a finite number"),
        ("train", "seed", "0.5", "expected a whole number, found '0.5'"),
        ("train", "seed", "-3", "must be at least 0, found -3"),
        ("train", "optimizer", "lion", "must be one of adam, adamw, adagrad, sgd; found 'lion'"),
        ("train", "loss", "hinge", "must be one of kvsall-bce"),
        ("train", "label", "x" * 101, "longer than 100 characters"),
        ("train", "num_epochs", "9" * 30, "must be at most"),
        ("pipeline", "max_triples", "0", "must be at least 1, found 0"),
        ("pipeline", "top_k", "few", "expected a whole number, found 'few'"),
        ("regress", "learning_rate", "0", "must be above 0, found 0"),
        ("tracin", "test_triple", "vitamin treats", "must be head, relation and tail"),
        ("exec", "label", "y" * 101, "longer than 100 characters"),
    ],
)
def test_a_wrong_value_says_why_at_its_field(workload: str, field: str, text: str, why: str) -> None:
    fields = {"data": "nations", "command": "true", "run": "1", field: text}
    with pytest.raises(BadField) as wrong:
        job_of(Draft(workload, fields))
    assert wrong.value.field == field
    assert why in wrong.value.message


def test_a_pipeline_is_planned_and_its_command_is_a_file_that_works(run_cli: Console) -> None:
    async def story(seen: Seen) -> None:
        await opened(seen)
        await turn(seen, "workload", "pipeline")
        await turn(seen, "num_epochs", "1", by="left")
        await write(seen, "embedding_dim", "16")
        await write(seen, "max_triples", "2")
        await write(seen, "label", "both")
        await go_to(seen, "block")
        await seen.press("left")
        await seen.until_shows("to spare", "kgops run ", "y writes this job file")
        assert not (run_cli.home / "jobs").exists()
        await seen.press("y")
        await seen.until_shows("sent to the terminal: kgops run ")
        words = shlex.split(seen.app.clipboard)
        job = run_cli(*words[1:], "--dry-run", "--json").json()["job"]
        assert job["label"] == "both"
        assert job["options"]["block"] == 128
        assert job["pipeline"]["train"]["embedding_dim"] == 16
        assert job["pipeline"]["tracin"]["max_triples"] == 2
        before = Path(words[2]).read_text()
        await seen.press("x", "y")
        await seen.until(lambda: not isinstance(seen.app.screen, NewRun), "the run's screen")
        await seen.until_shows("1 pipeline both")
        assert Path(words[2]).read_text() == before

    look(run_cli.home, story, (160, 50))
    assert run_cli.ended(1).state == "succeeded"
    assert run_cli("influences", "1").code == 0


def test_every_value_that_arrows_reach_in_a_pipeline_is_one(home: Path) -> None:
    draft = Draft("pipeline", {"data": "nations"}, gpu="t4")
    asks = WhatIf(Home(home))
    answer = asks.answer(draft)
    assert answer.options is not None and answer.trouble is None
    assert {"batch_size", "block", "tests_at_once"} <= set(answer.options)
    for option in answer.options.values():
        for by in (-1, 1):
            changed = draft.with_option(option.name, step(option, by))
            assert asks.answer(changed).trouble is None, option
