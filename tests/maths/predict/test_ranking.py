"""Answers are ranked as PyKEEN ranks them, ties included; all pairs as by brute force; both in predicted memory."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pykeen.models import ConvE as PykeenConvE
from pykeen.models import DistMult, TransE
from pykeen.predict import predict_target
from pykeen.triples import TriplesFactory

from kgops.maths.graphs.triples import Graph, read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import to_pykeen_state
from kgops.maths.predict.pairs import best_pairs
from kgops.maths.predict.ranking import Answers, Probability, answers, probability_of, realistic_ranks
from kgops.maths.predict.scores import scorer_of
from kgops.maths.trials.variants import peak_live_bytes
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.predict.job import PREDICT_SPARE
from kgops.workloads.predict.plan import PredictShape, ranking
from kgops.workloads.train.models import ConvEConfig

NONE, SOFTMAX = Probability(None), Probability("softmax")


def conve(graph: Graph, *, inverse: bool) -> ConvE:
    """Untrained, in float64, with entities two by two alike: their scores tie."""
    torch.manual_seed(3)
    config = ConvEConfig(
        graph.num_entities, graph.num_relations, inverse, embedding_dim=16, output_channels=3
    )
    model = ConvE(config).double().eval()
    with torch.no_grad():
        model.biases.normal_(std=0.1)
        even = slice(0, graph.num_entities - 1, 2)
        model.entities[1::2] = model.entities[even]
        model.biases[1::2] = model.biases[even]
    return model


def factory_of(graph: Graph, *, inverse: bool = False) -> TriplesFactory:
    ids = graph.entities.ids, graph.relations.ids
    return TriplesFactory(graph.train, *ids, create_inverse_triples=inverse)


def in_pykeen(model: ConvE, graph: Graph) -> tuple[Any, TriplesFactory]:
    c = model.config
    factory = factory_of(graph, inverse=c.inverse)
    sizes = {"embedding_height": c.height, "embedding_width": c.width, "random_seed": 1}
    theirs = PykeenConvE(
        triples_factory=factory, embedding_dim=c.embedding_dim, output_channels=c.output_channels, **sizes
    ).double()
    theirs.load_state_dict(to_pykeen_state(model))
    return theirs.eval(), factory


def drawn(graph: Graph) -> torch.Tensor:
    """Two hundred random questions: (known entity, relation, 1 where heads are asked)."""
    generator = torch.Generator().manual_seed(11)
    sizes = (graph.num_entities, graph.num_relations, 2)
    return torch.stack([torch.randint(n, (200,), generator=generator) for n in sizes], dim=1)


def frames(model: Any, factory: TriplesFactory, asked: torch.Tensor) -> Iterator[Any]:
    for known, relation, heads in asked.tolist():
        given = {"tail": known} if heads else {"head": known}
        found = predict_target(model, relation=relation, triples_factory=factory, **given).df
        yield found.rename(columns={f"{'head' if heads else 'tail'}_id": "entity"})


def ranks_of(frame: Any) -> dict[int, float]:
    """PyKEEN's realistic rank: the mean of the optimistic and the pessimistic one."""
    scores = frame["score"]
    ranks = (scores.rank(ascending=False, method="min") + scores.rank(ascending=False, method="max")) / 2
    return dict(zip(frame["entity"].tolist(), ranks.tolist(), strict=True))


def assert_ranked_alike(found: Answers, frame: Any, top_k: int) -> None:
    ranks = ranks_of(frame)
    assert len(found.entities) == min(top_k, len(frame))
    assert found.ranks.tolist() == [ranks[entity] for entity in found.entities.tolist()]
    assert found.ranks.tolist() == sorted(ranks.values())[: len(found.ranks)]


@pytest.mark.parametrize("name", ["nations", "umls"])
@pytest.mark.parametrize("inverse", [True, False])
@pytest.mark.parametrize("top_k", [5, 1000])
def test_ranks_of_conve_equal_predict_target_on_random_questions_ties_included(
    name: str, inverse: bool, top_k: int
) -> None:
    graph = read_pykeen_dataset(name)
    model = conve(graph, inverse=inverse)
    asked = drawn(graph)
    found = dict(answers(scorer_of(model, 1000), asked, top_k, NONE))
    ties = 0
    for row, frame in enumerate(frames(*in_pykeen(model, graph), asked)):
        assert_ranked_alike(found[row], frame, top_k)
        ties += any(rank % 1 for rank in found[row].ranks.tolist())
    assert ties > 20  # else nothing would have been tested of them


@pytest.mark.parametrize("kind", [DistMult, TransE])
@pytest.mark.parametrize("chunk", [5, 1000])
def test_ranks_of_pykeens_models_equal_predict_target(nations: Graph, kind: Any, chunk: int) -> None:
    factory = factory_of(nations)
    model = kind(triples_factory=factory, embedding_dim=8, random_seed=1).eval()
    asked = drawn(nations)
    found = dict(answers(scorer_of(model, chunk), asked, 6, NONE))
    for row, frame in enumerate(frames(model, factory, asked)):
        assert_ranked_alike(found[row], frame, 6)
        assert found[row].scores.tolist() == frame["score"].tolist()[:6]


