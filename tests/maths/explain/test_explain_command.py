"""`kgops explain` as people type it: three words, files, answers of a run, what cannot be explained, and its memory."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console, Done
from tracing import files, first_test_triples, on_trained, triples_of

from kgops.maths.explain.prediction import Influences, Prediction, Query, facts_of
from kgops.maths.graphs.triples import read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.curvature import Training
from kgops.maths.train.checkpoints import read_checkpoint
from kgops.maths.trials.variants import peak_live_bytes
from kgops.workloads.explain.job import EXPLAIN_RIVALS
from kgops.workloads.explain.plan import influences
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.tracin.sizes import fisher_shape
from kgops.workloads.train.models import ConvEConfig

_USA_CHINA = ("--triple", "usa", "embassy", "china")


def ask(run_cli: Console, trained: Path, *words: str | Path) -> Done:
    return run_cli.must("run", "explain", *on_trained(trained), *words)


@pytest.fixture(scope="module")
def verified(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A home whose run 1 explains a prediction, and has trained again twice without each set."""
    folder = tmp_path_factory.mktemp("verified")
    console, nodes = Console(folder / "home", folder), folder / "nodes.tsv"
    nodes.write_text("usa\t<b>United</b> & States\nuk\tUnited Kingdom\n")
    how = ("--max-facts", "2", "--verify", "--verify-seeds", "2", "--node-name-dict", nodes)
    done = ask(console, trained, *_USA_CHINA, *how)
    assert "retrained from the start (2 seeds): MRR " in done.out
    yield console
    console.close()


def found_in(run_cli: Console, run: int) -> list[dict[str, Any]]:
    path = Path(run_cli.show(run)["path"]) / "results" / "explanations.json"
    predictions: list[dict[str, Any]] = json.loads(path.read_text())["predictions"]
    return predictions


def test_a_prediction_is_explained_by_facts_of_its_head_and_tail(
    run_cli: Console, trained: Path, tmp_path: Path
) -> None:
    nodes, output = tmp_path / "nodes.tsv", tmp_path / "out.csv"
    nodes.write_text("usa\tUnited States\n")
    words = ("--triple", "united states", "embassy", "China", "--node-name-dict", nodes)
    done = ask(run_cli, trained, *words, "--max-facts", "3", "--output", output)
    assert "prediction 1 · United States · embassy · china" in done.out
    (one,) = found_in(run_cli, 1)
    assert (one["head"], one["relation"], one["tail"]) == ("usa", "embassy", "china")
    assert 1 <= len(one["facts"]) <= 3 and one["trouble"] is None
    for fact in one["facts"]:
        assert (fact["head"], fact["relation"], fact["tail"]) in triples_of("train")
        assert {"usa", "china"} & {fact["head"], fact["tail"]} and fact["effect"] < 0
        same = {fact["head"], fact["tail"]} == {"usa", "china"}
        assert (fact["pair"] != "") == same
    assert one["rank_after"] is None and one["lost"] is None, "nobody has trained again"
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["fact_tail"] for row in rows] == [fact["tail"] for fact in one["facts"]]
    assert float(rows[0]["rank_before"]) == one["rank_before"]
    shown = run_cli("show", "1").out
    assert "strongest triples" in shown and "EFFECT" in shown
    metric = run_cli.show(1)["metric"]
    assert metric["predictions"] == 1 and metric["facts"] == len(one["facts"])


