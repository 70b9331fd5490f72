"""Cosine and Fisher scores beside plain autograd in float64, over shapes and losses."""

import pytest
import sequential_tracin
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pykeen.models import model_resolver
from pykeen.triples import CoreTriplesFactory
from test_tracin_factors import configs, losses, off, vector_configs, warm
from torch import nn

from kgops.maths.models.conve import ConvE
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.pykeen_bridge import own_vectors
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.curvature import DAMPING, Damped, Queries, Training, drawn_labels
from kgops.maths.tracin.engines import engine_for
from kgops.maths.tracin.loss import LOGIT, TARGET, TracinLoss
from kgops.maths.tracin.models import chosen_parameters
from kgops.maths.tracin.scan import AllScores, Scoring
from kgops.maths.train.batches import inverse_triples, query_rows
from kgops.workloads.train.models import ConvEConfig, ModelConfig, VectorConfig

# Relation ids as in files; heads and tails occur again as each other, and one triple is a loop.
TRAIN = torch.tensor([[0, 1, 2], [0, 1, 3], [5, 0, 1], [2, 1, 0], [1, 0, 5], [4, 0, 4], [7, 0, 6], [6, 1, 2]])
# Many rows of few queries: one test triple is scored by tangents.
SHARED = torch.tensor([[0, 1, 2], [0, 1, 3], [0, 1, 5], [0, 1, 0], [0, 1, 7]])
TESTS = torch.tensor([[0, 1, 2], [2, 1, 3], [0, 1, 7], [6, 0, 0], [4, 0, 4]])
Gradients = dict[str, torch.Tensor]


def fisher(model: EntityModel, training: Training, train: torch.Tensor, tests: torch.Tensor) -> torch.Tensor:
    how = Settings(chunk=5, score="fisher", training=training)
    engine = engine_for(TracinCheckpoint(model, 0.25), TARGET, how)
    return engine.scores(engine.keep(tests), train)


def gradients(model: EntityModel, rows: torch.Tensor, loss: TracinLoss = LOGIT) -> list[Gradients]:
    names = [name for name, _ in model.named_parameters()]
    return [dict(zip(names, sequential_tracin.loss_gradient(model, loss, row), strict=True)) for row in rows]


def training_gradients(
    model: EntityModel, train: torch.Tensor = TRAIN, loss: TracinLoss = LOGIT
) -> list[Gradients]:
    """Of each triple, with its inverse."""
    both = [query_rows(train, True), inverse_triples(train)]
    ours, theirs = (gradients(model, rows, loss) for rows in both)
    return [{name: a[name] + b[name] for name in a} for a, b in zip(ours, theirs, strict=True)]


def inner(a: Gradients, b: Gradients) -> torch.Tensor:
    return torch.stack([(a[name] * b[name]).sum() for name in a]).sum()


