"""A question about what nobody has says so: by types where they are given, else by the relations of entities."""

from __future__ import annotations

from driving import Console
from small_graph import put_graph


def test_predict_says_that_it_can_only_guess(run_cli: Console) -> None:
    put_graph(run_cli.cwd)
    train = run_cli.cwd / "train.txt"
    train.write_text(train.read_text() + "PLACE:1\tnear\tPLACE:2\nPLACE:2\tnear\tPLACE:1\n")
    small = (
        "--embedding-dim",
        "16",
        "--output-channels",
        "2",
        "--num-epochs",
        "2",
        "--checkpoint-frequency",
        "2",
    )
    assert run_cli("run", "train", "--train", "train.txt", *small, "--device", "cpu").code == 0
    asked = ("--head", "PLACE:1", "--relation", "treats", "--device", "cpu")
    assert run_cli("run", "predict", "--run", "1", *asked).code == 0
    shown = " ".join(run_cli("show", "2").out.split())
    assert "question 1: no head of 'treats' has any relation in common with 'PLACE:1'" in shown
    known = ("--head", "CHEBI:1", "--relation", "treats", "--device", "cpu")
    assert run_cli("run", "predict", "--run", "1", *known).code == 0
    assert "no head of" not in run_cli("show", "3").out
