"""What a new run can set: values as their options are declared, a pipeline by a job file that really works, filtering,
a regression as on the command line; and its plan, which is that of `suggest`."""

import shlex
import threading
from pathlib import Path

import numpy as np
import pytest
from disks import small_disk
from driving import Console, patience
from screen_driving import open_screens
from test_screens_new_run import opened, turn, write

from kgops.cli import run_regress
from kgops.present.draft_fields import BadField
from kgops.present.drafts import Draft, job_of
from kgops.present.what_if import Offers, WhatIf, startable, step
from kgops.settings import Home
from kgops.workloads import configurations
from screens import new_run_page
from screens.new_run import NewRun
from screens.new_run_plan import command_of
from storage.database import Connection


async def test_rate_seed_model_and_label_are_in_the_command_and_in_its_job(run_cli: Console) -> None:
    async with open_screens(run_cli.home, (160, 40), first=opened) as seen:
        await write(seen, "learning_rate", "0.02")
        await write(seen, "seed", "7")
        await write(seen, "label", "a try of mine")
        await turn(seen, "model", "TransE")
        await turn(seen, "optimizer", "adagrad")
        await seen.until_shows("--optimizer adagrad", "--label 'a try of mine'", "no memory estimate")
        await seen.press("y", shows="sent to the terminal: ")
        words = shlex.split(seen.app.clipboard)
        job = run_cli(*words[1:], "--dry-run", "--json").json()["job"]
        assert job["label"] == "a try of mine"
        wanted = {"engine": "pykeen", "model": "TransE", "learning_rate": 0.02, "seed": 7}
        assert wanted.items() <= job["train"].items()
        assert job["train"]["optimizer"] == "adagrad"


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
        ("regress", "config", "colab_optimised", "did you mean 'colab_optimized'?"),
        ("regress", "config", "missing.yaml", "missing.yaml"),
        ("regress", "data_directory", "nowhere", "nowhere"),
        ("regress", "epochs", "many", "expected a whole number, found 'many'"),
        ("regress", "epochs", "0", "must be at least 1, found 0"),
        ("regress", "architecture", "rnn", "must be one of"),
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


async def test_a_pipeline_is_planned_and_its_command_is_a_file_that_works(run_cli: Console) -> None:
    async with open_screens(run_cli.home, (160, 50), first=opened) as seen:
        await turn(seen, "workload", "pipeline")
        await turn(seen, "num_epochs", "1", by="left")
        await write(seen, "embedding_dim", "16")
        await write(seen, "max_triples", "2")
        await write(seen, "label", "both")
        await seen.until_shows("y writes this job file")  # the plan, which knows the option's values
        await seen.go_to("block")
        await seen.press("left", shows=("to spare", "kgops run ", "y writes this job file"))
        assert not (run_cli.home / "jobs").exists()
        await seen.press("y", shows="sent to the terminal: kgops run ")
        words = shlex.split(seen.app.clipboard)
        job = run_cli(*words[1:], "--dry-run", "--json").json()["job"]
        assert job["label"] == "both"
        assert job["options"]["block"] == 128
        assert job["pipeline"]["train"]["embedding_dim"] == 16
        assert job["pipeline"]["tracin"]["max_triples"] == 2
        before = Path(words[2]).read_text()
        await seen.press("x")
        await seen.until(lambda: not isinstance(seen.app.screen, NewRun), "the run's screen")
        await seen.until_shows("1 pipeline both")
        assert Path(words[2]).read_text() == before
    assert run_cli.ended(1).state == "succeeded"
    assert run_cli("influences", "1").code == 0


