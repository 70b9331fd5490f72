"""The tutorial, and the pages on an own graph, questions and reasons: every command is run as it stands there, one
below the other, on UMLS and on a small graph of drugs, and what the page shows or promises is read."""

import csv
import json
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented import ROOT, Reader, Typed, at_a_desk, page, typed_in, unlike
from driving import Console

from kgops.maths.predict.answer_files import must_have_parquet

PREDICTIONS = "\n".join(
    page(f"docs/{name}.md") for name in ("guides/ask-a-model", "guides/why", "explanations")
)
SESSION = typed_in(page("docs/TUTORIAL.md"), "console")
OWN_GRAPH = typed_in(page("docs/guides/own-graph.md"), "sh")
QUESTIONS = typed_in(PREDICTIONS, "sh")
DRUGS = ["Prednisolone", "Ibuprofen", *(f"Drug {n}" for n in range(8))]
DISEASES = ["asthma", "gout", *(f"Disease {n}" for n in range(8))]


def put_drugs(folder: Path, *, with_ids: bool) -> None:
    """Drugs, what they treat and what diseases look like, under names or, with a table of names, under ids."""
    draw = random.Random(1)
    ids = {name: f"DRUG:{n}" for n, name in enumerate(DRUGS)}
    ids |= {name: f"DISEASE:{n}" for n, name in enumerate(DISEASES)}
    label = ids if with_ids else {name: name for name in ids}
    treats = {(drug, "treats", disease) for drug in DRUGS for disease in draw.sample(DISEASES, 3)}
    # Neither drug is known to treat asthma: that is what the pages ask.
    treats -= {(drug, "treats", "asthma") for drug in DRUGS[:2]}
    alike = {(one, "resembles", draw.choice(DISEASES)) for one in DISEASES for _ in range(3)}
    rows = sorted(treats | alike)
    draw.shuffle(rows)
    parts = {"test": rows[:5], "valid": rows[5:10], "train": rows[10:]}
    for name, part in parts.items():
        (folder / f"{name}.txt").write_text("".join(f"{label[h]}\t{r}\t{label[t]}\n" for h, r, t in part))
    (folder / "names.tsv").write_text("".join(f"{one}\t{name}\n" for name, one in ids.items()))
    types = "".join(f"{one}\t{'Drug' if name in DRUGS else 'Disease'}\n" for name, one in ids.items())
    (folder / "nodes.tsv").write_text(f"id\ttype\n{types}")
    (folder / "other.txt").write_text("".join(f"{label[h]}\t{r}\t{label[t]}\n" for h, r, t in rows[:5]))
    (folder / "questions.tsv").write_text(f"{label['Prednisolone']}\ttreats\t?\n?\ttreats\t{label['gout']}\n")


@pytest.fixture(scope="module")
def umls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """After `make demo`, which is run 1."""
    for reader in at_a_desk(tmp_path_factory.mktemp("tutorial"), SESSION):
        reader.desk.must("kgops demo")
        yield reader


@pytest.fixture(scope="module")
def own_graph(umls: Reader) -> Reader:
    """In the home of the session, after it."""
    umls.typed(SESSION[-1])
    put_drugs(umls.desk.folder, with_ids=True)
    return Reader(umls.desk, OWN_GRAPH)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    for reader in at_a_desk(tmp_path_factory.mktemp("asking"), QUESTIONS):
        put_drugs(reader.desk.folder, with_ids=False)
        files = " ".join(f"--{split} {split}.txt" for split in ("train", "valid", "test"))
        reader.desk.must(f"kgops train {files} --num-epochs 5")
        yield reader


@pytest.mark.parametrize("typed", SESSION, ids=[typed.line[:60] for typed in SESSION])
def test_a_line_of_the_tutorial_prints_what_is_shown(umls: Reader, typed: Typed) -> None:
    went = umls.typed(typed)
    assert unlike(typed.shown, went.err + went.out) is None, went.err + went.out


@pytest.mark.long
def test_the_tutorial_works_in_an_empty_home(tmp_path: Path) -> None:
    for reader in at_a_desk(tmp_path / "place", SESSION):
        for typed in SESSION:
            went = reader.typed(typed)
            assert unlike(typed.shown, went.err + went.out) is None, went.err + went.out


@pytest.mark.long
def test_the_recipe_of_the_tutorial_reaches_the_published_quality(run_cli: Console) -> None:
    line = SESSION[0].line
    assert line == "kgops train --recipe umls"
    assert run_cli(*line.split()[1:]).code == 0
    assert run_cli.show(1)["metric"]["test_mrr"] > 0.9


def test_the_tutorial_asks_and_checks_itself(umls: Reader) -> None:
    umls.typed(SESSION[-1])
    show = umls.desk.console.show
    assert show(3)["metric"]["new_answers"] == 5
    assert show(4)["metric"]["retrainings"] == 3
    assert any("retrained from the start" in str(one) for one in show(4)["event"])
    report = (umls.desk.folder / "vitamin.html").read_text()
    assert "vitamin" in report and "<script" not in report


