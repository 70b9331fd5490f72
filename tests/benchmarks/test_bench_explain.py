"""The benchmark of explanations: every method's sets are removed and trained again without; scores are compared."""

import json
from pathlib import Path

import pytest

from benchmarks import explain as bench

pytestmark = pytest.mark.long


def test_each_method_is_measured_by_training_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    words = "--dataset nations --epochs 2 --tests 5 --seeds 1 --embedding-dim 16 --max-facts 2"
    assert bench.main([*words.split(), "--json", str(out)]) == 0
    rows = {row["method"]: row for row in json.loads(out.read_text())}
    assert next(iter(rows)) == "none, another seed" and len(rows) == 2 + 9 * 2 + 2
    assert rows["none, another seed"]["removed"] == 0
    whole, less = rows["explain, smallest of 2"], rows.pop("explain, smallest of 2, less one fact")
    assert whole["mean_size"] <= rows["explain, 2"]["mean_size"]
    assert less["mean_size"] == pytest.approx(max(whole["mean_size"] - 1, 0), abs=0.5)
    ceiling = rows.pop("all of the head")
    assert ceiling["removed"] >= rows["random of the head, 2"]["removed"]
    assert ceiling["mean_size"] > 2
    for name, row in rows.items():
        most = 0 if name.startswith("none") else int(name[-1])
        assert row["mean_size"] <= most and row["removed"] <= 5 * most
        assert len(row["hits_at_1"]) == len(row["mrr"]) == 1
        assert all(0 < value <= 1 for value in row["mrr"])
        assert 0 <= row["with_pair"] <= 5
        assert (row["hits_of_pairs"] is None) == (row["with_pair"] == 0)
    assert rows["random of the graph, 2"]["removed"] > 0
    said = capsys.readouterr().out
    assert "explain, 2" in said and "with one fact of each set put back" in said


def test_scores_are_compared_on_trainings_that_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, folder = tmp_path / "out.json", tmp_path / "trainings"
    words = "--lds --dataset nations --epochs 2 --tests 4 --subsets 3 --embedding-dim 16"
    for _ in range(2):
        assert bench.main([*words.split(), "--folder", str(folder), "--json", str(out)]) == 0
        assert len((folder / "halves.jsonl").read_text().splitlines()) == 3, "trained once"
    rows = json.loads(out.read_text())
    names = {row["score"] for row in rows}
    assert {"tracin, target", "cosine, train", "fisher"} <= names
    for row in rows:
        low, high = row["lds"]["interval"]
        assert -1.01 <= low <= high <= 1.01
        assert abs(row["lds"]["mean"]) <= 1.01 and row["seconds"] > 0
    assert "fisher" in capsys.readouterr().out
