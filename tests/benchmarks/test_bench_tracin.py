"""TracIn's benchmark compares like with like: every contender that claims the exact scores has them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import tracin as bench
from kgops.maths.graphs.triples import read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N
from kgops.maths.tracin.scan import AllScores, scan
from kgops.maths.trials.tracin_variants import one_by_one, vectorised
from kgops.workloads.train.job import ConvEConfig


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


def test_a_filtered_batch_is_measured(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--data", str(data), *SMALL, "--batch"]) == 0
    told = capsys.readouterr().out
    assert "filtering" in told and "all of it" in told


def test_every_way_of_our_own_gives_the_scores_it_is_timed_for() -> None:
    torch.manual_seed(0)
    model = ConvE(ConvEConfig(40, 3, embedding_dim=32, embedding_height=8, embedding_width=4)).eval()
    train = torch.stack([torch.randint(n, (12,)) for n in (40, 3, 40)], dim=1)
    sink = AllScores(4, 12, like=model.entities)
    scan([TracinCheckpoint(model, 1.0)], ONE_TO_N, train, train[:4], sink)
    plain = one_by_one(list(model.parameters()), lambda r: model(r[:1], r[1:2])[0], ONE_TO_N, train[:4])
    for found in (plain(train), vectorised(model, ONE_TO_N, train[:4])(train)):
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, sink.scores, rtol=0, atol=1e-5 * float(sink.scores.abs().max()))


def test_whole_of_a_graph_is_scored_and_says_what_it_took(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--data", str(data), *SMALL, "--full", "0.5"]) == 0
    told = capsys.readouterr().out
    many = len(read_graph(data / "train.txt").train)
    assert f"{many} training x 12 test triples" in told and "peak RSS" in told