async def test_an_arrow_before_there_is_a_plan_is_answered(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, gate = WhatIf.answer, threading.Event()
    async with open_screens(home, (160, 50), first=opened) as seen:
        monkeypatch.setattr(WhatIf, "answer", lambda *given: (gate.wait(patience()), plan(*given))[1])
        await turn(seen, "workload", "pipeline")
        await seen.go_to("block")
        await seen.press("left")
        assert "its values come with the plan, which is not there yet" in seen.text
        gate.set()


@pytest.mark.parametrize("workload", ["train", "pipeline"])
def test_every_value_that_arrows_reach_is_one_of_the_option(home: Path, workload: str) -> None:
    draft = Draft(workload, {"data": "nations"}, gpu="t4")
    asks = WhatIf(Home(home))
    answer = asks.answer(draft)
    assert answer.options is not None and answer.trouble is None
    assert {"batch_size", *({"block", "tests_at_once"} if workload == "pipeline" else ())} <= set(
        answer.options
    )
    for option in answer.options.values():
        for by in (-1, 1):
            changed = draft.with_option(option.name, step(option, by))
            job_of(changed)  # raises where it is no value of the option
            assert asks.answer(changed).trouble is None, option


# --- filtering ---


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"n_hops": "3"}, {"n_hops": 3, "path_filtering": False}),
        ({"max_total_path_length": "4"}, {"n_hops": 2, "path_filtering": True, "max_total_path_length": 4}),
        ({"n_hops": "1", "strict": "ends"}, {"strict_hop_constraint": True, "strict_path_filtering": False}),
        (
            {"max_total_path_length": "3", "strict": "both"},
            {"strict_hop_constraint": True, "strict_path_filtering": True},
        ),
    ],
)
def test_a_field_of_filtering_turns_it_on(fields: dict[str, str], settings: dict[str, object]) -> None:
    traced = job_of(Draft("tracin", {"run": "1", **fields}))
    assert traced.options["filtering"] is True
    assert {name: traced.settings[name] for name in settings} == settings
    pipeline = job_of(Draft("pipeline", {"data": "nations", **fields}))
    assert pipeline.options["filtering"] is True
    assert {**settings, **pipeline.settings["tracin"]} == pipeline.settings["tracin"] | settings


# --- a regression ---


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    folder = tmp_path / "flights"
    folder.mkdir()
    for name in ("morning", "noon"):
        np.savez(folder / f"{name}.npz", frames=np.zeros((40, 16, 16), np.uint8))
    return folder


@pytest.mark.parametrize("config", configurations.names())
def test_a_draft_is_the_job_that_the_command_makes(config: str, flights: Path) -> None:
    given = {
        **dict.fromkeys(flag.name for flag in run_regress.FLAGS),
        "config": config,
        "data_directory": str(flights),
    }
    chosen = {"config": config, "data_directory": str(flights)}
    assert job_of(Draft("regress", chosen)) == run_regress.job_of({**given})
    given |= {"epochs": 7, "architecture": "gnn", "batch_size": 8, "memory_optimized": False}
    chosen |= {"epochs": "7", "architecture": "gnn"}
    draft = Draft("regress", chosen, {"batch_size": 8, "memory_optimized": False})
    assert job_of(draft) == run_regress.job_of(given)


def test_without_flights_there_is_a_plan_and_no_start(home: Path, conn: Connection) -> None:
    draft = Draft("regress", {"config": "colab_optimized"}, gpu="t4")
    answer = WhatIf(Home(home)).answer(draft)
    assert answer.planned is not None and answer.planned.predicted_mib
    with pytest.raises(BadField, match="the folder of flights is missing") as refused:
        startable(Home(home), conn, Draft("regress", {"config": "colab_optimized"}))
    assert refused.value.field == "data_directory"


async def test_a_regression_is_chosen_planned_and_started(run_cli: Console, flights: Path) -> None:
    async with open_screens(run_cli.home, (200, 60)) as seen:
        await seen.press("n", shows=("PLAN", "kgops train"))
        await turn(seen, "workload", "regress")
        await turn(seen, "config", "colab_optimized")
        await seen.until_shows("PLAN  flights: the folder of flights is missing")
        assert "the folder of flights is missing" in seen.row_of("flights")
        await seen.press("x")
        await seen.until(lambda: "flights is missing" in seen.lines()[-1], "why it cannot start")
        assert "start this run" not in seen.text
        await seen.go_to("architecture")
        await seen.press("right", "right")  # the first, then the next
        await write(seen, "data_directory", str(flights))
        await seen.until_shows("--architecture gnn", f"--data-directory {flights}", "to spare")
        await seen.press("x")
        await seen.until(lambda: not isinstance(seen.app.screen, NewRun), "the run's screen")
        await seen.until_shows("1 regress", "Record")
    assert run_cli("show", "1", "--json").json()["job"]["regress"]["architecture"] == "gnn"