def test_candidates_are_ranked_among_themselves_and_what_is_left_out_keeps_its_rank(nations: Graph) -> None:
    scorer = scorer_of(conve(nations, inverse=True), 1000)
    asked = torch.tensor([[2, 7, 0]])
    ((_, every),) = answers(scorer, asked, 100, NONE)
    some = torch.tensor([0, 2, 9, 12])
    ((_, among),) = answers(scorer, asked, 100, NONE, candidates=some)
    kept = torch.isin(every.entities, some)
    assert among.entities.tolist() == every.entities[kept].tolist()
    assert among.ranks.tolist() == realistic_ranks(every.scores[kept], torch.empty(0)).tolist()
    left_out = every.entities[:3]
    ((_, rest),) = answers(scorer, asked, 4, NONE, left_out=[left_out])
    assert rest.entities.tolist() == every.entities[3:7].tolist()
    assert rest.ranks.tolist() == every.ranks[3:7].tolist()


def test_softmax_is_a_share_among_all_entities_and_sigmoid_is_of_one_triple(nations: Graph) -> None:
    scorer = scorer_of(conve(nations, inverse=True), 1000)
    asked = torch.tensor([[2, 7, 1]])
    softmax, sigmoid = (probability_of({"name": name}, None) for name in ("1vsall-ce", "kvsall-bce"))
    ((_, shares),) = answers(scorer, asked, 100, softmax)
    assert shares.probabilities is not None
    assert float(shares.probabilities.sum()) == pytest.approx(1)
    ((_, few),) = answers(scorer, asked, 100, softmax, candidates=torch.tensor([1, 2]))
    assert few.probabilities is not None and float(few.probabilities.sum()) < 0.9
    ((_, single),) = answers(scorer, asked, 100, sigmoid)
    assert single.probabilities is not None
    torch.testing.assert_close(single.probabilities, torch.sigmoid(single.scores))


def test_a_loss_with_a_margin_defines_no_probability(nations: Graph) -> None:
    made: dict[str, Any] = {"triples_factory": factory_of(nations), "random_seed": 1}
    assert probability_of(None, TransE(**made)).kind is None
    assert probability_of({"name": None}, DistMult(**made, loss="bcewithlogits")).kind == "sigmoid"
    assert probability_of(None, DistMult(**made, loss="crossentropy")).kind == "softmax"


@pytest.mark.parametrize("inverse", [True, False])
@pytest.mark.parametrize("chunk", [7, 1000])
@pytest.mark.parametrize("some", [False, True])
def test_best_pairs_are_those_of_brute_force(inverse: bool, chunk: int, some: bool) -> None:
    graph = read_pykeen_dataset("umls")
    model, n, relation = conve(graph, inverse=inverse), graph.num_entities, 5
    with torch.no_grad():
        model.entities.normal_()  # without ties, so that there is one order
        every = model(torch.arange(n), torch.full((n,), 2 * relation if inverse else relation))
    left_out = torch.arange(0, n * n, 3)
    tails = torch.arange(0, n, 2)
    expected = every.clone()
    expected.view(-1)[left_out] = -torch.inf
    expected[:, 1::2] = -torch.inf
    heads = torch.arange(1, n, 3) if some else torch.arange(n)
    expected[~torch.isin(torch.arange(n), heads)] = -torch.inf
    scores, keys = expected.view(-1).topk(50)
    limits: dict[str, Any] = {"left_out": left_out, "heads": heads if some else None, "tails": tails}
    best = best_pairs(scorer_of(model, 1000), relation, 50, SOFTMAX, chunk=chunk, **limits)
    assert best is not None
    of, found = best
    assert found.probabilities is not None
    assert (of * n + found.entities).tolist() == keys.tolist()
    torch.testing.assert_close(found.scores, scores)
    candidates = every[heads, ::2]
    assert found.ranks.tolist() == [1 + int((candidates > score).sum()) for score in scores]
    shares = every.softmax(dim=1)[of, found.entities]
    torch.testing.assert_close(found.probabilities, shares)


def test_best_pairs_of_pykeens_models_are_those_of_brute_force(nations: Graph) -> None:
    model = TransE(triples_factory=factory_of(nations), embedding_dim=8, random_seed=1).eval()
    n = nations.num_entities
    with torch.no_grad():
        every = model.predict_t(torch.stack([torch.arange(n), torch.full((n,), 3)], dim=1))
    best = best_pairs(scorer_of(model, 4), 3, 20, NONE, chunk=4)
    assert best is not None
    heads, found = best
    assert found.probabilities is None
    # Pairs of an entity with itself all score alike, so scores are compared, not their order.
    torch.testing.assert_close(found.scores, every.view(-1).topk(20).values)
    torch.testing.assert_close(found.scores, every[heads, found.entities])


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
