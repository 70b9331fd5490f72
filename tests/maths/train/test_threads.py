"""How many threads a worker computes with, and whether they spin while they wait."""

from __future__ import annotations

import re

import pytest
from driving import Console
from recording import events

from kgops.workloads.train.models import ConvEConfig, step_gflop, threads_for


def test_the_number_of_threads_depends_on_step_size_and_cores_alone() -> None:
    nations_small = step_gflop(ConvEConfig(14, 55, embedding_dim=32, output_channels=4), 128)
    fb15k237 = step_gflop(ConvEConfig(14_541, 237), 256)
    assert nations_small < 0.01 and 5 < fb15k237 < 10
    assert [threads_for(nations_small, cores) for cores in (1, 2, 64)] == [1, 1, 1]
    assert [threads_for(fb15k237, cores) for cores in (1, 2, 8)] == [1, 2, 8]


@pytest.mark.parametrize(
    ("flags", "theirs", "spins"),
    [
        (["--exclusive"], {}, "10000"),
        (["--exclusive"], {"GOMP_SPINCOUNT": "7"}, "7"),
        (["--exclusive"], {"GOMP_SPINCOUNT": "0"}, "0"),
        (["--exclusive"], {"OMP_WAIT_POLICY": "PASSIVE"}, None),
        ([], {}, None),
    ],
)
def test_threads_of_a_run_that_has_the_cpus_to_itself_spin(
    run_cli: Console,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    theirs: dict[str, str],
    spins: str | None,
) -> None:
    heavy = ("--batch-size", "256", "--embedding-dim", "200", "--num-epochs", "1")
    for ours in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):  # of whoever tests, or of a worker imported here
        monkeypatch.delenv(ours, raising=False)
    run = run_cli("run", "train", "--dataset", "nations", *heavy, *flags, "--json", env=theirs).json()
    assert run["environment"]["variables"].get("GOMP_SPINCOUNT") == spins
    said = [event["text"] for event in events(run_cli.folder(run["id"]), "note")]
    (note,) = [text for text in said if re.match(r"using \d+ of", text)]
    assert ("which spin while they wait" in note) == (
        spins not in (None, "0") and not note.startswith("using 1 ")
    )
