"""`kgops predict` as people type it: names, files of questions, filters, all pairs, and TracIn from there."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import Console
from tracing import on_trained, triples_of

from kgops.maths.predict.answer_files import must_have_parquet


def ask(run_cli: Console, trained: Path, *words: str | Path) -> Any:
    return run_cli("run", "predict", *on_trained(trained), *words)


def rows_of(run_cli: Console, run: int) -> list[dict[str, str]]:
    path = Path(run_cli.show(run)["path"]) / "results" / "predictions.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def triple(row: dict[str, str]) -> tuple[str, str, str]:
    return row["head"], row["relation"], row["tail"]


@pytest.fixture(scope="module")
def answered(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A home whose run 1 answers one question with all entities, by their readable names."""
    folder = tmp_path_factory.mktemp("answered")
    console = Console(folder / "home", folder)
    nodes, edges = folder / "nodes.tsv", folder / "edges.json"
    nodes.write_text("usa\tUnited States\nuk\tUnited Kingdom\n")
    edges.write_text(json.dumps({"embassy": "has an embassy in"}))
    done = ask(
        *(console, trained, "--head", "united STATES", "--relation", "has an Embassy in"),
        *("--node-name-dict", nodes, "--edge-map", edges, "--output", folder / "out.json", "--top-k", "14"),
    )
    assert done.code == 0, done.err
    assert "United States · has an embassy in · ?" in done.out
    yield console
    console.close()


def test_answers_are_ranked_named_and_known_or_new(answered: Console) -> None:
    rows = rows_of(answered, 1)
    assert {row["head"] for row in rows} == {"usa"} and len(rows) == 14
    assert [float(row["rank"]) for row in rows] == sorted(float(row["rank"]) for row in rows)
    for row in rows:
        split = next((one for one in ("train", "valid", "test") if triple(row) in triples_of(one)), "new")
        assert row["known"] == split
    (question,) = json.loads((answered.cwd / "out.json").read_text())["questions"]
    assert (question["head"], question["relation"], question["tail"]) == ("usa", "embassy", None)
    assert [answer["entity"] for answer in question["answers"]] == [row["tail"] for row in rows]
    assert "United Kingdom" in {answer["name"] for answer in question["answers"]}
    assert all(0 < answer["probability"] < 1 for answer in question["answers"])
    assert rows[0]["tail_name"] in answered("show", "1").out
    shown = answered.show(1)
    assert shown["metric"]["answers"] == 14 and shown["workload"] == "predict"
    assert shown["metric"]["new_answers"] == sum(row["known"] == "new" for row in rows)