def test_ranks_before_are_those_of_predict(run_cli: Console, trained: Path, tmp_path: Path) -> None:
    triples, asked = tmp_path / "triples.tsv", tmp_path / "asked.tsv"
    wanted = first_test_triples(3)
    triples.write_text("".join("\t".join(one) + "\n" for one in wanted))
    asked.write_text("".join(f"{one[0]}\t{one[1]}\t?\n" for one in wanted))
    ask(run_cli, trained, "--triple", triples)
    run_cli.must("run", "predict", *on_trained(trained), "--top-k", "14", "--queries", asked)
    with (Path(run_cli.show(2)["path"]) / "results" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, one in enumerate(found_in(run_cli, 1), 1):
        own = [row for row in rows if row["question"] == str(number)]
        (row,) = [row for row in own if row["tail"] == one["tail"]]
        assert one["score_before"] == pytest.approx(float(row["score"]), abs=1e-4)
        better = [
            other for other in own if other["known"] == "new" and float(other["rank"]) < float(row["rank"])
        ]
        assert one["rank_before"] == 1 + len(better)


def test_it_goes_on_from_the_new_answers_of_a_run(run_cli: Console, trained: Path) -> None:
    question = ("--head", "usa", "--relation", "embassy", "--top-k", "14")
    run_cli.must("run", "predict", *on_trained(trained), *question)
    listed = Path(run_cli.show(1)["path"]) / "results" / "predicted_new_triples.tsv"
    new = [line.split("\t") for line in listed.read_text().splitlines()]
    run_cli.must("run", "explain", "--from-predictions", "1", "--new", "--top", "2", "--device", "cpu")
    assert [[one["head"], one["relation"], one["tail"]] for one in found_in(run_cli, 2)] == new[:2]
    assert {one["known"] for one in found_in(run_cli, 2)} == {"new"}
    assert run_cli("run", "--again", "2").code == 0
    wrong = run_cli("run", "explain", "--from-predictions", "2")
    assert wrong.code == 2 and "is an explain run, not a predict run" in wrong.err
    without = run_cli("influences", "2")
    assert without.code == 2 and "`kgops show 2` has its explanations" in without.err


def test_predicted_heads_are_explained_as_heads(run_cli: Console, trained: Path) -> None:
    asked = ("--tail", "china", "--relation", "embassy", "--top-k", "3")
    run_cli.must("run", "predict", *on_trained(trained), *asked)
    with (Path(run_cli.show(1)["path"]) / "results" / "predictions.csv").open(newline="") as file:
        answers = list(csv.DictReader(file))
    done = run_cli.must("run", "explain", "--from-predictions", "1")
    found = found_in(run_cli, 2)
    assert [one["head"] for one in found] == [one["head"] for one in answers]
    for one, answer in zip(found, answers, strict=True):
        assert one["asked"] == "head" and one["score_before"] == pytest.approx(
            float(answer["score"]), abs=1e-4
        )
    assert f"{found[0]['head']} · embassy · china (its head)" in done.out
    ask(run_cli, trained, "--triple", found[0]["head"], "embassy", "china", "--asked", "head")
    assert found_in(run_cli, 3)[0]["facts"] == found[0]["facts"]
    twice = run_cli("run", "explain", "--from-predictions", "1", "--asked", "head")
    assert twice.code == 2 and "leave out --asked" in twice.err
    # TracIn compares one direction or both, but never the inverse alone.
    said = "3 of 3 test triples were predicted as heads; what is scored is their tail."
    how: list[tuple[tuple[str, ...], bool]] = [(("--loss", "target"), True), (("--both-directions",), False)]
    for flags, is_said in how:
        assert run_cli("run", "tracin", "--from-predictions", "1", *flags).code == 0
        assert (said in run_cli("show", "last").out) == is_said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--triple", "Chinna", "embassy", "usa"), "no entity is named 'Chinna': did you mean 'china'?"),
        (("--triple", "usa,embassy"), "must be head, relation and tail"),
        ((), "--triple: missing"),
        (("--triple", "usa,embassy,china", "--new"), "only predictions can be new"),
        (("--triple", "usa,embassy,china", "--max-facts", "0"), "at least 1"),
        (("--triple", "usa,embassy,china", "--smallest", "--sufficient"), "choose one"),
        (("--triple", "usa,embassy,china", "--output", "x.xls"), "must end in .json or .csv"),
    ],
)
def test_what_cannot_be_explained_says_so_in_a_line_with_what_to_do(
    run_cli: Console, trained: Path, words: tuple[str, ...], said: str
) -> None:
    done = run_cli("run", "explain", *on_trained(trained), *words)
    assert done.code in (1, 2) and said in done.err, done.err
    assert "Traceback" not in done.err + done.out


def test_a_prediction_without_rivals_and_an_unknown_name_say_so_and_the_others_are_explained(
    run_cli: Console, trained: Path, tmp_path: Path
) -> None:
    everything = tmp_path / "valid.txt"
    everyone = sorted({one[at] for one in triples_of("train") for at in (0, 2)})
    everything.write_text("".join(f"usa\tembassy\t{one}\n" for one in everyone))
    wanted = tmp_path / "wanted.tsv"
    unknown = "Atlantis\tembassy\tchina\nusa\tembasy\tchina\n"
    wanted.write_text(f"usa\tembassy\tchina\nchina\tembassy\tusa\n{unknown}")
    ask(run_cli, trained, "--triple", wanted, "--valid", everything)
    first, second, *_ = found_in(run_cli, 1)
    shown = run_cli("show", "1").out
    assert "no entity is named 'Atlantis'" in shown
    assert "no relation is named 'embasy': did you mean 'embassy'" in shown
    assert run_cli.show(1)["metric"]["failed_predictions"] == 3
    assert "every entity is a known tail of (usa, embassy, ?)" in first["trouble"] and first["facts"] == []
    assert second["trouble"] is None and second["facts"]


def test_what_the_model_does_not_predict_says_so_and_where_to_see_what_it_does(
    run_cli: Console, trained: Path
) -> None:
    graph = read_graph(*map(Path, files().values()))
    asked = graph.entities.ids["usa"], 2 * graph.relations.ids["embassy"]
    model = read_checkpoint(trained / "final_model.pt").build_model()
    worst_first = model(*(torch.tensor([one]) for one in asked))[0].argsort().tolist()
    triples = [("usa", "embassy", graph.entities.labels[tail]) for tail in worst_first]
    wanted = next(one for one in triples if one not in triples_of("train"))
    done = ask(run_cli, trained, "--triple", *wanted)
    lose = "so there is no prediction to lose. Without these triples the model should rank it worse."
    assert lose in done.err
    shown = " ".join(run_cli("show", "1").out.split())
    (one,) = found_in(run_cli, 1)
    assert one["rank_before"] > 1
    assert (
        f"the model ranks {wanted[2]} {one['rank_before']:g}, not first, so there is no prediction to lose"
        in shown
    )
    assert "`kgops predict` with this head and relation lists what the model does predict" in shown


