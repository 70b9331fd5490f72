"""An option that would have no effect beside another one is refused, in one line that names both."""

from typing import Any

import pytest

from kgops.errors import BadJob
from kgops.workloads.job_files import read_job

TRACED = {"run": 1}
EXPLAINED = {"run": 1, "triple": "a,b,c"}
ASKED = {"run": 1, "relation": "r"}
TRAINED = {"dataset": "nations"}


def problems_of(workload: str, **settings: Any) -> list[str]:
    try:
        read_job({"workload": workload, workload: settings}, "job.toml")
    except BadJob as error:
        return error.problems
    return []


@pytest.mark.parametrize(
    ("mode", "void"),
    [
        ({"self_influence": True}, {"validate": 3}),
        ({"self_influence": True}, {"test_triple": "a,b,c"}),
        ({"self_influence": True}, {"test_triples": "t.tsv"}),
        ({"self_influence": True}, {"max_triples": 3}),
        ({"self_influence": True}, {"n_hops": 3}),
        ({"skip_tracin": True}, {"self_influence": True}),
        ({"skip_tracin": True}, {"validate": 3}),
        ({"skip_tracin": True}, {"layers": ["conv"]}),
        ({"skip_tracin": True}, {"score": "cosine"}),
        ({"skip_tracin": True}, {"top_k": 3}),
        ({"test_triple": "a,b,c"}, {"start_index": 5}),
        ({"test_triple": "a,b,c"}, {"max_triples": 5}),
        ({"run": 1}, {"max_total_path_length": 3}),
    ],
)
def test_of_two_tracin_options_the_one_without_effect_is_refused(
    mode: dict[str, Any], void: dict[str, Any]
) -> None:
    assert problems_of("tracin", **{**TRACED, **mode}) == []
    ((name, _),) = void.items()
    (problem,) = problems_of("tracin", **{**TRACED, **mode, **void})
    assert problem.startswith(f"tracin.{name}: ")


@pytest.mark.parametrize("workload", ["tracin", "explain"])
def test_predictions_name_their_own_model_and_triples(workload: str) -> None:
    triples = {"tracin": "test_triples", "explain": "triples"}[workload]
    assert problems_of(workload, from_predictions=3) == []
    for name, value in (("run", 2), (triples, "t.tsv")):
        (problem,) = problems_of(workload, **{"from_predictions": 3, name: value})
        assert problem.startswith(f"{workload}.{name}: given together with from_predictions")
    # A job that was filled has all of them, and is read again by its worker.
    filled = {"run": 2, triples: "t.tsv", "checkpoint_dir": "c", "model_path": "m.pt", "dataset": "nations"}
    assert problems_of(workload, from_predictions=3, **filled) == []


@pytest.mark.parametrize(
    ("workload", "settings", "said"),
    [
        ("explain", {**EXPLAINED, "verify_seeds": 3}, "explain.verify_seeds: nothing is retrained"),
        ("explain", {**EXPLAINED, "max_triples": 3}, "explain.max_triples: triple is one prediction"),
        ("predict", {**ASKED, "best": 5, "top_k": 3}, "predict.top_k: best says how many"),
        ("train", {**TRAINED, "validate_every": 0, "patience": 3}, "train.patience: counts validations"),
        (
            *("train", {**TRAINED, "validate_every": 0, "schedule": "plateau"}),
            "train.schedule: counts validations",
        ),
        ("train", {**TRAINED, "schedule_factor": 0.5}, "train.schedule_factor: only for the schedule"),
        ("train", {**TRAINED, "schedule_patience": 2}, "train.schedule_patience: only for the schedule"),
    ],
)
def test_what_would_be_accepted_without_effect_is_refused(
    workload: str, settings: dict[str, Any], said: str
) -> None:
    (problem,) = problems_of(workload, **settings)
    assert problem.startswith(said)


def test_what_has_an_effect_together_is_accepted() -> None:
    assert problems_of("explain", **EXPLAINED, verify=True, verify_seeds=3) == []
    assert problems_of("explain", **EXPLAINED, smallest=True, verify_seeds=3) == []
    assert problems_of("predict", **ASKED, best=5) == []
    assert problems_of("train", **TRAINED, schedule="plateau", schedule_factor=0.5, patience=3) == []
    assert problems_of("tracin", **TRACED, test_triples="t.tsv", start_index=5, skip_tracin=True) == []