NATIONS = {"data": "nations"}
DRAFTS = {
    "train on the CPU": Draft(fields=NATIONS, gpu="cpu"),
    "train on this machine": Draft(fields=NATIONS),
    "train on a T4": Draft(fields=NATIONS, gpu="t4"),
    "train on an A100": Draft(fields={"data": "umls"}, options={"batch_size": 512}, gpu="a100-40"),
    "a format that a CPU lacks": Draft(fields=NATIONS, options={"precision": "fp16"}, gpu="cpu"),
    "a rule": Draft(
        fields=NATIONS, options={"compile": "reduce-overhead", "gradient_checkpointing": True}, gpu="t4"
    ),
    "a model of PyKEEN": Draft(fields={**NATIONS, "model": "RotatE"}, gpu="t4"),
    "more than there is": Draft(fields={**NATIONS, "embedding_dim": "40000"}, gpu="t4"),
    "pipeline": Draft("pipeline", NATIONS, gpu="t4"),
    "pipeline on the CPU": Draft("pipeline", NATIONS, gpu="cpu"),
    "regress": Draft("regress", {"config": "colab_optimized"}, gpu="t4"),
    "regress on the CPU": Draft("regress", {"config": "colab_optimized"}, gpu="cpu"),
}
# The form offers them, and no worker of that job reports them.
NOT_IN_SUGGEST = {"grad_clip", "cuda_graphs", "tests_at_once"}


@pytest.mark.parametrize("name", DRAFTS)
def test_new_run_shows_each_option_as_suggest_does(run_cli: Console, tmp_path: Path, name: str) -> None:
    draft, home = DRAFTS[name], Home(run_cli.home)
    if draft.workload == "regress":
        np.savez(tmp_path / "morning.npz", frames=np.zeros((40, 16, 16), np.uint8))
        draft = draft.with_field("data_directory", str(tmp_path))
    answer = WhatIf(home).answer(draft)
    assert answer.trouble is None
    rows = new_run_page.rows(draft, Offers(), answer, new_run_page.WIDEST)
    here = cells(["".join(piece.text for piece in row.pieces) for row in rows], ("value", "why", "by"))
    there = of_suggest(run_cli, home, draft)
    assert set(here) - set(there) <= NOT_IN_SUGGEST
    shown = set(here) & set(there)
    assert {"precision", "batch_size", "gradient_checkpointing", "memory_cleanup"} <= shown
    for option in shown:
        value, why, by = here[option]
        assert (value, by) == there[option][:2], option
        assert there[option][2].startswith(why.rstrip("…")), option


def of_suggest(run_cli: Console, home: Home, draft: Draft) -> dict[str, tuple[str, ...]]:
    """Value, who chose it and why, of each option, from the page that the command of New run would have."""
    command = command_of(WhatIf(home).answer(draft), home)
    assert command is not None
    command.write(home)
    words = [word for word in shlex.split(command.text) if word not in ("kgops", "run", "suggest")]
    if "--gpu" not in words and draft.gpu is not None:  # the CPU
        words += ["--gpu", draft.gpu]
    page = run_cli("suggest", *words)
    return cells(page.out.splitlines(), ("VALUE", "BY", "WHY"))


def cells(lines: list[str], columns: tuple[str, str, str]) -> dict[str, tuple[str, ...]]:
    """What stands in those columns for each option."""
    at = next(i for i, line in enumerate(lines) if line.startswith("OPTION"))
    starts = [lines[at].index(column) for column in columns]
    found = {}
    for line in lines[at + 1 :]:
        if not line:
            break
        ends = (*starts[1:], None)
        found[line.split()[0]] = tuple(
            line[start:end].strip() for start, end in zip(starts, ends, strict=True)
        )
    return found


async def test_the_headline_says_that_a_disk_is_too_small(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=60m"):
        console = Console(tmp_path / "small" / "kgops", tmp_path)
        async with open_screens(console.home, first=opened) as seen:
            assert seen.row_of("PLAN").startswith("PLAN  does not fit on the disk, writes ")
            assert "to spare" not in seen.text
            await seen.until_shows("would write")
        planned = console("suggest", "train", "--dataset", "nations", "--num-epochs", "100")
        assert ": does not fit on the disk, writes " in planned.out.splitlines()[1]
        tried = console("run", "train", "--dataset", "nations", "--num-epochs", "100", "--dry-run")
        assert "# does not fit on the disk, writes " in tried.out and "fits now" not in tried.out


async def test_the_plan_follows_runs_that_others_start_and_stop(run_cli: Console) -> None:
    async with open_screens(run_cli.home, (160, 40), first=opened) as seen:
        await seen.until_shows("PLAN  fits now")
        alone = run_cli.detach("sleep", "600", flags=("--exclusive",))
        await seen.until_shows(f"would wait now for run {alone}")
        assert run_cli("stop", str(alone)).code == 0
        await seen.until_shows("PLAN  fits now")
