"""`suggest tracin` counts what filtering would leave, as the run that filters then finds it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from driving import Console

from storage import influences
from storage.database import open_reader

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
PATIENT_S = 300.0  # counting loads torch, which takes a busy machine its time
TEST = "e3,r0,e5"


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty entities in a circle, each joined to the next two: few are near a test triple."""
    folder = tmp_path_factory.mktemp("ring")
    rows = [f"e{i}\tr{k - 1}\te{(i + k) % 60}" for i in range(60) for k in (1, 2)]
    (folder / "train.txt").write_text("\n".join(rows) + "\n")
    (folder / "test.txt").write_text("e3\tr0\te5\ne30\tr0\te33\n")
    return folder


@pytest.fixture
def trained(run_cli: Console, ring: Path) -> Console:
    files = ("--train", ring / "train.txt", "--test", ring / "test.txt")
    size = ("--num-epochs", "1", "--embedding-dim", "32", "--checkpoint-frequency", "1")
    done = run_cli("run", "train", *files, *size, env=ONE_THREAD, timeout_s=PATIENT_S)
    assert done.code == 0, done.err
    return run_cli


def test_the_triples_that_are_left_are_those_the_run_scores(trained: Console) -> None:
    (plan,) = trained(
        "suggest", "tracin", "--run", "1", "--test-triple", TEST, "--json", timeout_s=PATIENT_S
    ).json()
    told = plan["filtering"]
    assert (told["tests"], told["counted"], told["train"], told["is_asked"]) == (1, 1, 120, False)
    page = trained("suggest", "tracin", "--run", "1", "--test-triple", TEST, timeout_s=PATIENT_S).out
    (left,) = told["left"]
    assert 0 < left < 100
    assert f"keeps {left} of 120 training triples ({left / 120:.1%})" in page
    assert "changes results" in page
    run = trained(
        "run",
        "tracin",
        "--run",
        "1",
        "--test-triple",
        TEST,
        "--n-hops",
        "2",
        env=ONE_THREAD,
        timeout_s=PATIENT_S,
    )
    assert run.code == 0, run.err
    with closing(open_reader(trained.home / "kgops.db")) as conn:
        assert [one.candidates for one in influences.tests_of(conn, 2)] == [left]


def test_all_test_triples_are_counted_and_paths_leave_fewer(trained: Console) -> None:
    def told(*more: str) -> dict[str, object]:
        (plan,) = trained("suggest", "tracin", "--run", "1", *more, "--json", timeout_s=PATIENT_S).json()
        found: dict[str, object] = plan["filtering"]
        return found

    every = told()
    assert (every["tests"], every["counted"]) == (2, 2)
    left = every["left"]
    assert isinstance(left, list) and every["together"] == sum(left)  # they are far apart
    by_paths = told("--path-filtering", "--max-total-path-length", "2")
    assert by_paths["is_asked"] is True
    assert isinstance(by_paths["left"], list) and 0 < sum(by_paths["left"]) < sum(left)
