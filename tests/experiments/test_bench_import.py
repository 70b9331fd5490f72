"""What was measured on one machine comes whole into another's record, once; what is damaged is refused by name."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from driving import Console
from fuzzing import examples, refused_or
from hypothesis import given
from hypothesis import strategies as st

from kgops.errors import BadInput
from kgops.experiments.export import import_file
from storage import benches
from storage.benches import Pair
from storage.database import open_writer

THERE = {"machine": {"host": "far", "processor": "P", "cores": 8}, "gpus": None, "packages": {"torch": "2"}}
EXACT = 0.1 + 0.2


def held(conn: sqlite3.Connection) -> int:
    plan = {"variants": [{"name": "a"}, {"name": "b", "varied": {"size": EXACT}}], "rounds": 3}
    number = benches.begin(conn, "matrix j.toml", plan, "kgops bench matrix j.toml", THERE, 1.25)
    of: dict[str, Any] = {
        "seconds_of": "an epoch",
        "memory_of": "resident set",
        "trouble": None,
        "options": {},
    }
    for i in range(3):
        base = {**of, "seconds": EXACT + i, "memory_mib": 100.0, "metrics": {"loss": 1 / 3}}
        told = {**of, "seconds": 2.0, "memory_mib": None, "metrics": {"loss": 1e300}}
        benches.add_pair(conn, number, Pair(i, "b", 7, 8, base, told, 0.125, ("busy: é",), 1e9 / 7))
    benches.end(conn, number, 2.5)
    return number


@pytest.fixture
def elsewhere(tmp_path: Path) -> sqlite3.Connection:
    return open_writer(tmp_path / "elsewhere.db")


def without_numbers(table: dict[str, Any]) -> dict[str, Any]:
    """Those of a benchmark and of runs are another home's."""
    pairs = [{k: v for k, v in pair.items() if not k.endswith("_run")} for pair in table["pair"]]
    return {**{k: v for k, v in table.items() if k != "id"}, "pair": pairs}


def test_a_benchmark_goes_out_and_comes_in_elsewhere_as_it_was_and_once(
    run_cli: Console, conn: sqlite3.Connection, tmp_path: Path
) -> None:
    held(conn)
    file, again = tmp_path / "one.json", tmp_path / "again.json"
    assert run_cli("bench", "export", "1", "--to", "json", "--output", file).code == 0
    other = Console(tmp_path / "other", tmp_path)
    assert other("bench", "import", file).out == "benchmark 1: imported matrix j.toml\n"
    assert other("bench", "export", "1", "--to", "json", "--output", again).code == 0
    before, after = (json.loads(path.read_text()) for path in (file, again))
    assert without_numbers(after) == without_numbers(before)
    # No run of that home is one of this.
    assert [pair["baseline_run"] for pair in after["pair"]] == [None] * 3
    assert "already imported as benchmark 1" in other("bench", "import", file).err
    page = other("bench", "show", "1").out
    assert "P, 8 cores" in page


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda table: table.update(ended_at=None), "not finished"),
        (lambda table: table["pair"][0].update(variant="c"), "'c', which the plan does not have"),
        (lambda table: table["pair"][1].update(round=0), "appears twice"),
        (
            lambda table: table["pair"][0]["measured"].pop("seconds"),
            "neither measurements nor a failure reason",
        ),
        (lambda table: table["pair"][0].update(at=1e99), "not a valid time"),
        (
            lambda table: table.update(fingerprint={"gpus": [1]}),
            "benchmark.fingerprint.gpus[0] is no table",
        ),
        (lambda table: table.pop("plan"), "benchmark.plan is no table"),
    ],
)
def test_a_benchmark_that_cannot_be_is_refused_with_what_is_wrong_and_nothing_is_kept(
    change: Any,
    says: str,
    run_cli: Console,
    conn: sqlite3.Connection,
    elsewhere: sqlite3.Connection,
    tmp_path: Path,
) -> None:
    held(conn)
    table = run_cli("bench", "export", "1", "--to", "json").json()
    change(table)
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(table))
    with pytest.raises(BadInput) as caught:
        import_file(elsewhere, file)
    assert says in caught.value.message and str(file) in caught.value.message
    assert benches.newest(elsewhere) == []


def test_whatever_json_is_given_it_is_read_or_refused_by_its_name(
    elsewhere: sqlite3.Connection, tmp_path: Path
) -> None:
    file = tmp_path / "any.json"
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    keys = st.sampled_from(
        ["name", "plan", "variants", "pair", "fingerprint", "ended_at", "at", "value", "n", "round"]
    )
    anything = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=12
    )

    @examples(150)
    @given(anything)
    def never_worse(body: Any) -> None:
        file.write_text(json.dumps(body))
        refused_or(lambda: import_file(elsewhere, file), file.name)

    never_worse()
