"""TracIn as a person asks for it: their scripts' flags and files, a command, a pipeline, and what the record keeps."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sequential_tracin
import torch
from driving import Console
from recording import events
from tracing import batch_file, files, first_test_triples, nations

from kgops.errors import BadInput, KgopsError
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import to_pykeen_state
from kgops.maths.tracin import attribution
from kgops.maths.tracin.agreement import report_agreement
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N, TARGET
from kgops.maths.tracin.outputs import CSV_HEADER
from kgops.maths.tracin.scan import Scoring
from kgops.maths.tracin.validate import JOURNAL
from kgops.maths.tracin.worker import tracin
from kgops.maths.train.batches import query_rows
from kgops.maths.train.checkpoints import kept_checkpoints, read_checkpoint
from kgops.maths.worker.entry import Stopped
from kgops.maths.worker.report import Reporter
from kgops.workloads.job_files import read_job
from kgops.workloads.tracin.options import trainings_of_validation
from kgops.workloads.train.models import ConvEConfig

Trace = Callable[..., Path]
TRIPLE = ",".join(first_test_triples(1)[0])


@pytest.fixture
def trace(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Runs the worker in this process; its results."""

    def run(
        options: dict[str, Any] | None = None,
        stop: Callable[[], bool] = lambda: False,
        folder: Path = tmp_path / "run",
        **settings: Any,
    ) -> Path:
        wanted = {"output": str(tmp_path / "asked.json"), "csv_output": str(tmp_path / "asked.csv")}
        named = {"checkpoint_dir": str(trained / "checkpoints"), **files(), "device": "cpu"}
        named |= settings if "test_triples" in settings else {**wanted, **settings}
        job = read_job({"workload": "tracin", "tracin": named, "options": options or {}}, "the test")
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("KGOPS_EVENTS", str(folder / "events.jsonl"))
        monkeypatch.setenv("KGOPS_FORCE", "1")  # a test traces several times into the same files
        tracin(job, folder, Reporter(folder), stop)  # type: ignore[arg-type]  # a plain function asks as well
        return folder / "results"

    return run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def trained_on(row: dict[str, str]) -> tuple[str, str, str]:
    return row["TrainHead"], row["TrainRel"], row["TrainTail"]


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "plain"), [("target", TARGET), ("one-to-n", ONE_TO_N)])
def test_csv_holds_the_scores_that_plain_autograd_gives(
    trace: Trace, trained: Path, loss: str, plain: Any
) -> None:
    (triple,) = first_test_triples(1)
    found = rows(trace(loss=loss, test_triple="\t".join(triple)) / "tracin.csv")
    assert tuple(found[0]) == CSV_HEADER
    graph = read_graph(*map(Path, files().values()))
    assert len(found) == len(graph.train)
    saved = [read_checkpoint(path) for path in kept_checkpoints(trained / "checkpoints")]
    points = [(one.build_model().double(), one.learning_rate) for one in saved]
    entities, relations = graph.entities.ids, graph.relations.ids
    some = found[:20] + found[-20:]
    named = [triple, *map(trained_on, some)]
    asked = torch.tensor([[entities[h], relations[r], entities[t]] for h, r, t in named])
    at = query_rows(asked, inverse=True)
    expected = sequential_tracin.influence(points, plain, at[1:], at[:1])[0]
    scores = torch.tensor([float(one["TracInScore"]) for one in some], dtype=torch.float64)
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_rows_are_sorted_by_absolute_score_and_top_k_are_the_first_of_them(
    trace: Trace, tmp_path: Path
) -> None:
    everything = rows(trace(test_triple=TRIPLE) / "tracin.csv")
    strengths = [abs(float(row["TracInScore"])) for row in everything]
    assert strengths == sorted(strengths, reverse=True)
    few = rows(trace(test_triple=TRIPLE, top_k=7, folder=tmp_path / "few") / "tracin.csv")
    assert [*map(trained_on, few)] == [*map(trained_on, everything[:7])]


def test_weights_that_pykeen_wrote_give_the_scores_of_our_checkpoint(
    trace: Trace, trained: Path, tmp_path: Path
) -> None:
    saved = read_checkpoint(kept_checkpoints(trained / "checkpoints")[-1])
    model = tmp_path / "model.pt"
    torch.save(to_pykeen_state(saved.build_model()), model)
    ours = rows(trace(test_triple=TRIPLE, top_k=5, last_checkpoints=1) / "tracin.csv")
    with pytest.raises(BadInput, match="learning rate"):
        trace_model(trace, model)
    there = tmp_path / "theirs"
    theirs = rows(trace_model(trace, model, learning_rate=saved.learning_rate, folder=there) / "tracin.csv")
    assert theirs == ours


def trace_model(trace: Trace, model: Path, **more: Any) -> Path:
    # An empty folder name is none: the fixture names one otherwise.
    return trace(test_triple=TRIPLE, top_k=5, checkpoint_dir="", model_path=str(model), **more)


