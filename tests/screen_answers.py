"""A home for pictures of answers and explanations: a trained model that was asked, and why it answered so."""

from pathlib import Path
from typing import Any

from records import add
from screen_home import ENVIRONMENT, NOW

from kgops.maths.explain.explanation_files import Explained, Fact, Named, NamedPath, write_paths
from kgops.maths.explain.explanation_files import write_csv as write_explanations
from kgops.maths.explain.explanation_files import write_json as write_explanations_json
from kgops.maths.predict.answer_files import Answer, write_csv
from kgops.supervisor.run_folder import RunFolder, folder_name
from storage import attempts, runs
from storage.attempts import Batch, Offsets, Progress, write_batch
from storage.database import Connection, transaction

_ASKED = {"run": 1, "dataset": "umls"}
_QUESTION = {"head": "vitamin", "relation": "treats"}
_TAILS = (
    ("disease_or_syndrome", 3.142, 0.9586, "new"),
    ("neoplastic_process", 2.718, 0.9381, "new"),
    ("mental_or_behavioral_dysfunction", 1.414, 0.8044, "test"),
    ("congenital_abnormality", -0.577, 0.3596, "new"),
    ("sign_or_symptom", -2.236, 0.0966, "new"),
)


def fill_answers(conn: Connection, home: Path) -> None:
    """A training, a question to its model, and the explanation of two answers, verified."""
    with transaction(conn):
        _ended(conn, home, 1, "train", "umls", {"dataset": "umls", "num_epochs": 150}, ("test_mrr", 0.948))
        asked = _ended(
            conn, home, 2, "predict", "vitamin treats ?", {**_ASKED, **_QUESTION}, ("new_answers", 4.0)
        )
        explained = {**_ASKED, "triple": "vitamin\ttreats\tdisease_or_syndrome", "smallest": True}
        why = _ended(conn, home, 3, "explain", "vitamin treats disease_or_syndrome", explained, ("lost", 1.0))
    write_csv(asked / "predictions.csv", [_answer(rank, *tail) for rank, tail in enumerate(_TAILS, 1)])
    write_explanations(why / "explanations.csv", _EXPLAINED)
    write_paths(why / "paths.csv", _EXPLAINED)
    write_explanations_json(why / "explanations.json", {"verified": _SENTENCE}, _EXPLAINED)


def _ended(
    conn: Connection,
    home: Path,
    number: int,
    workload: str,
    label: str,
    settings: dict[str, Any],
    metric: tuple[str, float],
) -> Path:
    """The results folder of a run that succeeded."""
    folder, begun = folder_name(number, workload, label), NOW - 3600.0 + 600.0 * number
    results = RunFolder(home / "runs" / folder).results
    results.mkdir(parents=True)
    job = {"workload": workload, "label": label, workload: settings}
    given = {"workload": workload, "label": label, "folder": folder, "submitted_at": begun - 2}
    add(conn, number, job=job, env=ENVIRONMENT, **given)
    runs.claim(conn, number, gpu=None)
    nobody = {"boot_id": "another boot", "worker_pid": 1, "worker_started": 1, "supervisor_pid": 1}
    attempts.begin(conn, attempts.Attempt(number, 1, started_at=begun, **nobody))  # type: ignore[arg-type]
    done = Progress("predictions", 1, 1, "predictions", 1.0, begun + 30)
    write_batch(conn, number, 1, Batch(progress=done, metric=metric), Offsets())
    attempts.close(
        conn, number, 1, outcome="succeeded", reason=None, exit_code=0, signal=None, ended_at=begun + 31
    )
    runs.end(conn, number, state="succeeded", reason=None, exit_code=0, ended_at=begun + 31)
    return results


def _answer(rank: int, tail: str, score: float, probability: float, known: str) -> Answer:
    names = ("vitamin", "vitamin", "treats", "treats", tail, tail)
    return Answer(1, "tail", float(rank), *names, score, probability, known)


def _named(head: str, relation: str, tail: str) -> Named:
    return Named(head, head, relation, relation, tail, tail)


def _explained(
    number: int, tail: str, facts: list[Fact], ranks: tuple[float, float], **found: Any
) -> Explained:
    before, after = ranks
    retrained = {"retrained": after, "retrained_random": 1.0, "retrained_put_back": 1.5, "retrained_all": 1.0}
    return Explained(
        number,
        _named("vitamin", "treats", tail),
        known="new",
        candidate_facts=118,
        rank_before=before,
        rank_after=after,
        score_before=3.142,
        margin_before=0.42,
        seconds=0.05,
        facts=facts,
        retrained=retrained,
        **found,
    )


_FACTS = [
    Fact(_named("vitamin", "affects", "disease_or_syndrome"), -1.204, "parallel"),
    Fact(_named("pharmacologic_substance", "treats", "disease_or_syndrome"), -0.715, ""),
    Fact(_named("vitamin", "isa", "pharmacologic_substance"), -0.33, ""),
]
_PATHS = [
    NamedPath(
        -0.252,
        [
            Fact(_named("vitamin", "isa", "pharmacologic_substance"), -0.252, ""),
            Fact(_named("pharmacologic_substance", "treats", "disease_or_syndrome"), -0.715, ""),
        ],
    ),
    NamedPath(
        -0.118,
        [
            Fact(_named("vitamin", "affects", "biologic_function"), -0.118, ""),
            Fact(_named("biologic_function", "process_of", "animal"), -0.207, ""),
            Fact(_named("disease_or_syndrome", "occurs_in", "animal"), -0.164, ""),
        ],
    ),
]
_EXPLAINED = [
    _explained(1, "disease_or_syndrome", _FACTS[:2], (1.0, 3.5), lost=True, smallest=True, paths=_PATHS),
    _explained(2, "neoplastic_process", _FACTS[2:], (1.0, 1.0), lost=False, smallest=False),
]
_SENTENCE = (
    "retrained from the start (2 seeds): MRR 0.64 and hits@1 0.50 without the 3 triples of the sets; MRR 1.00 ± 0.00 "
    "and hits@1 1.00 with all triples, which is noise; MRR 1.00 and hits@1 1.00 without 3 random triples of the same "
    "heads and tails; MRR 0.83 and hits@1 0.75 with one triple of each set put back."
)