def test_verify_trains_again_without_the_sets_and_says_so_in_a_sentence(verified: Console) -> None:
    (one,) = found_in(verified, 1)
    metric = verified.show(1)["metric"]
    assert metric["retrainings"] == 6 and metric["removed_facts"] == len(one["facts"])
    assert set(one["retrained"]) == {"retrained", "retrained_random", "retrained_all"}
    assert all(1 <= rank <= 14 for rank in one["retrained"].values())
    ranks = one["retrained"]
    assert one["rank_after"] == ranks["retrained"] and metric["lost_predictions"] == one["lost"]
    assert one["lost"] is (ranks["retrained"] > max(ranks["retrained_all"], one["rank_before"]))
    assert 1 / 14 <= metric["mrr_retrained"] <= 1
    assert "retrained from the start (2 seeds): MRR " in verified("show", "1").out


def test_explanations_have_pictures_beside_their_list_in_the_report(
    verified: Console, tmp_path: Path
) -> None:
    assert verified("report", "1", "--output", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "<h2>Explanations</h2>" in page and " without these 2 of " in page and "stroke-dasharray" in page
    assert "retrained from the start (2 seeds)" in page and "<b>United" not in page
    assert "Only retraining shows that the model needs these triples" in page and "with all triples" in page
    (table,) = verified.home.glob("runs/*/results/paths.csv")
    effects = [row["path_effect"] for row in csv.DictReader(table.read_text().splitlines())]
    assert ("from head to tail, by the effect" in page) == any(float(effect) < 0 for effect in effects)


def test_sufficient_sets_are_verified_by_training_with_them_added(run_cli: Console, trained: Path) -> None:
    done = ask(run_cli, trained, *_USA_CHINA, "--sufficient", "--max-facts", "2", "--verify")
    (one,), metric = found_in(run_cli, 1), run_cli.show(1)["metric"]
    assert set(one["carried"]) == {"retrained", "retrained_random", "retrained_all"}
    assert all(0 <= heads <= len(one["others"]) for heads in one["carried"].values())
    assert metric["retrainings"] == 3 and 0 < metric["added_facts"] <= 2 * len(one["others"])
    assert metric["hits_at_1_retrained"] == pytest.approx(one["carried"]["retrained"] / len(one["others"]))
    assert "with nothing added" in done.out and "the tail ranks first for" in run_cli("show", "1").out


def test_models_of_vectors_are_explained_whoever_trained_them(run_cli: Console) -> None:
    """kgops' ComplEx, verified by retraining; PyKEEN's DistMult, which nobody here can train again; no RotatE."""
    small = ("--dataset", "nations", "--num-epochs", "3", "--embedding-dim", "8")
    assert run_cli("train", "--model", "complex", *small).code == 0
    assert run_cli("explain", "--run", "1", *_USA_CHINA, "--verify").code == 0
    (one,) = found_in(run_cli, 2)
    assert len(one["facts"]) == 4
    for model in ("DistMult", "RotatE"):
        assert run_cli("train", "--engine", "pykeen", "--model", model, *small).code == 0
    assert run_cli("explain", "--run", "3", *_USA_CHINA).code == 0
    assert len(found_in(run_cli, 5)[0]["facts"]) == 4
    assert "cannot be retrained" in run_cli("explain", "--run", "3", *_USA_CHINA, "--verify").err
    assert "RotatE, which cannot be explained" in run_cli("explain", "--run", "4", *_USA_CHINA).err


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


def test_a_run_is_planned_and_its_process_takes_no_more(verified: Console) -> None:
    assert verified.show(1)["peak_host_mib"] < 1.1 * verified.show(1)["predicted_mib"]


def test_a_plan_says_how_often_it_trains_again(run_cli: Console, trained: Path) -> None:
    dry = (*_USA_CHINA, "--dry-run", "--json")
    plan = ask(run_cli, trained, *dry, "--smallest", "--max-facts", "3", "--verify-seeds", "2").json()
    assert plan["retrainings"]["count"] == (1 + 3 + 4) * 2
    assert ask(run_cli, trained, *dry).json()["retrainings"] is None


def test_a_run_that_cannot_fit_is_not_told_to_change_its_trained_model(
    run_cli: Console, trained: Path
) -> None:
    refused = run_cli("run", "explain", *on_trained(trained), *_USA_CHINA, "--memory-limit", "20")
    assert refused.code != 0
    assert "no setting of the options would fit; use a --memory-limit of " in refused.err
    assert "--embedding-dim" not in refused.err
