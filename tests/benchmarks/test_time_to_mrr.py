"""The benchmark of the time to a test MRR: both trainings end where they reach it, without it they go on to the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import time_to_mrr as bench
from kgops.graphs.triples import read_pykeen_dataset


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Nations as if it were the recipe's graph."""
    graph, folder = read_pykeen_dataset("nations"), tmp_path / "fb15k-237"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        lines = [f"e{h}\tr{r}\te{t}\n" for h, r, t in getattr(graph, split).tolist()]
        (folder / f"{split}.txt").write_text("".join(lines))
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning", "ignore:The epoch parameter:UserWarning")
def test_both_end_after_the_epoch_that_reaches_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--data", str(data), "--pykeen-epochs", "4")
    assert bench.main([*where, "--mrr", "0.1", "--epochs", "4"]) == 0
    told = capsys.readouterr().out
    for name in ("kgops", "PyKEEN, patched"):
        assert f"{name}: test MRR 0.1 reached after 1 epoch " in told
    assert "PyKEEN patched / kgops, until 0.1" in told
    assert bench.main([*where, "--mrr", "0.99", "--epochs", "2", "--pykeen-loss", "bce"]) == 0
    told = capsys.readouterr().out
    assert "kgops: test MRR 0.99 not reached after 2 epochs" in told
    assert "PyKEEN, patched: test MRR 0.99 not reached after 4 epochs" in told
    assert "PyKEEN patched / kgops" not in told
