"""A regression is chosen on the screens as it is on the command line: a configuration, flights, what differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from driving import Console
from screen_driving import Seen, look
from test_screens_new_run import go_to, turn, write

from kgops.cli import run_regress
from kgops.errors import Usage
from kgops.present.draft_fields import BadField
from kgops.present.drafts import Draft, job_of
from kgops.present.what_if import WhatIf, startable
from kgops.settings import Home
from kgops.workloads import configurations
from screens.new_run import NewRun
from storage.database import Connection


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


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"config": "colab_optimised"}, "config"),
        ({"config": "missing.yaml"}, "config"),
        ({"data_directory": "nowhere"}, "data_directory"),
        ({"epochs": "many"}, "epochs"),
        ({"epochs": "0"}, "epochs"),
        ({"architecture": "rnn"}, "architecture"),
    ],
)
def test_a_mistake_is_of_the_field_it_stands_in(fields: dict[str, str], at: str) -> None:
    with pytest.raises(Usage) as refused:
        job_of(Draft("regress", fields))
    assert isinstance(refused.value, BadField)
    assert refused.value.field == at


def test_a_regression_is_chosen_planned_and_started(run_cli: Console, flights: Path) -> None:
    async def story(seen: Seen) -> None:
        await seen.press("n")
        await seen.until_shows("PLAN", "kgops train")
        await turn(seen, "workload", "regress")
        await turn(seen, "config", "colab_optimized")
        await seen.until_shows("PLAN  flights: the folder of flights is missing")
        assert "the folder of flights is missing" in seen.row_of("flights")
        await seen.press("x")
        await seen.until(lambda: "flights is missing" in seen.lines()[-1], "why it cannot start")
        assert "start this run" not in seen.text
        await go_to(seen, "architecture")
        await seen.press("right", "right")  # the first, then the next
        await write(seen, "data_directory", str(flights))
        await seen.until_shows("--architecture gnn", f"--data-directory {flights}", "to spare")
        await seen.press("x", "y")
        await seen.until(lambda: not isinstance(seen.app.screen, NewRun), "the run's screen")
        await seen.until_shows("1 regress", "Record")

    look(run_cli.home, story, (200, 60))
    assert run_cli("show", "1", "--json").json()["job"]["regress"]["architecture"] == "gnn"
