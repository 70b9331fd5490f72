"""An output folder of the group's scripts, with TracIn's tables, becomes a run that says what the files say."""

import csv
import json
import os
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from driving import Console

from kgops.errors import KgopsError
from kgops.interchange import importing
from kgops.interchange.import_scores import HEADER, MOST
from kgops.interchange.importing import Imported
from kgops.settings import Home
from storage import influences, reports, runs, series

UNFINISHED = "interrupted", "its files do not show that it finished"


def import_from(conn: sqlite3.Connection, home: Path, path: Path, *, again: bool = False) -> Imported:
    (one,) = importing.import_from(Home(home), conn, path, again=again)
    return one


def imported(conn: sqlite3.Connection, home: Path, path: Path) -> runs.Run:
    """The run that a folder becomes, which is known not to be one yet."""
    one = import_from(conn, home, path)
    assert one.number is not None and one.known == ()
    run = runs.get(conn, one.number)
    assert run is not None
    return run


def write(folder: Path, **files: Any) -> Path:
    """Files by their names without `.json`."""
    folder.mkdir(exist_ok=True)
    for name, body in files.items():
        (folder / f"{name}.json").write_text(body if isinstance(body, str) else json.dumps(body))
    return folder


def curves(conn: sqlite3.Connection, run: int) -> dict[str, list[tuple[float, float | None]]]:
    return {
        one.name: [(p.step, p.value) for p in series.points(conn, run, one.name)]
        for one in series.of_run(conn, run)
    }


# --- training -------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    folder = write(
        tmp_path / "robokop größe",
        config={
            "model": {"embedding_dim": 200, "num_entities": 14},
            "training": {"batch_size": 512, "learning_rate": 1e-3},
            "optimizations": {
                "use_mixed_precision": True,
                "compile": {"asked": "default", "applied": "off", "reason": "no CUDA device"},
            },
        },
        training_history='{"train_loss": [0.5, NaN, 0.25], "val_mrr": [0.1, 0.2, 0.3], "best_epoch": 3}',
        test_results={
            "both": {"mrr": 0.31, "hits_at_10": 0.5, "count": 7},
            "head": {"mrr": 0.2},
            "note": "x",
        },
    )
    (folder / "final_model.pt").write_bytes(b"weights")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "checkpoint_epoch_0000002.pt").write_bytes(b"older weights")
    (folder / "thesis.docx").write_bytes(b"not of the run")
    os.mkfifo(folder / "tracin.csv")
    return folder


def test_documented_booleans_are_read_wherever_a_config_has_them(
    conn: sqlite3.Connection, home: Path, tmp_path: Path
) -> None:
    config = {
        "use_mixed_precision": True,
        "training": {"batch_size": 512, "use_gradient_checkpointing": False},
        "optimizations": {"enable_memory_cleanup": True},
    }
    theirs = write(tmp_path / "theirs", config=config, training_history={"train_loss": [0.5, 0.25]})
    run = imported(conn, home, theirs)
    found = {
        option.name: (option.requested, option.applied, option.effect)
        for option in reports.options(conn, run.id)
    }
    assert found == {
        "use_mixed_precision": ("on", None, "rounding"),
        "use_gradient_checkpointing": ("off", None, "exact"),
        "enable_memory_cleanup": ("on", None, "exact"),
    }
    assert runs.spec(conn, run.id).job["train"] == {"batch_size": 512}


def test_a_training_folder_becomes_a_run_with_its_curves_metrics_options_and_files(
    conn: sqlite3.Connection, home: Path, trained: Path
) -> None:
    run = imported(conn, home, trained)
    assert (run.workload, run.state, run.label) == ("train", "succeeded", "robokop größe")
    assert curves(conn, run.id) == {
        "train_loss": [(1, 0.5), (2, None), (3, 0.25)],
        "val_mrr": [(1, 0.1), (2, 0.2), (3, 0.3)],
    }
    of_test = {"test_mrr": 0.31, "test_hits_at_10": 0.5, "test_count": 7, "test_head_mrr": 0.2}
    assert reports.metrics(conn, run.id) == {"best_epoch": 3, **of_test}
    options = {option.name: option for option in reports.options(conn, run.id)}
    assert (options["compile"].requested, options["compile"].applied) == ("default", "off")
    asked = options["use_mixed_precision"]
    assert (asked.requested, asked.applied) == ("on", None) and "is unknown" in (asked.reason or "")
    assert asked.effect == "rounding"
    settings = {"embedding_dim": 200, "num_entities": 14, "batch_size": 512, "learning_rate": 1e-3}
    assert runs.spec(conn, run.id).job["train"] == settings
    folder = home / "runs" / run.folder / "results"
    kept = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert kept == [
        *("checkpoints/checkpoint_epoch_0000002.pt", "config.json", "final_model.pt"),
        *("test_results.json", "training_history.json"),
    ]
    assert {one.path for one in reports.artifacts(conn, run.id)} == {f"results/{name}" for name in kept}