def test_a_file_of_questions_is_answered_line_by_line_and_what_is_unknown_is_told(
    run_cli: Console, trained: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    asked, output = tmp_path / "asked.tsv", tmp_path / "out.parquet"
    asked.write_text(
        "# questions\nusa\tembassy\t?\n?\tembassy\tchina\nAtlantis\tembassy\t?\nuk\ttreaties\nusa\tembasy\t?\n"
    )
    done = ask(run_cli, trained, "--queries", asked, "--top-k", "3", "--output", output)
    assert done.code == 0, done.err
    rows = rows_of(run_cli, 1)
    assert [row["question"] for row in rows] == ["1"] * 3 + ["2"] * 3 + ["4"] * 3
    assert {row["tail"] for row in rows[3:6]} == {"china"} and {row["asked"] for row in rows[3:6]} == {"head"}
    assert run_cli.show(1)["metric"]["failed_questions"] == 2
    unknown = "question 3 (Atlantis · embassy · ?): no entity is named 'Atlantis'"
    assert unknown in run_cli("show", "1").out and f"note: {unknown}" in done.err
    assert "no relation is named 'embasy': did you mean 'embassy'" in done.err
    table = must_have_parquet().parquet.read_table(output)
    assert table.column("tail").to_pylist() == [row["tail"] for row in rows]
    # For TracIn: the best answer to each question first, then the second best.
    listed = (Path(run_cli.show(1)["path"]) / "results" / "predicted_triples.tsv").read_text().splitlines()
    assert [tuple(line.split("\t")) for line in listed[:3]] == [
        triple(rows[0]),
        (*triple(rows[3]), "head"),
        triple(rows[6]),
    ]


def test_candidates_and_types_limit_the_answers(run_cli: Console, trained: Path, tmp_path: Path) -> None:
    some, types = tmp_path / "some.txt", tmp_path / "nodes.tsv"
    some.write_text("China\nuk\nindia\n")
    types.write_text(
        "id\tname\tcategory\nchina\tChina\tbiolink:Asian|biolink:Country\nindia\tIndia\tAsian;Country\n"
        "uk\tUK\tCountry\nMars\tMars\tPlanet\n"
    )
    question = ("--head", "usa", "--relation", "embassy")
    assert ask(run_cli, trained, *question, "--candidates", some).code == 0
    assert {row["tail"] for row in rows_of(run_cli, 1)} == {"china", "uk", "india"}
    of_type = (*question, "--node-types", types, "--candidate-type")
    assert ask(run_cli, trained, *of_type, "asian").code == 0
    assert {row["tail"] for row in rows_of(run_cli, 2)} == {"china", "india"}
    unknown = ask(run_cli, trained, *of_type, "Asien")
    assert unknown.code == 1 and "no entity has the type 'Asien': did you mean 'Asian'?" in unknown.err
    # Of what has few tails, the others get a type of their own.
    every = set().union(*(triples_of(split) for split in ("train", "valid", "test")))
    tails = {one[2] for one in every if one[1] == "lostterritory"}
    ends = sorted({end for one in every for end in (one[0], one[2])})
    types.write_text("".join(f"{one}\t{'Loser' if one in tails else 'Winner'}\n" for one in ends))
    few = ("--head", "usa", "--relation", "lostterritory", "--node-types", types)
    nobody = ask(run_cli, trained, *few, "--candidate-type", "winner")
    assert nobody.code == 1
    assert "no tail of 'lostterritory' has the type 'winner'" in nobody.err
    assert f"its tails have: Loser ({len(tails)})" in nobody.err


def test_all_pairs_of_a_relation_are_new_ones_unless_asked_for_all(run_cli: Console, trained: Path) -> None:
    assert ask(run_cli, trained, "--relation", "embassy", "--best", "20").code == 0
    rows = rows_of(run_cli, 1)
    known = set().union(*(triples_of(split) for split in ("train", "valid", "test")))
    assert len(rows) == 20 and not {triple(row) for row in rows} & known
    assert ask(run_cli, trained, "--relation", "embassy", "--best", "1000", "--no-new").code == 0
    every = rows_of(run_cli, 2)
    assert len(every) == 14 * 14
    ranks = {triple(row): row["rank"] for row in every}
    assert [row["rank"] for row in rows] == [ranks[triple(row)] for row in rows]
    assert run_cli("report", "1", "--output", "answers.html").code == 0
    page = (run_cli.cwd / "answers.html").read_text()
    assert "? · embassy · ?" in page and f"<td>{rows[0]['head']}</td>" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--head", "Chinna", "--relation", "embassy"), "no entity is named 'Chinna': did you mean 'china'?"),
        (("--head", "usa"), "--relation: missing"),
        (("--head", "usa", "--head", "uk", "--relation", "embassy"), "--head is given twice"),
        (("--relation", "embassy"), "--head: missing, and so is --tail"),
        (("--head", "usa", "--relation", "embassy", "--tail", "uk"), "nothing is asked; leave out one"),
        (("--relation", "embassy", "--head", "usa", "--best", "3"), "scores all pairs; leave out head"),
        (
            ("--head", "usa", "--relation", "embassy", "--output", "x.xls"),
            "must end in .csv, .json, .parquet",
        ),
        (("--head", "usa", "--relation", "embassy", "--candidate-type", "T"), "needs --node-types"),
    ],
)
def test_what_cannot_be_answered_says_so_in_a_line_with_what_to_do(
    run_cli: Console, trained: Path, words: tuple[str, ...], said: str
) -> None:
    done = ask(run_cli, trained, *words)
    assert done.code in (1, 2) and said in done.err
    assert "Traceback" not in done.err + done.out


def test_a_model_of_another_graph_is_refused(run_cli: Console, trained: Path) -> None:
    model = ("--checkpoint-dir", trained / "checkpoints", "--dataset", "umls", "--device", "cpu")
    done = run_cli("run", "predict", *model, "--head", "virus", "--relation", "causes")
    assert done.code == 1 and "Traceback" not in done.err
    assert "is a model of 14 entities; the graph has 135" in done.err


