"""A sweep starts a run for each combination, tagged and named, and starts none of them where one cannot be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from driving import Console


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    command = [sys.executable, "-I", "-S", "-c", "print('{a}', '{b}')"]
    path.write_text(f'workload = "exec"\nlabel = "small"\n[exec]\ncommand = {json.dumps(command)}\n')
    return path


def test_every_combination_is_a_run_with_its_settings_in_its_name(run_cli: Console, job: Path) -> None:
    done = run_cli("run", "sweep", job, "--vary", "a=1,2", "--vary", "b=x,y", "--tag", "mine", "--json")
    assert done.code == 0, done.err
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
        (("--vary", "a=1,2", "--label", "x"), "label"),
    ],
)
def test_what_cannot_be_swept_starts_nothing(
    run_cli: Console, job: Path, given: tuple[str, ...], says: str
) -> None:
    done = run_cli("run", "sweep", job, *given)
    assert done.code == 2
    assert says in done.err
    assert run_cli("runs", "--json").json() == []