def test_what_nobody_wrote_down_is_unknown_and_the_run_says_where_it_came_from(
    conn: sqlite3.Connection, home: Path, trained: Path
) -> None:
    run = imported(conn, home, trained)
    nobody_knows = (run.started_at, run.exit_code, run.peak_host_mib, run.gpu, run.predicted_mib, run.profile)
    assert set(nobody_knows) == {None} and run.attempts == 0
    assert runs.spec(conn, run.id).environment == {} and runs.spec(conn, run.id).plan == {}
    newest = max(path.stat().st_mtime for path in trained.rglob("*") if path.suffix in (".json", ".pt"))
    assert run.ended_at == newest
    (mark,) = reports.events(conn, run.id, kinds=("imported",))
    assert mark.body["source"] == str(trained) and mark.body["kind"] == "output"


def test_the_same_folder_twice_says_so_even_when_it_was_moved(
    conn: sqlite3.Connection, home: Path, trained: Path
) -> None:
    first = imported(conn, home, trained).id
    moved = trained.rename(trained.parent / "elsewhere")
    second = import_from(conn, home, moved)
    assert second.number is None and second.known == (first,)
    third = import_from(conn, home, moved, again=True)
    assert third.number not in (None, first)
    write(moved, test_results={"mrr": 0.32})
    assert import_from(conn, home, moved).number is not None


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([{"epoch": 2, "loss": 1}, {"epoch": 4, "loss": 0.5, "valid": {"both": {"mrr": 0.2}}}],
         {"loss": [(2, 1), (4, 0.5)], "valid_mrr": [(4, 0.2)]}),
        ([{"loss": 3.0, "lr": None}], {"loss": [(1, 3)]}),
        ({"train": {"loss": [2, 1]}, "epochs": [10, 20]}, {"train_loss": [(10, 2), (20, 1)]}),
        ({"val": [{"mrr": 0.1, "hits": {"10": 0.4}}]}, {"val_mrr": [(1, 0.1)], "val_hits_10": [(1, 0.4)]}),
        ({"loss": ["a", True, 1e999, 2]}, {"loss": [(3, None), (4, 2)]}),
        ([], {}),
    ],
)  # fmt: skip
def test_a_history_is_read_however_it_is_written(
    conn: sqlite3.Connection, home: Path, tmp_path: Path, history: Any, expected: dict[str, Any]
) -> None:
    run = imported(conn, home, write(tmp_path / "out", training_history=history))
    assert curves(conn, run.id) == expected


def test_a_training_whose_end_nobody_wrote_is_no_success(
    conn: sqlite3.Connection, home: Path, tmp_path: Path
) -> None:
    run = imported(conn, home, write(tmp_path / "out", training_history=[{"loss": 1.0}]))
    assert (run.state, run.reason) == UNFINISHED