def test_tracin_goes_on_from_the_new_answers_of_a_run(answered: Console) -> None:
    new = [triple(row) for row in rows_of(answered, 1) if row["known"] == "new"]
    how = ("--top", "2", "--top-k", "4", "--learning-rate", "0.01", "--device", "cpu")
    answered.must("run", "tracin", "--from-predictions", "1", "--new", *how)
    shown = answered("influences", "2", "--json").json()
    assert [(one["head"], one["relation"], one["tail"]) for one in shown] == new[:2]
    assert {one["candidates"] for one in shown} == {len(triples_of("train"))}  # all of them, unfiltered
    assert answered("run", "--again", "2").code == 0
    wrong = answered("run", "tracin", "--from-predictions", "2")
    assert wrong.code == 2 and "is a tracin run, not a predict run" in wrong.err
    alone = answered("run", "tracin", "--run", "1", "--new")
    assert alone.code == 2 and "only predictions can be new" in alone.err


def test_without_validation_the_final_model_answers(run_cli: Console) -> None:
    """The newest checkpoint lies an epoch before it."""
    small = ("--embedding-dim", "16", "--output-channels", "2", "--device", "cpu", "--validate-every", "0")
    flags = ("--num-epochs", "3", "--checkpoint-frequency", "2", *small)
    assert run_cli("run", "train", "--dataset", "nations", *flags).code == 0
    output = run_cli.cwd / "answers.json"
    question = ("--head", "usa", "--relation", "embassy", "--output", output)
    run_cli.must("run", "predict", "--run", "1", *question)
    model = Path(json.loads(output.read_text())["model"])
    assert model == run_cli.folder(1) / "results" / "final_model.pt"


@pytest.fixture(scope="module")
def odd_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A home whose run 1 trained on names that begin with a hash, and on names with blanks around them."""
    folder = tmp_path_factory.mktemp("odd-names")
    console = Console(folder / "home", folder)
    hashes = "a\tr\t#1\na\tr\tb\nb\tr\t#1\n#1\tr\ta\n#2\tr\ta\nb\tr\t#2\n"
    blanks = "a\tq \t b\na \tq \tc\nb\tq \ta\nc\tq \t b\n b\tq \tc\n"
    (folder / "graph.txt").write_text(hashes + blanks)
    small = "--embedding-dim 16 --output-channels 2 --device cpu --num-epochs 1"
    console.must("run", "train", "--train", "graph.txt", *small.split())
    yield console
    console.close()


def test_names_that_begin_with_a_hash_are_names(odd_names: Console) -> None:
    """A graph's file has no comments; those that people write have lines without a tab."""
    (odd_names.cwd / "lines.txt").write_text("# two questions\n#1\tr\t?\n#2\tr\t?\n")
    ask_first = ("run", "predict", "--run", "1", "--json")
    run = odd_names.must(*ask_first, "--queries", "lines.txt", "--top-k", "3").json()
    assert {row["head"] for row in rows_of(odd_names, run["id"])} == {"#1", "#2"}
    (odd_names.cwd / "candidates.txt").write_text("# of these two\n#1\nb\n")
    limited = ("--head", "a", "--relation", "r", "--candidates", "candidates.txt")
    run = odd_names.must(*ask_first, *limited).json()
    assert {row["tail"] for row in rows_of(odd_names, run["id"])} == {"#1", "b"}


def test_blanks_around_a_name_belong_to_it(odd_names: Console) -> None:
    """As in the graph's file; around a name that has none they are those of a table."""
    (odd_names.cwd / "lines.txt").write_text("a \tq \t?\n c\tq \t ?\n b\tq\t?\nb\tq \t?\n")
    asked = ("--queries", "lines.txt", "--top-k", "7", "--json")
    predicted = str(odd_names.must("run", "predict", "--run", "1", *asked).json()["id"])
    rows = rows_of(odd_names, int(predicted))
    assert {row["head"] for row in rows} == {"a ", "c", " b", "b"}
    assert {row["tail"] for row in rows} == {"a", "a ", "b", " b", "c", "#1", "#2"}
    traced, explained = (
        odd_names.must("run", workload, "--from-predictions", predicted, "--json").json()
        for workload in ("tracin", "explain")
    )
    assert traced["metric"]["tests"] == 28
    found = odd_names("influences", str(traced["id"]), "--json").json()
    assert sorted(map(triple, found)) == sorted(map(triple, rows))
    assert explained["metric"]["predictions"] == 28
    odd_names.must("run", "explain", "--run", "1", "--triple", "a,q , b", "--device", "cpu")
