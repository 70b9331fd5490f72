"""TracIn as the group's scripts were called, as kgops is, and as a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console
from recording import events
from tracing import batch_file, files, first_test_triples
from tracing import nations as nations_files

from kgops.errors import KgopsError
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.agreement import report_agreement
from kgops.maths.tracin.attribution import Scoring
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.loss import TARGET
from kgops.maths.worker.report import Reporter
from kgops.workloads.job_files import read_job
from kgops.workloads.train.models import ConvEConfig


def test_every_flag_of_the_groups_scripts_is_accepted_and_what_buys_nothing_is_said(
    run_cli: Console, trained: Path, tmp_path: Path
) -> None:
    batch = batch_file(tmp_path, first_test_triples(2))
    graph = read_graph(*(Path(path) for path in files().values()))
    vocabularies: list[str | Path] = []
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        path = tmp_path / f"{kind}.tsv"
        path.write_text("".join(f"{label}\t{i}\n" for i, label in enumerate(vocabulary.labels)))
        vocabularies += [f"--{kind}-to-id", path]
    nodes, edges = tmp_path / "nodes.tsv", tmp_path / "edges.json"
    nodes.write_text("usa\tUnited States\n")
    edges.write_text("{}")
    out = tmp_path / "out"
    done = run_cli(
        *("run", "tracin", "--model-path", trained / "final_model.pt"),
        *("--checkpoint-dir", trained / "checkpoints", "--train", nations_files() / "train.txt"),
        *("--test", nations_files() / "test.txt", "--test-triples", batch, *vocabularies),
        *("--output-dir", out, "--edge-map", edges, "--node-name-dict", nodes, "--top-k", "5"),
        *("--batch-size", "64", "--learning-rate", "0.001", "--device", "cpu", "--use-mixed-precision"),
        *("--use-gradient-checkpointing", "--disable-memory-cleanup", "--use-last-layers-only"),
        *("--num-last-layers", "2", "--use-optimized-tracin", "--use-torch-compile", "--enable-multi-gpu"),
        *("--disable-test-gradient-caching", "--use-vectorized-gradients", "--disable-vectorized-gradients"),
        *("--n-hops", "2", "--min-degree", "2", "--preserve-test-edges", "--strict-hop-constraint"),
        *("--path-filtering", "--max-total-path-length", "3", "--strict-path-filtering", "--cache", "x"),
        *("--filter-method", "igraph", "--start-index", "0", "--max-triples", "2"),
    )
    assert done.code == 0, done.err
    assert (out / "batch_tracin_summary.json").exists()
    assert len(list(out.glob("triple_*.csv"))) == 2
    options = {option["name"]: option for option in run_cli.show(1)["option"]}
    for name in ("gradient_checkpointing", "compile"):
        assert options[name]["applied"] == "off" and options[name]["reason"], name
    assert options["vectorized_gradients"]["applied"] == "on" and options["vectorized_gradients"]["reason"]
    assert options["test_gradient_caching"]["applied"] == "on"
    assert options["devices"]["applied"] == "1"
    assert options["last_layers"]["applied"] == "2"
    assert options["filtering"]["applied"] == "on"


def test_tracin_on_a_run_of_ours_needs_its_number_alone_and_the_pipeline_not_even_that(
    run_cli: Console,
) -> None:
    small = ("--embedding-dim", "16", "--output-channels", "2", "--num-epochs", "2", "--device", "cpu")
    assert run_cli("run", "train", "--dataset", "nations", *small).code == 0
    done = run_cli(
        "run", "tracin", "--run", "1", "--test-triple", "usa", "embassy", "china", "--device", "cpu"
    )
    assert done.code == 0, done.err
    assert "usa · embassy · china" in done.out
    shown = json.loads(run_cli("influences", "last", "--json", "--top-k", "1").out)
    assert [one["rank"] for one in shown[0]["influences"]][:1] == [1]
    missing = run_cli("run", "tracin", "--run", "77")
    assert missing.code == 2 and "no run 77" in missing.err
    (run_cli.cwd / "p.toml").write_text(
        'workload = "pipeline"\n[pipeline.train]\ndataset = "nations"\nembedding_dim = 16\noutput_channels = 2\n'
        'num_epochs = 2\ndevice = "cpu"\n[pipeline.tracin]\nmax_triples = 3\ntop_k = 4\n'
    )
    done = run_cli("run", "p.toml")
    assert done.code == 0, done.err
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
    done = run_cli("run", "tracin", *words, "--device", "cpu")
    assert done.code == 0, done.err
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