def test_self_influence_of_each_training_triple_is_its_own_score(trace: Trace, tmp_path: Path) -> None:
    itself = rows(trace(self_influence=True, loss="target") / "self_influence.csv")[3]
    asked = {"test_triple": ",".join(trained_on(itself)), "loss": "target", "folder": tmp_path / "asked"}
    own = next(row for row in rows(trace(**asked) / "tracin.csv") if trained_on(row) == trained_on(itself))
    assert float(own["TracInScore"]) == pytest.approx(float(itself["TracInScore"]), rel=1e-4)


# --- batches --------------------------------------------------------------------------------------


def test_batch_leaves_the_files_the_group_knows_and_a_failed_triple_stops_nobody(
    trace: Trace, tmp_path: Path
) -> None:
    triples = [*first_test_triples(2), ["narnia", "embassy", "usa"]]
    results = trace(test_triples=batch_file(tmp_path, triples), n_hops=1)
    (h, _, t), (h2, _, t2) = triples[:2]
    stems = [f"triple_001_{h}_{t}_tracin", f"triple_002_{h2}_{t2}_tracin"]
    assert sorted(path.name for path in results.glob("triple_*")) == sorted(
        f"{stem}{ending}" for stem in stems for ending in (".csv", ".json")
    )
    summary = json.loads((results / "batch_tracin_summary.json").read_text())
    assert (summary["total_triples"], summary["successful"], summary["failed"]) == (3, 2, 1)
    assert [line["success"] for line in summary["results"]] == [True, True, False]
    assert "'narnia'" in summary["results"][2]["error"]
    told = events(results.parent, "attribution")
    assert [one["test"] for one in told] == [1, 2, 3]
    assert told[2]["trouble"] and not told[2]["influences"]


def test_filtered_triple_is_scored_on_its_neighbourhood_with_the_scores_it_has_anywhere(
    trace: Trace, tmp_path: Path
) -> None:
    triples = first_test_triples(3)
    how = {"n_hops": 1, "strict_hop_constraint": True, "path_filtering": True, "max_total_path_length": 2}
    results = trace(test_triples=batch_file(tmp_path, triples), **how)
    filtered = rows(next(results.glob("triple_002_*.csv")))
    plain = trace(test_triple=",".join(triples[1]), folder=tmp_path / "plain")
    whole = {trained_on(row): float(row["TracInScore"]) for row in rows(plain / "tracin.csv")}
    assert 0 < len(filtered) < len(whole)
    most = max(map(abs, whole.values()))
    for row in filtered:
        assert float(row["TracInScore"]) == pytest.approx(whole[trained_on(row)], abs=1e-5 * most)


def test_a_test_triple_that_filtering_leaves_nothing_is_said_to_have_none(
    trace: Trace, tmp_path: Path
) -> None:
    (near,) = first_test_triples(1)
    itself = ["usa", "embassy", "usa"]  # no path leads from an entity to itself
    how = {"path_filtering": True, "strict_path_filtering": True, "max_total_path_length": 2}
    results = trace(test_triples=batch_file(tmp_path, [itself, near]), min_degree=0, top_k=3, **how)
    said = "filtering leaves 1 of 2 test triples no training triple"
    assert any(said in note["text"] for note in events(results.parent, "note"))


def test_start_and_number_of_triples_keep_the_numbers_of_the_file(trace: Trace, tmp_path: Path) -> None:
    batch = batch_file(tmp_path, first_test_triples(5))
    results = trace(test_triples=batch, start_index=2, max_triples=2, top_k=3)
    assert sorted(path.name[:10] for path in results.glob("*.csv")) == ["triple_003", "triple_004"]


def test_run_that_goes_on_scores_no_test_triple_twice_and_ends_with_the_same_files(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attribution, "TRACIN_TESTS", 2)
    batch = batch_file(tmp_path, first_test_triples(6))
    asked = {"test_triples": batch, "top_k": 3, "options": {"filtering": False}}
    before = scores_in(trace(**asked, folder=tmp_path / "whole"))
    with pytest.raises(Stopped):
        trace(**asked, stop=after_the_first_tile(tmp_path))
    assert len([*(tmp_path / "run" / "finished_tests").iterdir()]) == 1
    again = trace(**asked)
    assert scores_in(again) == before
    metrics = events(again.parent, "result")[-1]["metrics"]
    assert metrics["scored_pairs"] == 4 / 6 * 6 * metrics["train_triples"]


def after_the_first_tile(folder: Path) -> Callable[[], bool]:
    return lambda: any((folder / "run" / "finished_tests").glob("*.pt"))


def scores_in(results: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in results.glob("triple_*")}


