"""`kgops evaluate`: how well a trained model ranks triples, as a user asks for it."""

from pathlib import Path

import pytest
import torch
from driving import Console

from kgops.maths.graphs.triples import read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.trials.variants import peak_live_bytes
from kgops.workloads.evaluate.plan import EvaluateShape, peak_memory
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.train.models import ConvEConfig

_RANKS = ("test_mrr", "test_mean_rank", "test_hits_at_1", "test_hits_at_10")


@pytest.mark.parametrize("flags", [(), ("--engine", "pykeen", "--model", "TransE")], ids=["kgops", "pykeen"])
def test_a_run_is_evaluated_as_its_training_did_and_on_other_triples(
    run_cli: Console, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    sizes = ("--embedding-dim", "8", "--output-channels", "4", "--num-epochs", "2")
    run_cli("run", "train", "--dataset", "nations", *(sizes[:2] + sizes[4:] if flags else sizes), *flags)
    again = run_cli("run", "evaluate", "--run", "1", "--json").json()["metric"]
    trained = run_cli("show", "1", "--json").json()["metric"]
    assert [again[name] for name in _RANKS] == pytest.approx([trained[name] for name in _RANKS], rel=1e-6)
    assert again["triples"] == 201

    graph = read_pykeen_dataset("nations")
    labels, relations = graph.entities.labels, graph.relations.labels
    others = [f"{labels[h]}\t{relations[r]}\t{labels[t]}" for h, r, t in graph.valid.tolist()[:60]]
    (tmp_path / "other.txt").write_text("\n".join([*others, "usa\tembassy\tmars"]))
    run = run_cli("run", "evaluate", "--run", "1", "--test", "other.txt", "--json").json()
    assert run["metric"]["triples"] == 60
    shown = run_cli("show", str(run["id"])).out
    assert "triple 61 (usa · embassy · mars) is left out: entity 'mars' is not among the 14" in shown
    groups = {tuple(line.split()[:2]) for line in shown.splitlines()}
    assert {
        ("direction", "head"),
        ("direction", "tail"),
        ("relation", relations[graph.valid[0, 1]]),
    } <= groups


def test_what_is_missing_is_named_by_its_flag(run_cli: Console, tmp_path: Path) -> None:
    said = run_cli("run", "evaluate").err
    assert "give --run, --checkpoint-dir or --model-path" in said
    (tmp_path / "model.pt").touch()
    said = run_cli("run", "evaluate", "--model-path", "model.pt", "--train", "model.pt").err
    assert "--test: missing; give the triples to rank" in said


@pytest.mark.parametrize("seed", range(6))
def test_ranking_takes_at_most_the_memory_that_is_planned(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=draw))

    entities, relations, ranked = number(50, 6000), number(1, 9), number(1, 2000)
    config = ConvEConfig(
        entities, relations, bool(seed % 2), embedding_dim=number(2, 12) * 8, output_channels=number(2, 16)
    )
    model = ConvE(config).eval()
    sizes = torch.tensor([entities, relations, entities])
    known = torch.randint(1 << 30, (number(100, 20_000), 3), generator=draw) % sizes
    triples = known[:ranked]
    shape = EvaluateShape(config, Counts(entities, relations, len(known)), len(triples), on_gpu=False)
    planned = peak_memory(shape, None, expandable=False)
    held = planned.parts["weights"] + 3 * 8 * (len(known) + len(triples))  # there before it starts
    taken = peak_live_bytes(lambda: Evaluator(torch.cat([known, triples]), entities)(model, triples))
    assert taken + held <= 1.1 * planned.live
