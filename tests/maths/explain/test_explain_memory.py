"""Memory of explanations: what was predicted is what is taken, and a plan says how often a run trains again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from driving import Console
from tracing import on_trained

from kgops.maths.explain.prediction import Influences, Prediction, Query, facts_of
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.curvature import Training
from kgops.maths.trials.variants import peak_live_bytes
from kgops.workloads.explain.job import EXPLAIN_RIVALS
from kgops.workloads.explain.plan import influences
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.tracin.sizes import fisher_shape
from kgops.workloads.train.models import ConvEConfig

HEAD, TAIL = 5, 7


@pytest.mark.parametrize("kind", ["softmax", "bce"])
@pytest.mark.parametrize(
    ("entities", "triples", "dim", "maps", "inverse"),
    [(3000, 9000, 32, 8, True), (400, 3000, 64, 16, True), (9000, 20_000, 32, 4, False)],
)
def test_influences_take_about_what_was_predicted(
    kind: str, entities: int, triples: int, dim: int, maps: int, inverse: bool
) -> None:
    torch.manual_seed(0)
    model = ConvE(ConvEConfig(entities, 10, inverse, embedding_dim=dim, output_channels=maps)).eval()
    train = torch.stack([torch.randint(n, (triples,)) for n in (entities, 10, entities)], dim=1)
    train[:1000, 0] = HEAD  # enough candidates for whole blocks

    def find() -> None:
        influences = Influences(model, Training(train, kind, one_positive=kind == "softmax"))  # type: ignore[arg-type]
        prediction = Prediction(model, Query((HEAD, 1, TAIL)), torch.tensor([TAIL]))
        influences.falls(prediction, train[facts_of(train, HEAD, TAIL)])

    shape = fisher_shape(model.config, Counts(entities, 10, triples), None, tests=1 + EXPLAIN_RIVALS)
    bound = max(parts.total() for parts in influences(shape))
    assert 0.75 * bound < peak_live_bytes(find) <= bound


def explain(trained: Path, *words: str) -> list[str]:
    return ["run", "explain", *on_trained(trained), "--triple", "usa embassy china", *words]


def test_a_run_is_planned_and_its_process_takes_no_more(run_cli: Console, trained: Path) -> None:
    run_cli.must(*explain(trained, "--verify"))
    assert run_cli.show(1)["peak_host_mib"] < 1.1 * run_cli.show(1)["predicted_mib"]


def test_a_plan_says_how_often_it_trains_again(run_cli: Console, trained: Path) -> None:
    wanted = explain(trained, "--smallest", "--max-facts", "3", "--verify-seeds", "2")
    plan = json.loads(run_cli(*wanted, "--dry-run", "--json").out)
    assert plan["retrainings"]["count"] == (1 + 3 + 4) * 2
    assert json.loads(run_cli(*explain(trained), "--dry-run", "--json").out)["retrainings"] is None


def test_a_run_that_cannot_fit_is_not_told_to_change_its_trained_model(
    run_cli: Console, trained: Path
) -> None:
    refused = run_cli(*explain(trained, "--memory-limit", "20"))
    assert refused.code != 0
    assert "no setting of the options would fit; use a --memory-limit of " in refused.err
    assert "--embedding-dim" not in refused.err