class Reference:
    """The Fisher blocks from one backward pass for each training query."""

    def __init__(self, model: EntityModel, training: Training) -> None:
        self.model = model
        rows = torch.cat([query_rows(TRAIN, True), inverse_triples(TRAIN)])
        self.queries = Queries.of(rows, training.kind, training.one_positive)
        self.kind = training.kind
        self.all = self.samples(torch.arange(len(self.queries.rows)), 0)

    def samples(self, at: torch.Tensor, seed: int) -> list[Gradients]:
        draw = torch.Generator().manual_seed(seed)
        at = at[torch.randperm(len(at), generator=draw)]
        rows, model = self.queries.rows[at], self.model
        planes = model(rows[:, 0], rows[:, 1]).detach()
        p = planes.sigmoid() if self.kind == "bce" else planes.softmax(1)
        deltas = p - drawn_labels(p, self.kind, draw)
        weights = self.queries.weights[at].double()
        return [self.sample(*one) for one in zip(rows, p, deltas, weights, strict=True)]

    def sample(self, row: torch.Tensor, p: torch.Tensor, delta: torch.Tensor, w: torch.Tensor) -> Gradients:
        model, seen = self.model, Gradients()
        if not isinstance(model, ConvE):
            x = model.encode(row[:1], row[1:2])[0]
            through = delta @ (model.entities.detach() @ x)
            entities, relations = torch.autograd.grad(through, [model.entities, model.relations])
            known = {"x": x.detach(), "p": p, "w": w, "row": row}
            return {**known, "head": entities[row[0]], "relation": relations[row[1]]}

        def keep(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            seen["a"], seen["u"] = inputs[0][0].detach(), output

        hook = model.project.register_forward_hook(keep)
        x = model.encode(row[:1], row[1:2])[0]
        hook.remove()
        named = {name: p for name, p in model.named_parameters() if name != "biases"}
        through = delta @ (model.entities.detach() @ x)
        *own, u = torch.autograd.grad(through, [*named.values(), seen["u"]])
        grads = dict(zip(named, own, strict=True))
        head, relation = grads.pop("entities")[row[0]], grads.pop("relations")[row[1]]
        more = {"x": x.detach(), "a": seen["a"], "u": u[0], "p": p, "w": w, "row": row}
        return {**grads, **more, "head": head, "relation": relation}

    def corrected(self, g: Gradients) -> Gradients:
        model, total = self.model, torch.stack([one["w"] for one in self.all]).sum()
        out = {name: torch.zeros_like(value) for name, value in g.items()}
        at_scores = torch.stack([one["w"] * one["p"] * (1 - one["p"]) for one in self.all]).sum(0)
        x, heads = (self.outer(self.all, name) / total for name in ("x", "head"))
        for e in range(len(g["entities"])):
            own = sum(one["w"] for one in self.all if one["row"][0] == e)
            out["entities"][e] = damped(at_scores[e] * x + own * heads, g["entities"][e], DAMPING)
        for r in g["relations"].abs().sum(1).nonzero()[:, 0].tolist():
            at = (self.queries.rows[:, 1] == r).nonzero()[:, 0]
            block = self.outer(self.samples(at, 1 + r), "relation") if len(at) else 0 * x
            out["relations"][r] = damped(block, g["relations"][r], DAMPING)
        if not isinstance(model, ConvE):
            return out
        out["biases"] = g["biases"] / (at_scores + DAMPING * at_scores.mean())
        a = torch.stack([torch.cat([one["a"], one["a"].new_ones(1)]) for one in self.all])
        w = torch.stack([one["w"] for one in self.all])
        inputs = a.t() @ (w[:, None] * a) / total
        matrix = torch.cat([g["project.weight"], g["project.bias"][:, None]], dim=1)
        matrix = damped(self.outer(self.all, "u"), matrix, DAMPING**0.5)
        matrix = damped(inputs, matrix.t(), DAMPING**0.5).t()
        out["project.weight"], out["project.bias"] = matrix[:, :-1], matrix[:, -1]
        small = [name for name in g if name.partition(".")[0] in ("conv", "feature_norm", "input_norm")]
        for group in (small, [name for name in g if name.startswith("output_norm")]):
            if group:
                self.small(group, g, out)
        assert set(out) == {name for name, _ in model.named_parameters()}
        return out

    def small(self, names: list[str], g: Gradients, out: Gradients) -> None:
        flat = [torch.cat([one[name].flatten() for name in names]) * one["w"].sqrt() for one in self.all]
        block = torch.stack(flat).t() @ torch.stack(flat)
        vector = damped(block, torch.cat([g[name].flatten() for name in names]), DAMPING)
        parts = torch.split(vector, [g[name].numel() for name in names])
        out |= {name: part.view_as(g[name]) for name, part in zip(names, parts, strict=True)}

    @staticmethod
    def outer(samples: list[Gradients], name: str) -> torch.Tensor:
        return torch.stack([one["w"] * torch.outer(one[name], one[name]) for one in samples]).sum(0)


def damped(block: torch.Tensor, value: torch.Tensor, damping: float) -> torch.Tensor:
    hold = damping * float(block.diagonal().mean()) or 1.0
    solution: torch.Tensor = torch.linalg.solve(block + hold * torch.eye(len(block)).double(), value)
    return solution


trainings = st.builds(
    Training, st.just(TRAIN), kind=st.sampled_from(["bce", "softmax"]), one_positive=st.booleans()
)


@settings(max_examples=15, deadline=None)
@given(config=configs | vector_configs, training=trainings)
def test_fisher_scores_are_those_of_autograd_with_explicit_blocks(
    config: ModelConfig, training: Training
) -> None:
    model = warm(config)
    reference = Reference(model, training)
    loss = TracinLoss(training.kind) if training.one_positive else LOGIT
    tests = [reference.corrected(g) for g in gradients(model, query_rows(TESTS, True))]

    def truth(train: torch.Tensor, tests: list[Gradients]) -> torch.Tensor:
        trains = training_gradients(model, train, loss)
        return torch.stack([torch.stack([inner(test, g) for g in trains]) for test in tests])

    of_all, of_one = truth(TRAIN, tests), truth(SHARED, tests[:1])
    assert off(fisher(model, training, TRAIN, TESTS), of_all) < 1e-10
    assert off(fisher(model, training, SHARED, TESTS[:1]), of_one) < 1e-10
    assert off(fisher(model.float(), training, TRAIN, TESTS), of_all) < 1e-3


@pytest.mark.parametrize("kind", ["DistMult", "ComplEx"])
def test_fisher_scores_of_chosen_layers_of_pykeen_are_those_of_the_same_layers_of_kgops(kind: str) -> None:
    facts = CoreTriplesFactory(TRAIN, 8, 2, create_inverse_triples=True)
    made = model_resolver.lookup(kind)(triples_factory=facts, embedding_dim=4, random_seed=1)
    theirs = made.double().eval()
    ours = own_vectors(theirs)
    how = Settings(chunk=5, score="fisher", training=Training(TRAIN, kind="bce", one_positive=False))
    for layer, own in (("entity_representations", "entities"), ("relation_representations", "relations")):
        found, expected = (
            engine.scores(engine.keep(TESTS), TRAIN)
            for model, names in ((theirs, chosen_parameters(theirs, [layer])), (ours, [own]))
            for engine in [engine_for(TracinCheckpoint(model, 0.25), TARGET, how, names)]
        )
        assert bool(expected.any()) and off(found, expected) < 1e-10


@settings(max_examples=10, deadline=None)
@given(config=configs | vector_configs, name=st.sampled_from(["target", "one-to-n", "softmax", "kvsall-bce"]))
def test_cosine_scores_are_those_of_autograd(config: ModelConfig, name: str) -> None:
    model, loss = warm(config), losses(config)[name]
    train, tests = query_rows(TRAIN, True), query_rows(TESTS, True)
    checkpoints = [(model, 1.0)]
    truth = sequential_tracin.influence(checkpoints, loss, train, tests)
    lengths = [sequential_tracin.self_influence(checkpoints, loss, rows).sqrt() for rows in (tests, train)]
    engine = engine_for(TracinCheckpoint(model, 0.25), loss, Settings(chunk=5, score="cosine"))
    found = engine.scores(engine.keep(TESTS), TRAIN)
    assert off(found, truth / torch.outer(*lengths)) < 1e-8
    assert float(found.abs().max()) <= 1 + 1e-9


@settings(max_examples=25, deadline=None)
@given(config=vector_configs, name=st.sampled_from(sorted(losses(VectorConfig(8, 2)))))
def test_scores_of_models_of_vectors_are_the_sequential_ones(config: ModelConfig, name: str) -> None:
    model, loss = warm(config), losses(config)[name]
    train, tests = query_rows(TRAIN, True), query_rows(TESTS, True)
    truth = sequential_tracin.influence([(model, 1.0)], loss, train, tests)
    for dtype, within in ((torch.float64, 1e-10), (torch.float32, 5e-6)):
        engine = engine_for(TracinCheckpoint(model.to(dtype), 1.0), loss, Settings(chunk=5))
        assert off(engine.scores(engine.keep(TESTS), TRAIN), truth) < within


def test_cosine_of_several_checkpoints_is_their_mean() -> None:
    config = ConvEConfig(8, 2, inverse=True, embedding_dim=8, output_channels=2)
    points = [TracinCheckpoint(warm(config, seed), rate) for seed, rate in ((1, 0.25), (2, 0.5))]

    def scores(of: list[TracinCheckpoint]) -> torch.Tensor:
        sink = AllScores(len(TESTS), len(TRAIN))
        Scoring(of, TARGET, Settings(chunk=5, score="cosine"))(TRAIN, TESTS, sink)
        return sink.scores

    assert off(scores(points), (scores(points[:1]) + scores(points[1:])) / 2) < 1e-9


def test_the_inverse_is_the_same_by_samples_and_by_width() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(3, 7).double()
    for many in (0, 4, 7, 12):
        samples = torch.randn(many, 7).double()
        block = samples.t() @ samples
        truth = damped(block, vectors.t(), 0.2).t()
        assert off(Damped(samples, 0.2).times(vectors), truth) < 1e-12
