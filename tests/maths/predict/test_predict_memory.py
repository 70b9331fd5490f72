"""Memory of answers and of all pairs: at most what was predicted, and bounded by chunks."""

from __future__ import annotations

import pytest
import torch

from kgops.maths.models.conve import ConvE
from kgops.maths.predict.pairs import best_pairs
from kgops.maths.predict.ranking import Probability, answers
from kgops.maths.predict.scores import scorer_of
from kgops.maths.trials.variants import peak_live_bytes
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.predict.job import PREDICT_SPARE
from kgops.workloads.predict.plan import PredictShape, ranking
from kgops.workloads.train.models import ConvEConfig

SOFTMAX = Probability("softmax")


def model(entities: int, *, inverse: bool = True) -> ConvE:
    torch.manual_seed(0)
    made = ConvE(ConvEConfig(entities, 4, inverse, embedding_dim=32, output_channels=8)).eval()
    with torch.no_grad():
        made.entities.normal_()
    return made


def predicted(shape: PredictShape) -> int:
    return max(parts.total() for parts in ranking(shape))


@pytest.mark.parametrize("inverse", [True, False])
@pytest.mark.parametrize(
    ("entities", "questions", "top_k"), [(3000, 300, 20), (3000, 1, 50), (500, 700, 400)]
)
def test_answers_take_at_most_what_was_predicted(
    inverse: bool, entities: int, questions: int, top_k: int
) -> None:
    made = model(entities, inverse=inverse)
    asked = torch.stack([torch.randint(n, (questions,)) for n in (entities, 4, 2)], dim=1)
    kept = min(entities, top_k + PREDICT_SPARE)
    shape = PredictShape(
        made.config, False, Counts(entities, 4, 0), questions, kept, top_k, pairs=False, chunk=4096
    )
    taken = peak_live_bytes(lambda: list(answers(scorer_of(made, 4096), asked, top_k, SOFTMAX)))
    assert taken < 1.1 * predicted(shape)
    if inverse:  # without inverse relations it depends on whether heads are asked
        assert taken > 0.3 * predicted(shape)


@pytest.mark.parametrize("chunk", [256, 4096])
def test_all_pairs_take_at_most_what_was_predicted_whatever_their_number(chunk: int) -> None:
    taken = []
    for entities in (6000, 12_000):
        made = model(entities)
        shape = PredictShape(
            made.config, False, Counts(entities, 4, 0), 1, 500, 500, pairs=True, chunk=min(chunk, entities)
        )
        scorer = scorer_of(made, chunk)

        def find(scorer: object = scorer) -> None:
            best_pairs(scorer, 1, 500, Probability("sigmoid"), chunk=chunk)  # type: ignore[arg-type]

        taken.append(peak_live_bytes(find))
        assert taken[-1] < 1.1 * predicted(shape)
    assert taken[1] < 1.1 * taken[0]