# --- what cannot be read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("training_history.json", '{"loss": [1,', "not JSON at line 1"),
        ("training_history.json", "7", "neither a list of epochs nor a table of lists"),
        ("training_history.json", "[1]", "entry 1 is not a table"),
        ("training_history.json", b"\xff{}", "not UTF-8 at byte 0"),
        ("training_history.json", '{"\\ud800": [1]}', "half a surrogate pair"),
        ("training_history.json", "[" * 100_000, "nested too deeply"),
        ("training_history.json", "[" + "9" * 5000 + "]", "digits"),
        ("test_results.json", "[]", "expected a table, found list"),
        ("batch_tracin_summary.json", "null", "expected a table, found NoneType"),
        ("x_tracin.csv", ",".join(HEADER) + "\na,b\n", "line 2: 2 fields, where TracIn's table has 13"),
        (
            "x_tracin.csv",
            ",".join(HEADER) + "\n" + "a," * 12 + "much\n",
            "line 2: the score is not a number: 'much'",
        ),
        ("x_tracin.csv", ",".join(HEADER[:12]) + ",Points\n", "line 1: the header is"),
        ("x_tracin.csv", ",".join(HEADER) + '\n"a', "line 2: unexpected end of data"),
    ],
)
def test_a_damaged_file_is_named_with_its_reason_and_nothing_is_kept(
    conn: sqlite3.Connection, home: Path, trained: Path, name: str, text: str | bytes, said: str
) -> None:
    (trained / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(KgopsError) as error:
        import_from(conn, home, trained)
    assert str(trained / name) in error.value.message and said in error.value.message
    assert runs.count(conn) == 0 and list((home / "runs").iterdir()) == []


def test_a_folder_that_is_none_of_these_is_refused(
    conn: sqlite3.Connection, home: Path, tmp_path: Path
) -> None:
    for path in (write(tmp_path / "only-config", config={"a": 1}), tmp_path / "nothing"):
        with pytest.raises(KgopsError):
            import_from(conn, home, path)


def test_commands_show_an_imported_run_as_any_other(run_cli: Console, trained: Path, tmp_path: Path) -> None:
    done = run_cli.must("import", trained)
    assert done.out == "run 1: imported train output, succeeded: robokop größe\n"
    for words in (("show", "1"), ("runs", "mrr>0.3"), ("report", "1"), ("logs", "1"), ("runs", "--json")):
        done = run_cli.must(*words)
    assert "test_mrr" in (tmp_path / "run-1.html").read_text()
    assert run_cli("runs", "mrr>0.3", "--json").json()[0]["id"] == 1
    assert run_cli("delete", "1", "--yes").code == 0
    assert list((run_cli.home / "runs").iterdir()) == []


def test_what_was_trained_elsewhere_is_traced_here_with_the_same_scores(
    run_cli: Console, tmp_path: Path
) -> None:
    one_thread = {"OMP_NUM_THREADS": "1"}
    small = ("--dataset", "nations", "--num-epochs", "2", "--embedding-dim", "32")
    flags = (*small, "--checkpoint-frequency", "1", "--output-dir", "out")
    assert run_cli("run", "train", *flags, env=one_thread).code == 0
    elsewhere = Console(tmp_path / "other-home", tmp_path)
    assert elsewhere("import", "out").code == 0
    traced = [
        console("run", "tracin", "--run", "1", "--test-triple", "usa", "embassy", "china", env=one_thread)
        for console in (run_cli, elsewhere)
    ]
    assert [done.code for done in traced] == [0, 0]
    here, there = (console("influences", "2", "--json").json() for console in (run_cli, elsewhere))
    assert here == there and here


TREATS = ("CHEBI:34911", "predicate:28", "MONDO:0004525")
OTHER = ("CHEBI:7963", "predicate:28", "MONDO:0016595")
NAMES = {
    "CHEBI:34911": "Permethrin",
    "predicate:28": "biolink:treats",
    "predicate:29": "biolink:affects",
    "MONDO:0004525": 'scabies, "the itch"',
}


def write_scores(path: Path, test: tuple[str, ...], scores: list[float]) -> list[tuple[str, float]]:
    """As run_tracin.py does; the training triples are told apart by their heads."""
    rows = [(f"NCBIGene:{i}", score) for i, score in enumerate(scores)]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(HEADER)
        for head, score in rows:
            names = {**NAMES, head: f"gene {head[9:]}"}
            labels = (*test, head, "predicate:29", test[2])
            cells = [cell for label in labels for cell in (label, names.get(label, label))]
            out.writerow([*cells, repr(score)])
    return rows


def group_line(index: int, triple: tuple[str, ...], **told: Any) -> dict[str, Any]:
    return {"index": index, "triple": dict(zip(("head", "relation", "tail"), triple, strict=True)), **told}


def test_a_batch_of_the_groups_script_becomes_a_run_with_influences(
    conn: sqlite3.Connection, home: Path, tmp_path: Path
) -> None:
    generator = random.Random(7)
    scores = [generator.gauss(0, 1) for _ in range(400)]
    counted = {"total_triples": 2, "successful": 1, "failed_tracin": 1, "elapsed_time_seconds": 3.5}
    folder = write(
        tmp_path / "batch",
        batch_tracin_summary={
            **counted,
            "elapsed_time_formatted": "0h 0m 4s",
            "filter_method": "pyg",
            "results": [
                group_line(0, TREATS, filtering_success=True, tracin_success=True),
                group_line(4, OTHER, filtering_success=True, tracin_success=False),
            ],
        },
    )
    rows = write_scores(folder / "triple_000_CHEBI_34911_MONDO_0004525_tracin.csv", TREATS, scores)
    run = imported(conn, home, folder)
    assert (run.workload, run.state) == ("tracin", "succeeded")
    first, second = influences.tests_of(conn, run.id)
    assert (first.test, (first.head, first.relation, first.tail), first.trouble) == (0, TREATS, None)
    assert (second.test, second.trouble) == (4, "TracIn failed")
    found = influences.of_test(conn, run.id, 0)
    best = sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])[:MOST]
    worst = sorted((row for row in rows if row[1] < 0), key=lambda row: row[1])[:MOST]
    assert [(i.head, i.score) for i in found if i.rank > 0] == best
    assert [(i.head, i.score) for i in sorted(found, key=lambda i: -i.rank) if i.rank < 0] == worst
    assert influences.names(conn, run.id)["MONDO:0004525"] == NAMES["MONDO:0004525"]
    assert reports.metrics(conn, run.id) == counted


@pytest.mark.parametrize("what", ["cut", "two"])
def test_scores_that_may_not_be_all_do_not_show_that_it_finished(
    conn: sqlite3.Connection, home: Path, tmp_path: Path, what: str
) -> None:
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "tracin.csv"
    write_scores(path, TREATS, [1.0, -2.25])
    if what == "cut":
        path.write_bytes(path.read_bytes().rstrip()[:-1])  # a number that still is one
    else:
        write_scores(tmp_path / "out" / "other_tracin.csv", OTHER, [1.0])
    run = imported(conn, home, tmp_path / "out")
    assert (run.state, run.reason) == UNFINISHED


def test_a_batch_in_which_all_failed_has_failed(conn: sqlite3.Connection, home: Path, tmp_path: Path) -> None:
    lines = [group_line(i, triple, filtering_success=False) for i, triple in enumerate((TREATS, OTHER))]
    run = imported(conn, home, write(tmp_path / "out", batch_tracin_summary={"results": lines}))
    assert (run.state, run.reason) == ("failed", "its summary says that all 2 test triples failed")