def test_the_sample_of_the_tour_looks_as_these_runs_do(umls: Reader) -> None:
    """Its files have the columns, keys and sentences of today, its runs the metrics and options."""
    umls.typed(SESSION[-1])
    sample = json.loads(page("kgops/tour/sample.json"))["runs"]
    for number, workload in ((3, "predict"), (4, "explain")):
        (one,) = (one for one in sample if one["run"]["workload"] == workload)
        real, results = umls.desk.console.show(number), umls.desk.run(number) / "results"
        assert {metric["name"] for metric in one["metric"]} == set(real["metric"])
        assert {option["name"] for option in one["option"]} == {option["name"] for option in real["option"]}
        for name, text in one["files"].items():
            if name.endswith(".csv"):
                assert text.partition("\n")[0] == (results / Path(name).name).read_text().partition("\n")[0]
    mine, theirs = (
        json.loads(text)
        for text in (one["files"]["results/explanations.json"], (results / "explanations.json").read_text())
    )
    assert [*mine] == [*theirs]
    (one, *_), (other, *_) = mine["predictions"], theirs["predictions"]
    assert [*one] == [*other] and [*one["facts"][0]] == [*other["facts"][0]]
    shapes = {re.sub(r"\d[\d.]*", "N", table["verified"]) for table in (mine, theirs)}
    assert len(shapes) == 1, shapes


@pytest.mark.parametrize("typed", OWN_GRAPH, ids=[typed.line[:60] for typed in OWN_GRAPH])
def test_a_line_for_ones_own_graph_runs(own_graph: Reader, typed: Typed) -> None:
    went = own_graph.typed(typed)
    for name in re.findall(r"--output (\S+)", typed.line):
        assert name in went.written


def test_answers_and_reasons_of_ones_own_graph_have_names(own_graph: Reader) -> None:
    own_graph.typed(OWN_GRAPH[-1])
    with (own_graph.desk.folder / "best.csv").open(newline="") as file:
        best = list(csv.DictReader(file))
    assert 0 < len(best) <= 100 and {row["known"] for row in best} == {"new"}
    assert {row["head_name"] for row in best} <= {*DRUGS, *DISEASES}
    reasons = json.loads((own_graph.desk.folder / "why.json").read_text())["predictions"]
    assert len(reasons) == 3 and {one["head_name"] for one in reasons} == {"Ibuprofen"}
    assert all(one["tail_name"] in DISEASES for one in reasons)


@pytest.mark.parametrize("typed", QUESTIONS, ids=[typed.line[:60] for typed in QUESTIONS])
def test_a_line_about_predictions_runs(asking: Reader, typed: Typed) -> None:
    if ".parquet" in typed.line:
        must_have_parquet()
    went = asking.typed(typed)
    for name in re.findall(r"--output (\S+)", typed.line):
        assert name in went.written


def test_the_files_that_the_page_about_predictions_names_are_written(asking: Reader) -> None:
    asking.typed(QUESTIONS[-1])
    names = re.findall(r"`(?:results/)?(\w+\.(?:csv|tsv))`", PREDICTIONS)
    results = [
        path.name for number in range(2, 9) for path in (asking.desk.run(number) / "results").iterdir()
    ]
    assert {"predictions.csv", "predicted_triples.tsv", "explanations.csv"} <= set(names) <= set(results)


def test_the_columns_that_the_page_explains_are_those_of_the_files(asking: Reader) -> None:
    asking.typed(QUESTIONS[-1])
    with (asking.desk.run(2) / "results" / "predictions.csv").open(newline="") as file:
        columns = next(csv.reader(file))
    table = PREDICTIONS.partition("| column | meaning |")[2].partition("\n\n")[0]
    told = [
        name for row in re.findall(r"^\| ([^|]+) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)
    ]
    assert len(told) >= 8 and set(told) <= set(columns)


def test_the_pipeline_of_the_page_about_predictions_trains_answers_and_traces(asking: Reader) -> None:
    """With two epochs instead of a hundred."""
    (job,) = re.findall(r"^```toml\n(.*?)^```", PREDICTIONS, re.M | re.S)
    short = job.replace("[pipeline.train]\n", "[pipeline.train]\nnum_epochs = 2\n")
    assert short != job
    (asking.desk.folder / "three.toml").write_text(short)
    went = asking.desk.must("kgops run three.toml")
    (number,) = re.findall(r"^run (\d+) succeeded", went.err + went.out, re.M)
    results = asking.desk.run(int(number)) / "results"
    files = {path.name for path in results.rglob("*")}
    assert {"final_model.pt", "predictions.csv", "predicted_new_triples.tsv"} <= files
    (summary,) = results.rglob("batch_tracin_summary.json")
    assert json.loads(summary.read_text())["successful"] == 20
    with (results / "predictions.csv").open(newline="") as file:
        new = [row for row in csv.DictReader(file) if row["known"] == "new"]
    names = ("head", "relation", "tail")
    traced = asking.desk.console("influences", number, "--json").json()
    assert [[one[name] for name in names] for one in traced] == [
        [one[name] for name in names] for one in new[:20]
    ]


def test_measurements_on_another_graph_have_the_flags_of_the_page() -> None:
    """They train many models: test_bench_explain.py runs them on a few."""
    lines = re.findall(r"^python -m benchmarks\.explain .*$", PREDICTIONS, re.M)
    assert len(lines) == 2
    shown = subprocess.run(
        [sys.executable, "-m", "benchmarks.explain", "--help"], capture_output=True, text=True, cwd=ROOT
    )
    assert shown.returncode == 0, shown.stderr
    for words in map(shlex.split, lines):
        assert not [word for word in words if word.startswith("--") and f"{word} " not in shown.stdout]
