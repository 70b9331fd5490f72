"""TracIn's benchmark compares like with like: every contender that claims the exact scores has them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import tracin as bench
from kgops.maths.graphs.triples import read_graph


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A graph of 30 entities as files."""
    draw = torch.Generator().manual_seed(0)
    columns = [torch.randint(n, (400,), generator=draw).tolist() for n in (30, 3, 30)]
    lines = sorted({f"e{h}\tr{r}\te{t}\n" for h, r, t in zip(*columns, strict=True)})
    (tmp_path / "train.txt").write_text("".join(lines))
    (tmp_path / "test.txt").write_text("".join(lines[:25]))
    return tmp_path


SMALL = ("--dim", "32", "--triples", "64", "--quick")


def test_all_methods_run_and_are_shown_as_ratios_to_the_plain_pass(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--data", str(data), *SMALL, "--tests", "1", "3"]) == 0
    told = capsys.readouterr().out
    for name in ("kgops, factored", "PyKEEN's model", "vmap", "for each test"):
        assert name in told


def test_whole_of_a_graph_is_scored_and_says_what_it_took(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--data", str(data), *SMALL, "--full", "0.5"]) == 0
    told = capsys.readouterr().out
    many = len(read_graph(data / "train.txt").train)
    assert f"{many} training x 12 test triples" in told and "peak RSS" in told