@pytest.mark.parametrize("file", ["train", "test_triples"])
def test_run_that_goes_on_with_lines_in_another_order_names_the_right_triples(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(attribution, "TRACIN_TESTS", 2)
    train = tmp_path / "train.txt"
    shutil.copy(nations() / "train.txt", train)
    paths = {"train": str(train), "test_triples": batch_file(tmp_path, first_test_triples(4))}
    with pytest.raises(Stopped):
        trace(**paths, top_k=3, stop=after_the_first_tile(tmp_path))
    lines = Path(paths[file]).read_text().splitlines(keepends=True)
    Path(paths[file]).write_text("".join(reversed(lines)))
    resumed = scores_in(trace(**paths, top_k=3))
    said = [note["text"] for note in events(tmp_path / "run", "note")]
    assert (
        "the triples or their order changed what scores mean: finished test triples are scored again." in said
    )
    assert scores_in(trace(**paths, top_k=3, folder=tmp_path / "anew")) == resumed


def test_validation_trains_again_without_what_was_found_and_says_what_changed(trace: Trace) -> None:
    results = trace(max_triples=2, top_k=3, validate=5, loss="train")
    done = (results.parent / JOURNAL).read_text().splitlines()
    assert sum("seed" in json.loads(line) for line in done) == trainings_of_validation()
    body = json.loads((results / "validation.json").read_text())
    assert body["k"] == 5
    metrics = events(results.parent, "result")[-1]["metrics"]
    assert {"logit_change_proponents", "logit_change_random", "logit_noise"} <= metrics.keys()
    said = [note["text"] for note in events(results.parent, "note")]
    assert any(text.startswith("validation: without the 5 strongest triples") for text in said)
    assert body["tests"][0]["changes"].keys() >= {"proponents", "opponents", "random", "neighbours"}


# --- names ----------------------------------------------------------------------------------------


def test_readable_names_stand_beside_labels_in_csv_json_and_record(trace: Trace, tmp_path: Path) -> None:
    head, relation, tail = first_test_triples(1)[0]
    nodes, edges = tmp_path / "nodes.tsv", tmp_path / "edge_map.json"
    nodes.write_text(f'{head}\tName, with "quotes"\n{tail}\tTail\tmore\n')
    key = json.dumps({"predicate": "biolink:treats", "direction": "increased", "aspect": ""})
    edges.write_text(json.dumps({key: relation}))
    named = {"node_name_dict": str(nodes), "edge_map": str(edges)}
    results = trace(test_triple=f"{head},{relation},{tail}", top_k=2, **named)
    first = rows(results / "tracin.csv")[0]
    assert first["TestHead"] == head
    assert first["TestHead_label"] == 'Name, with "quotes"'
    assert first["TestRel_label"] == "treats (increased)"
    told = events(results.parent, "attribution")[0]
    assert told["names"][head] == 'Name, with "quotes"'
    body = json.loads((results / "tracin.json").read_text())
    assert body["results"][0]["test_triple"]["tail_label"] == "Tail"


def test_parquet_holds_what_the_csv_holds(trace: Trace, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    asked = {"test_triple": TRIPLE, "top_k": 20}
    plain = rows(trace(**asked) / "tracin.csv")
    results = trace(**asked, parquet=True, folder=tmp_path / "parquet")
    table = parquet.read_table(results / "tracin.parquet").to_pylist()
    for column in CSV_HEADER[:-1]:
        assert [str(row[column]) for row in table] == [row[column] for row in plain]
    scores = [float(row["TracInScore"]) for row in plain]
    assert [row["TracInScore"] for row in table] == pytest.approx(scores, rel=1e-6)


# --- refusals -------------------------------------------------------------------------------------


def test_entities_in_another_order_are_refused_since_ids_would_mean_others(
    trace: Trace, tmp_path: Path
) -> None:
    graph = read_graph(*map(Path, files().values()))
    turned = tmp_path / "entities.tsv"
    turned.write_text("".join(f"{label}\t{i}\n" for i, label in enumerate(reversed(graph.entities.labels))))
    with pytest.raises(BadInput, match="other entities ids"):
        trace(entity_to_id=str(turned))


def test_weights_that_are_no_numbers_are_refused(trace: Trace, trained: Path, tmp_path: Path) -> None:
    saved = read_checkpoint(kept_checkpoints(trained / "checkpoints")[-1])
    state = to_pykeen_state(saved.build_model())
    state["interaction.hr1d.0.weight"][0, 0] = torch.nan
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(BadInput, match="not finite"):
        trace_model(trace, tmp_path / "bad.pt", learning_rate=0.1)


def test_nothing_to_trace_and_contradictions_are_told_before_anything_runs() -> None:
    def problems(**settings: Any) -> str:
        with pytest.raises(KgopsError) as caught:
            read_job({"workload": "tracin", "tracin": settings}, "x")
        return str(caught.value)

    assert "no model is named" in problems(train="a.txt", test="b.txt")
    assert "missing, and so is" in problems(model_path="a.pt", test="b.txt")
    assert "no test triples" in problems(model_path="a.pt", train="a.txt")
    both = {"model_path": "a.pt", "train": "a.txt", "test_triple": "a,b,c", "test_triples": "b.txt"}
    assert "choose one" in problems(**both)
    assert "path_filtering" in problems(model_path="a.pt", train="a", test="b", strict_path_filtering=True)


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
    assert run_cli("run", "train", "--dataset", "nations", "--model", "RotatE", *small).code == 0
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
