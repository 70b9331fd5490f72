"""New run holds a whole job: settings without a field of their own are typed as name=value."""

import pytest

from kgops.present.draft_fields import BadField
from kgops.present.drafts import Draft, draft_of, job_of
from kgops.workloads.job_files import read_job


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "ComplEx", "embedding_dim": 100, "regularizer": "n3", "regularizer_weight": 0.003},
        {"model": "DistMult", "relation_prediction": 1.5, "inverse": False, "optimizer": "adagrad"},
        {"group_queries": True, "loss": "1vsall-ce", "label_smoothing": 0.0, "input_dropout": 0.35},
    ],
)
def test_the_form_starts_the_job_that_it_was_filled_from(settings: dict[str, object]) -> None:
    job = read_job({"workload": "train", "train": {"dataset": "umls", **settings}}, "a test")
    draft, left_out = draft_of(job)
    assert left_out == ""
    again = job_of(draft)
    assert (again.settings, again.options) == (job.settings, job.options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("regularizer=n4", "n3"),
        ("regulariser=n3", "did you mean 'regularizer'?"),
        ("inverse=maybe", "found 'maybe'"),
        ("relation_prediction", "expected relation_prediction=value"),
        ("'n3", "cannot be read"),
    ],
)
def test_a_wrong_setting_is_an_error_of_its_field(text: str, said: str) -> None:
    draft = Draft(fields={"data": "umls", "model": "ComplEx", "more": text})
    with pytest.raises(BadField) as error:
        job_of(draft)
    assert error.value.field == "more" and said in error.value.message
