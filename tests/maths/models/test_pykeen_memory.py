"""What a worker says, before the first step, that a step of PyKEEN's training loop will hold; and what it does hold."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console
from pykeen.losses import loss_resolver
from pykeen.optimizers import optimizer_resolver
from pykeen.pipeline import pipeline
from pykeen.training import training_loop_resolver
from pykeen.triples import CoreTriplesFactory
from recording import events

from kgops.maths.train.pykeen_engine import find_model
from kgops.maths.train.pykeen_memory import Untraceable, predict_ranking, predict_step, report_prediction
from kgops.maths.trials.variants import peak_live_bytes
from kgops.maths.worker.report import Reporter
from storage import attempts, runs

pytestmark = pytest.mark.filterwarnings("ignore")  # PyKEEN's own affairs

CPU = torch.device("cpu")
# Over 10 drawn settings for each model and loop, and those drawn here, predictions were 0.7 % under to 2 % over.
UNDER, OVER = 0.02, 0.05
LOOPS = ("slcwa", "lcwa")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def drawn(name: str, loop: str, rng: random.Random) -> dict[str, Any]:
    """A small run, as the pipeline would be given it."""
    entities, relations, rows = rng.randint(200, 1500), rng.randint(5, 60), rng.randint(20, 120)
    if loop == "lcwa" and name in ("TransE", "RotatE", "QuatE"):
        rows //= 4  # they hold rows x entities x dimensions
    chance = torch.Generator().manual_seed(rng.getrandbits(30))
    bounds = (entities, relations, entities)
    triples = torch.stack([torch.randint(0, most, (2 * rows,), generator=chance) for most in bounds], 1)
    shape = {"embedding_dim": rng.choice((16, 32, 40))}
    if name == "ConvE":
        shape["output_channels"] = rng.choice((4, 16))
    labels = {"label_smoothing": rng.choice((0.0, 0.1))} if loop == "lcwa" else {}
    return {
        "training": CoreTriplesFactory(
            triples,
            num_entities=entities,
            num_relations=relations,
            create_inverse_triples=name == "ConvE" or rng.random() < 0.3,
        ),
        "model": find_model(name),
        "model_kwargs": shape,
        "optimizer": rng.choice(("adam", "adagrad", "sgd")),
        "optimizer_kwargs": {"lr": 1e-3, "weight_decay": rng.choice((0.0, 1e-4))},
        "training_loop": loop,
        **({"loss": rng.choice(("bcewithlogits", "crossentropy"))} if loop == "lcwa" else {}),
        "training_kwargs": {"num_epochs": 1, "batch_size": rows, "pin_memory": False, **labels},
    }


def measured(pieces: dict[str, Any]) -> int:
    """By PyKEEN's own loop, from the model's first weight to the end of an epoch."""

    def train() -> None:
        training = pieces["training"]
        loss = loss_resolver.make(pieces.get("loss"))
        model = pieces["model"](triples_factory=training, loss=loss, random_seed=1, **pieces["model_kwargs"])
        loop = training_loop_resolver.make(
            pieces["training_loop"],
            model=model,
            triples_factory=training,
            optimizer=optimizer_resolver.make(
                pieces["optimizer"], pieces["optimizer_kwargs"], params=model.get_grad_params()
            ),
        )
        loop.train(triples_factory=training, use_tqdm=False, **pieces["training_kwargs"])

    return peak_live_bytes(train)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", ["TransE", "DistMult", "ComplEx", "RotatE", "TuckER", "ConvE", "QuatE"])
def test_a_prediction_is_what_pykeens_loop_then_holds(name: str, loop: str) -> None:
    rng = random.Random(name + loop)
    for _ in range(2):
        pieces = drawn(name, loop, rng)
        traced = predict_step(pieces, CPU)  # which leaves nothing of itself in what is trained: QuatE's table
        # What a convolution takes inside itself is enough for any CPU, and more than most need.
        real = measured(pieces)
        assert traced.peak / real - 1 > -UNDER, (traced, real, pieces)
        assert (traced.peak - traced.private) / real - 1 < OVER, (traced, real, pieces)


@pytest.mark.parametrize("name", ["TransE", "ComplEx", "TuckER", "ConvE"])
def test_a_whole_run_with_its_ranking_holds_no_more_than_was_predicted(name: str) -> None:
    pieces = drawn(name, "slcwa", random.Random(name))
    training = pieces["training"]
    sizes = {"num_entities": training.num_entities, "num_relations": training.real_num_relations}
    pieces["testing"] = CoreTriplesFactory(training.mapped_triples[:40].flip(0), **sizes)
    step, ranking = predict_step(pieces, CPU), predict_ranking(pieces, CPU)
    assert ranking is not None and predict_ranking(pieces, torch.device("cuda")) is None
    whole = peak_live_bytes(lambda: pipeline(**pieces, device=CPU, random_seed=1, use_tqdm=False))
    # Seen were 0.1 % under to 5.8 % over, where PyKEEN drops a score before the trace does.
    most = max(step, ranking)
    assert most.peak / whole - 1 > -0.02, (step, ranking, whole)
    assert (most.peak - most.private) / whole - 1 < 0.1, (step, ranking, whole)


def test_a_prediction_of_10_gib_takes_no_memory_and_no_random_number() -> None:
    rng = random.Random(5)
    predict_step(drawn("TransE", "slcwa", rng), CPU)  # what an optimizer loads, it would load anyway
    pieces = drawn("ComplEx", "lcwa", rng)
    large = CoreTriplesFactory(
        pieces["training"].mapped_triples,
        num_entities=1_000_000,
        num_relations=60,
        create_inverse_triples=True,
    )
    pieces |= {"training": large, "model_kwargs": {"embedding_dim": 500}}
    pieces["training_kwargs"]["batch_size"] = 64
    before = torch.random.get_rng_state()
    found: list[int] = []
    held = peak_live_bytes(lambda: found.append(predict_step(pieces, CPU).peak))
    assert found[0] > 10 << 30 and held < 1 << 20
    assert torch.equal(before, torch.random.get_rng_state())


def test_what_cannot_be_traced_is_noted_with_the_reason_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGOPS_EVENTS", str(tmp_path / "events.jsonl"))
    report = Reporter(tmp_path)
    pieces = drawn("TransE", "slcwa", random.Random(3))
    graph = {**pieces, "model": find_model("RGCN")}
    with pytest.raises(Untraceable):
        predict_step(graph, CPU)
    report_prediction(graph, CPU, report)
    report_prediction({**pieces, "model_kwargs": {"no_such_setting": 1}}, CPU, report)
    notes = [note["text"] for note in events(tmp_path, "note")]
    assert "RGCN reads the graph's values" in notes[0]
    assert "TypeError" in notes[1] and "no_such_setting" in notes[1]
    assert events(tmp_path, "predicted") == []


def test_what_a_worker_counts_becomes_a_prediction_of_its_process(run_cli: Console) -> None:
    small = ("--embedding-dim", "16", "--batch-size", "256", "--device", "cpu", "--num-epochs", "1")
    named = ("--engine", "pykeen", "--dataset", "nations", "--model", "DistMult")
    done = run_cli("run", "train", *named, *small)  # a busy machine loads PyKEEN for a minute
    assert done.code == 0, done.err
    (told,) = events(run_cli.folder(1), "predicted")
    shown = run_cli.show(1)
    assert told["mib"] >= told["step_mib"] > 0
    own = shown["plan"]["process"]
    beside = own["start_mib"] + own["constant_mib"] + own["data_mib"]
    assert own["kind"] == "train pykeen distmult" and own["data_mib"] > 0
    assert shown["predicted_mib"] == pytest.approx(beside + own["factor"] * told["mib"])
    assert shown["plan"]["forecast"] is None
    page = run_cli("show", "1").out
    assert f"{shown['predicted_mib']:.4g} MiB of the process" in page
    assert f"counted: {told['mib']:.4g} MiB of {told['of']}, by a trace in the worker" in page
    (row,) = run_cli("suggest", "--accuracy", "--json").json()
    assert row["runs"] == 1 and row["median_error"] is not None


def test_what_a_gpu_held_in_a_step_stands_beside_the_prediction(run_cli: Console) -> None:
    told = [
        {
            "event": "predicted",
            "mib": 80,
            "of": "tensors in a training step",
            "by": "a trace",
            "step_mib": 80,
        },
        {"event": "memory", "mib": {"peak_allocated": 100}},
    ]
    script = "".join(f"echo '{json.dumps(event)}' >> $KGOPS_EVENTS\n" for event in told)
    assert run_cli("run", "exec", "--", "sh", "-c", script).code == 0
    line = "80 MiB of tensors in a training step, by a trace (100 MiB measured, +25.0%)"
    assert line in run_cli("show", "1").out


@pytest.mark.parametrize("said_before", [7.0, None])
def test_what_formulas_said_before_the_start_is_not_written_over(
    conn: sqlite3.Connection, said_before: float | None
) -> None:
    plan = {"forecast": said_before and {"predicted_mib": said_before}}
    nothing: dict[str, Any] = dict.fromkeys(("profile", "gpu_request", "reserved_mib"))
    runs.add(
        conn,
        number=1,
        workload="train",
        label="x",
        state="running",
        folder="0001-train",
        submitted_at=0.0,
        exclusive=False,
        predicted_mib=said_before,
        spec=runs.RunSpec({}, plan, {}),
        **nothing,
    )
    attempts.write_batch(conn, 1, 1, attempts.Batch(predicted_mib=90.0), attempts.Offsets())
    found = runs.get(conn, 1)
    assert found is not None and found.predicted_mib == (said_before or 90.0)
