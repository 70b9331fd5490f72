"""The benchmark of explanations: every method's sets are of the head, are removed, and are trained again without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import explain as bench


def test_each_method_is_measured_by_training_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    words = "--dataset nations --epochs 3 --tests 5 --seeds 2 --embedding-dim 16 --max-facts 2"
    assert bench.main([*words.split(), "--json", str(out)]) == 0
    rows = {row["method"]: row for row in json.loads(out.read_text())}
    assert next(iter(rows)) == "none, another seed" and len(rows) == 7
    assert rows["none, another seed"]["removed"] == 0
    for name, row in rows.items():
        most = 0 if name.startswith("none") else int(name[-1])
        assert row["mean_size"] <= most and row["removed"] <= 5 * most
        assert len(row["hits_at_1"]) == len(row["mrr"]) == 2
        assert all(0 < value <= 1 for value in row["mrr"])
        assert row["same_pair"] <= 5 * most
    assert rows["random of the head, 2"]["removed"] > 0
    assert "newton, 2" in capsys.readouterr().out
