"""TracIn as the group's scripts were called, as kgops is, and as a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console
from recording import events

from kgops.errors import KgopsError
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.agreement import report_agreement
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.loss import TARGET
from kgops.maths.tracin.scan import Scoring
from kgops.maths.worker.report import Reporter
from kgops.workloads.job_files import read_job
from kgops.workloads.train.models import ConvEConfig


def test_tracin_on_a_run_of_ours_needs_its_number_alone_and_the_pipeline_not_even_that(
    run_cli: Console,
) -> None:
    small = ("--embedding-dim", "16", "--output-channels", "2", "--num-epochs", "2", "--device", "cpu")
    assert run_cli("run", "train", "--dataset", "nations", *small).code == 0
    done = run_cli.must(
        "run", "tracin", "--run", "1", "--test-triple", "usa", "embassy", "china", "--device", "cpu"
    )
    assert "usa · embassy · china" in done.out
    shown = json.loads(run_cli("influences", "last", "--json", "--top-k", "1").out)
    assert [one["rank"] for one in shown[0]["influences"]][:1] == [1]
    missing = run_cli("run", "tracin", "--run", "77")
    assert missing.code == 2 and "no run 77" in missing.err
    (run_cli.cwd / "p.toml").write_text(
        'workload = "pipeline"\n[pipeline.train]\ndataset = "nations"\nembedding_dim = 16\noutput_channels = 2\n'
        'num_epochs = 2\ndevice = "cpu"\n[pipeline.tracin]\nmax_triples = 3\ntop_k = 4\n'
    )
    run_cli.must("run", "p.toml")
    shown = run_cli.show(3)
    assert shown["workload"] == "pipeline"
    assert shown["metric"]["tests"] == 3 and "test_mrr" in shown["metric"]
    assert run_cli("run", "tracin", "--run", "3", "--max-triples", "1", "--device", "cpu").code == 0


@pytest.mark.parametrize(("scale", "noted"), [(1e3, False), (1e5, True)])  # fp16 ends at 65,504
def test_an_error_of_more_than_one_percent_of_the_largest_score_is_noted(
    nations: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: float, noted: bool
) -> None:
    monkeypatch.setenv("KGOPS_EVENTS", str(tmp_path / "events.jsonl"))
    torch.manual_seed(0)
    small = ConvEConfig(nations.num_entities, nations.num_relations, embedding_dim=16, output_channels=2)
    model = ConvE(small).eval()
    with torch.no_grad():
        model.entities.mul_(scale)
    scoring = Scoring([TracinCheckpoint(model, 0.1)], TARGET, Settings(precision=torch.float16))
    report_agreement(scoring, nations.train[:300], nations.test[:3], 0, Reporter(tmp_path), lambda: False)
    notes = [note["text"] for note in events(tmp_path, "note")]
    assert any("`--precision fp32` computes exact scores" in note for note in notes) is noted


def test_pykeens_model_of_an_unrecorded_loss_is_traced_by_the_target_loss(run_cli: Console) -> None:
    small = ("--embedding-dim", "16", "--num-epochs", "1", "--device", "cpu", "--engine", "pykeen")
    assert run_cli("run", "train", "--dataset", "nations", "--model", "DistMult", *small).code == 0
    words = ("--run", "1", "--test-triple", "usa", "embassy", "china", "--learning-rate", "5")
    run_cli.must("run", "tracin", *words, "--device", "cpu")
    shown = run_cli("show", "2").out
    assert "score tracin, loss target" in shown
    assert "learning_rate 5 is not used: the checkpoints record their own." in shown
    (run_cli.cwd / "names.tsv").write_text("no name\n")
    run_cli("tracin", *words[:6], "--node-name-dict", "names.tsv", "--device", "cpu")
    failed = run_cli("influences", "3").err
    assert "run 3 (tracin) has no test triple: it is failed" in failed and "`kgops resume 3`" in failed


def test_pipeline_refuses_what_would_trace_another_model() -> None:
    def problems(train: dict[str, Any], tracin: dict[str, Any]) -> str:
        with pytest.raises(KgopsError) as caught:
            read_job({"workload": "pipeline", "pipeline": {"train": train, "tracin": tracin}}, "x")
        return str(caught.value)

    nation = {"dataset": "nations"}
    assert "pipeline.tracin.model_path" in problems(nation, {"model_path": "x.pt"})
    assert "pipeline.train.engine" in problems({**nation, "engine": "pykeen", "model": "TransE"}, {})
    assert "pipeline.train.num_epochs" in problems({**nation, "num_epochs": 0}, {})
    assert "pipeline.tracin.topk" in problems(nation, {"topk": 3})
