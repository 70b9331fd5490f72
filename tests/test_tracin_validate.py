"""Validation of influences: what is deleted, what is retrained and resumed, and what the figures say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kgops.errors import BadInput, Interrupted
from kgops.graphs.triples import Graph, read_pykeen_dataset
from kgops.graphs.vocabulary import Vocabulary
from kgops.models.conve import ConvE, ConvEConfig
from kgops.tracin.datamodeling import Datamodeling, linear_datamodeling_score, spearman
from kgops.tracin.loss import ONE_TO_N
from kgops.tracin.retraining import FitAgain, Outcome
from kgops.tracin.scan import AllScores, Point, TopTriples, scan
from kgops.tracin.validate import NOISE, Validation, validate
from kgops.training.checkpoints import kept_checkpoints, read_checkpoint
from kgops.training.evaluate import Evaluator
from kgops.training.loop import fit
from kgops.training.settings import TrainSettings

torch.set_num_threads(1)

SEED = 7


class Killed(BaseException):
    pass


class Listener:
    """Hears everything; remembers how much is said to be done, and the notes."""

    def __init__(self) -> None:
        self.done: list[float] = []
        self.notes: list[str] = []
        self.other: list[str] = []

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        assert phase in ("train", "validate", "retrain")
        self.done.append(done / total)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def lever(self, name: str, requested: Any, effective: Any, reason: str | None) -> None:
        self.other.append(name)

    def metric(self, name: str, value: float, step: int) -> None:
        self.other.append(name)

    def memory(self, **mib: float) -> None:
        self.other += mib

    def artifact(self, path: Path, kind: str) -> None:
        self.other.append(kind)


class Additive:
    """A retraining whose truth is known: a test's logit is the sum of its scores over what is trained
    on, plus a number that depends on the seed alone."""

    def __init__(self, train: torch.Tensor, scores: torch.Tensor, die_after: int | None = None) -> None:
        self.rows = {tuple(triple): i for i, triple in enumerate(train.tolist())}
        self.scores, self.die_after = scores.double(), die_after
        self.calls: list[tuple[frozenset[int], int]] = []

    @property
    def about(self) -> Mapping[str, Any]:
        return {"retraining": "additive"}

    def __call__(self, train: torch.Tensor, seed: int, inside: Callable[[float], None]) -> list[Outcome]:
        if len(self.calls) == self.die_after:
            raise Killed
        rows = [self.rows[tuple(triple)] for triple in train.tolist()]
        self.calls.append((frozenset(self.rows.values()) - frozenset(rows), seed))
        inside(0.5)
        logits = self.scores[:, rows].sum(1) + self.of_seed(seed)
        return [Outcome(x, float(torch.tensor(x).sigmoid()), x, -x, 1 + abs(x), 2.0) for x in logits.tolist()]

    @staticmethod
    def of_seed(seed: int) -> float:
        return float((seed - SEED) ** 2)


def some_graph(trains: int = 60, entities: int = 9, relations: int = 4) -> Graph:
    g = torch.Generator().manual_seed(3)
    everything = torch.cartesian_prod(*(torch.arange(n) for n in (entities, relations, entities)))
    chosen = everything[torch.randperm(len(everything), generator=g)[: trains + 4]]
    return Graph(chosen[:trains], chosen[:0], chosen[trains:], named("e", entities), named("r", relations))


def named(kind: str, count: int) -> Vocabulary:
    return Vocabulary.of([f"{kind}{i:02}" for i in range(count)])


GRAPH = some_graph()
SCORES = torch.randn(4, 60, generator=torch.Generator().manual_seed(4))


def run(retrain: Additive, journal: Path, **how: Any) -> Validation:
    return validate(GRAPH, GRAPH.test, SCORES, 5, retrain, journal, seed=SEED, **how)


def additive(die_after: int | None = None) -> Additive:
    return Additive(GRAPH.train, SCORES, die_after)


def test_the_strongest_are_deleted_and_every_change_is_that_of_one_deletion(tmp_path: Path) -> None:
    retrain = additive()
    found = run(retrain, tmp_path / "journal", together=False)
    order = SCORES.argsort(dim=1, descending=True)
    everything_deleted = [deleted for deleted, _ in retrain.calls]
    for test in range(4):
        top, foot = order[test, :5], order[test, -5:]
        assert {frozenset(top.tolist()), frozenset(foot.tolist())} <= set(everything_deleted)
        for deletion, rows in (("proponents", top), ("opponents", foot)):
            change = found.of_test(test, deletion, "logit")
            assert change.n == 1
            assert change.mean == pytest.approx(-float(SCORES[test, rows].sum()), abs=1e-5)
    assert found.retrainings == len(retrain.calls) == 4 + 4 * (2 + 2 * 3)
    assert {seed for deleted, seed in retrain.calls if deleted} == {SEED}


def test_together_deletes_the_union_and_controls_delete_as_many(tmp_path: Path) -> None:
    retrain = additive()
    found = run(retrain, tmp_path / "journal", draws=2)
    top = frozenset(SCORES.topk(5, dim=1).indices.flatten().tolist())
    sizes = {(c.deletion, c.draw): c.deleted for c in found.changes if c.deletion != NOISE}
    assert (top, SEED) in retrain.calls
    for deletion in (("proponents", 0), ("random", 0), ("random", 1), ("neighbours", 0), ("neighbours", 1)):
        assert sizes.pop(deletion) == len(top)
    assert set(sizes) == {("opponents", 0)}
    assert len({deleted for deleted, _ in retrain.calls}) == 1 + 2 + 2 * 2, "every draw is another"
    assert {change.test for change in found.changes} == {0, 1, 2, 3}


def test_neighbours_are_drawn_evenly_from_the_triples_that_touch_each_test(tmp_path: Path) -> None:
    # Test 0 touches 20 training triples, test 1 the other 3: each must give, not the larger alone.
    few = [[0, 0, i] for i in (2, 3, 4)]
    many = [[1, 0, i] for i in range(5, 25)]
    train = torch.tensor(few + many)
    tests = torch.tensor([[1, 1, 31], [0, 1, 30]])
    graph = Graph(train, train[:0], tests, named("e", 32), named("r", 2))
    scores = torch.randn(2, 23, generator=torch.Generator().manual_seed(0))
    retrain = Additive(train, scores)
    found = validate(graph, tests, scores, 3, retrain, tmp_path / "j", seed=SEED, draws=3)
    deleted = next(c.deleted for c in found.changes if c.deletion == "neighbours")
    drawn = [rows for rows, _ in retrain.calls[-6:]]  # random and neighbours in turn
    assert 4 <= deleted == len(drawn[0])
    for rows in drawn[1::2]:
        assert len(rows) == deleted
        assert len(rows & {0, 1, 2}) == min(3, deleted // 2)
    alone = Additive(train, scores[1:])
    validate(graph, tests[1:], scores[1:], 3, alone, tmp_path / "k", seed=SEED, draws=1)
    assert (frozenset({0, 1, 2}), SEED) in alone.calls


def test_the_noise_floor_is_what_another_seed_alone_changes(tmp_path: Path) -> None:
    found = run(additive(), tmp_path / "journal", noise=2)
    # Seeds 7, 8, 9 add 0, 1, 4: pairs lie 1, 4 and 3 apart.
    assert found.noise("logit").n == 3 * 4
    assert found.noise("logit").mean == pytest.approx((1 + 4 + 3) / 3)
    assert found.figures()["logit_noise"] == pytest.approx(8 / 3)


def test_several_seeds_compare_like_with_like(tmp_path: Path) -> None:
    retrain = additive()
    found = run(retrain, tmp_path / "journal", seeds=3, noise=0, draws=1)
    # What a seed adds cancels, as both sides have it: the change is the same for all seeds.
    for test in range(4):
        change = found.of_test(test, "proponents", "logit")
        assert change.n == 3 and change.low is not None and change.high is not None
        assert change.high - change.low < 1e-9
    assert found.retrainings == len(retrain.calls) == 3 + 4 * 3


def test_proponents_stand_out_from_random_and_opponents_the_other_way(tmp_path: Path) -> None:
    found = run(additive(), tmp_path / "journal", together=False)
    figures = found.figures()
    assert (
        figures["logit_change_proponents"]
        < figures["logit_change_random"]
        < figures["logit_change_opponents"]
    )
    assert figures["share_hurt_more_than_random"] == figures["share_hurt_more_than_neighbours"] == 1.0
    beside = found.beside("proponents", "random", "logit")
    by_hand = [found.of_test(t, "proponents", "logit").mean for t in range(4)]
    chance = [found.of_test(t, "random", "logit").mean for t in range(4)]
    assert beside.mean == pytest.approx(
        sum(a - b for a, b in zip(by_hand, chance, strict=True) if a is not None and b is not None) / 4
    )


def test_a_ranking_does_as_well_as_all_scores(tmp_path: Path) -> None:
    ranking = TopTriples(8)
    ranking.add(0, torch.arange(60), SCORES)
    ranking.finish()
    a = run(additive(), tmp_path / "a")
    b = validate(GRAPH, GRAPH.test, ranking, 5, additive(), tmp_path / "b", seed=SEED)
    assert a == b


@pytest.mark.parametrize("torn", [b"", b'{"key": "12', b"\n\n"])
def test_a_killed_validation_does_only_what_is_missing_and_reports_the_same(
    tmp_path: Path, torn: bytes
) -> None:
    whole = run(additive(), tmp_path / "whole")
    journal = tmp_path / "journal"
    with pytest.raises(Killed):
        run(additive(die_after=5), journal)
    with journal.open("ab") as file:
        file.write(torn)
    again = additive()
    assert run(again, journal) == whole
    assert len(again.calls) == whole.retrainings - 5
    third = additive()
    assert run(third, journal).to_dict() == whole.to_dict()
    assert third.calls == []
    lines = [line for line in journal.read_bytes().split(b"\n") if line and line != torn]
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == whole.retrainings


def test_a_stop_is_honoured_between_retrainings_and_keeps_what_is_done(tmp_path: Path) -> None:
    retrain, report = additive(), Listener()
    with pytest.raises(Interrupted, match="after 3 of 12"):
        run(retrain, tmp_path / "j", stop_requested=lambda: len(retrain.calls) == 3)
    resumed = additive()
    run(resumed, tmp_path / "j", report=report)
    assert len(resumed.calls) == 12 - 3
    assert report.done[-1] == 1.0


def test_retrainings_of_other_data_tests_or_settings_are_not_taken_for_ours(tmp_path: Path) -> None:
    run(additive(), tmp_path / "j")
    other = Additive(GRAPH.train, SCORES[:3])
    validate(GRAPH, GRAPH.test[:3], SCORES[:3], 5, other, tmp_path / "j", seed=SEED)
    with_other_tests = len(other.calls)

    class Different(Additive):
        @property
        def about(self) -> Mapping[str, Any]:
            return {"retraining": "different"}

    different = Different(GRAPH.train, SCORES)
    run(different, tmp_path / "j")
    assert with_other_tests == len(different.calls) == 12


def test_measurements_and_the_report_can_be_stored(tmp_path: Path) -> None:
    found = run(additive(), tmp_path / "j")
    lds = score(additive(), tmp_path / "j")
    for measured in (found.measurements(), lds.measurements()):
        assert len({(m["name"], m["subject"], m["against"]) for m in measured}) == len(measured)
        for m in measured:
            assert m.keys() == {"name", "subject", "against", "value", "low", "high", "n", "unit"}
            assert isinstance(m["value"], float) and m["n"] > 0 and m["name"] and m["unit"]
            assert m["low"] is None or m["low"] <= m["high"]
    for report in (found.to_dict(), lds.to_dict()):
        assert json.loads(json.dumps(report, allow_nan=False)) == report


@pytest.mark.parametrize("k", [0, 61, 12])
def test_more_than_can_be_deleted_is_refused_with_the_numbers(tmp_path: Path, k: int) -> None:
    with pytest.raises(BadInput, match=r"of 60 training|each test triple: 60"):
        validate(GRAPH, GRAPH.test, SCORES, k, additive(), tmp_path / "j", seed=SEED)


def score(retrain: Additive, journal: Path, scores: torch.Tensor = SCORES, **how: Any) -> Datamodeling:
    return linear_datamodeling_score(
        GRAPH, GRAPH.test, scores, retrain, journal, seed=SEED, subsets=12, **how
    )


def test_additive_truth_has_a_datamodeling_score_of_one_and_its_negative_of_minus_one(tmp_path: Path) -> None:
    retrain = additive()
    for output in ("logit", "margin", "loss"):
        assert score(retrain, tmp_path / "j").score(output).mean == pytest.approx(1.0)
        assert score(retrain, tmp_path / "j", -SCORES).score(output).mean == pytest.approx(-1.0)
    assert [len(deleted) for deleted, _ in retrain.calls] == [30] * 12, "done once, and of half the triples"
    assert len({deleted for deleted, _ in retrain.calls}) == 12


def test_scores_of_nothing_stay_near_what_chance_gives(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(11)
    found = score(additive(), tmp_path / "j", torch.randn(4, 60, generator=g), seeds=2)
    chance = found.outputs["logit"].chance
    assert chance is not None and 0.05 < chance < 0.7
    mean = found.score("logit").mean
    assert mean is not None and abs(mean) < 0.6
    assert found.figures()["lds_logit_repeatable"] == pytest.approx(1.0), "the seed only shifts all alike"


def test_a_killed_datamodeling_score_resumes(tmp_path: Path) -> None:
    whole = score(additive(), tmp_path / "whole")
    with pytest.raises(Killed):
        score(additive(die_after=7), tmp_path / "j")
    again = additive()
    assert score(again, tmp_path / "j") == whole
    assert len(again.calls) == 5


def test_rank_correlation_is_scipys_ties_included() -> None:
    stats = pytest.importorskip("scipy.stats")
    g = torch.Generator().manual_seed(0)
    for n in (3, 8, 21):
        a, b = (torch.randint(5, (6, n), generator=g).double() for _ in range(2))
        a[:, 0], b[:, 0] = 9, 9
        truth = [stats.spearmanr(x, y).statistic for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        torch.testing.assert_close(spearman(a, b), torch.tensor(truth, dtype=torch.float64))
    assert torch.isnan(spearman(torch.ones(1, 4), torch.arange(4.0)[None])).all()


# The real thing.

TINY = ConvEConfig(
    32, 3, embedding_dim=32, output_channels=8, input_dropout=0.1, feature_map_dropout=0.1, output_dropout=0.1
)


def planted(pairs: int = 16) -> tuple[Graph, int]:
    """(x, a, y) always comes with (x, b, y); of pair 0 only (x, a, y) is known, in the row returned.

    Nothing else ties x to y, so that row alone makes the test triple (x, b, y) likely.
    """
    g = torch.Generator().manual_seed(1)
    twins = [[i, r, pairs + i] for i in range(pairs) for r in (0, 1)]
    test = twins.pop(1)
    fill = [[int(i), 2, int(j)] for i, j in torch.randint(2 * pairs, (3 * pairs, 2), generator=g).tolist()]
    fill = [triple for triple in fill if {triple[0], triple[2]} != {test[0], test[2]}]
    train = torch.tensor(sorted({tuple(triple) for triple in twins + fill}))
    row = int((train == torch.tensor([test[0], 0, test[2]])).all(1).nonzero()[0])
    return Graph(train, train[:0], torch.tensor([test]), named("e", 2 * pairs), named("r", 3)), row


def test_deleting_the_one_triple_that_makes_the_test_likely_drops_it_more_than_chance(tmp_path: Path) -> None:
    graph, row = planted()
    settings = TrainSettings(epochs=80, batch_size=128, learning_rate=0.02, label_smoothing=0.1, seed=2)
    retrain = FitAgain(graph, graph.test, TINY, settings, tmp_path, Listener())
    known = torch.zeros(1, len(graph.train))
    known[0, row] = 1.0
    found = validate(graph, graph.test, known, 1, retrain, tmp_path / "j", seed=2, noise=1, draws=2)
    figures = found.figures()
    before = found.changes[-1].before
    assert before.rank <= 3, "learnt at all"
    assert figures["reciprocal_rank_change_proponents"] < -0.25
    for other in ("logit_change_random", "logit_change_neighbours", "logit_change_opponents"):
        assert figures["logit_change_proponents"] < figures[other] - 1, other
    assert -figures["logit_change_proponents"] > figures["logit_noise"]
    assert figures["share_hurt_more_than_random"] == 1.0


def test_kinships_is_trained_again_as_it_was_and_validated(tmp_path: Path) -> None:
    graph = read_pykeen_dataset("kinships")
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=16, output_channels=4)
    settings = TrainSettings(epochs=2, learning_rate=0.003, seed=3, validate_every=1, checkpoint_every=1)
    torch.manual_seed(settings.seed)
    model = ConvE(config)
    fit(model, graph, settings, tmp_path / "run", Listener())
    tests = graph.test[:3]
    points = []
    for path in kept_checkpoints(tmp_path / "run" / "checkpoints"):
        checkpoint = read_checkpoint(path)
        points.append(Point(checkpoint.build_model(), checkpoint.learning_rate))
    assert len(points) == 2
    sink = AllScores(len(tests), len(graph.train), like=model.entities)
    scan(points, ONE_TO_N, graph.train, tests, sink)
    told = Listener()
    again = FitAgain(graph, tests, config, replace(settings, seed=99), tmp_path, told)
    found = validate(
        graph, tests, sink.scores, 10, again, tmp_path / "j", seed=3, draws=1, noise=1, report=told
    )
    assert found.retrainings == 1 + 1 + 4
    assert told.done == sorted(told.done) and told.done[-1] == 1.0
    assert told.other == [], "what a retraining says of itself is no figure of this run"
    before = {change.test: change.before for change in found.changes if change.deletion == "proponents"}
    assert [before[i] for i in range(3)] == again.outcomes(model), "validation and checkpoints change nothing"
    known = torch.cat([graph.train, graph.valid, graph.test])
    ranks = Evaluator(known, graph.num_entities)(model, tests)
    assert ranks is not None
    assert [before[i].rank for i in range(3)] == ranks.tail_ranks.tolist()
    assert not (tmp_path / "retraining").exists(), "nothing is left of retrainings but their figures"


def test_a_stop_within_a_retraining_ends_it_and_writes_nothing_down(tmp_path: Path) -> None:
    graph, _ = planted()
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 20

    settings = TrainSettings(epochs=50, batch_size=8, seed=1)
    again = FitAgain(graph, graph.test, TINY, settings, tmp_path, Listener(), stop_requested=stop)
    with pytest.raises(Interrupted):
        validate(graph, graph.test, torch.ones(1, len(graph.train)), 1, again, tmp_path / "j", seed=1)
    assert not (tmp_path / "j").exists()
    assert not (tmp_path / "retraining").exists()


def test_a_plateau_cannot_be_found_without_validation_and_that_is_said(tmp_path: Path) -> None:
    told = Listener()
    FitAgain(GRAPH, GRAPH.test, TINY, TrainSettings(schedule="plateau"), tmp_path, told)
    FitAgain(GRAPH, GRAPH.test, TINY, TrainSettings(schedule="cosine"), tmp_path, told)
    assert len(told.notes) == 1 and "plateau" in told.notes[0]


def test_what_disappears_from_training_keeps_its_id(tmp_path: Path) -> None:
    graph, _ = planted()
    head = int(graph.test[0, 0])
    without = graph.train[(graph.train[:, [0, 2]] != head).all(1) & (graph.train[:, 1] != 0)]
    settings = TrainSettings(epochs=1, batch_size=16)
    again = FitAgain(graph, graph.test, TINY, settings, tmp_path, Listener())
    (outcome,) = again(without, 0, lambda share: None)
    assert 1 <= outcome.rank <= 32 and 0 < outcome.probability < 1


def test_the_outcome_is_the_models_logit_margin_and_loss(tmp_path: Path) -> None:
    graph, row = planted()
    for loss in ("kvsall-bce", "1vsall-ce"):
        settings = replace(TrainSettings(), loss=loss)
        torch.manual_seed(0)
        model = ConvE(TINY).double().eval()
        again = FitAgain(graph, graph.train[row : row + 1], TINY, settings, tmp_path, Listener())
        (outcome,) = again.outcomes(model)
        head, relation, tail = graph.train[row].tolist()
        scores = model(torch.tensor([head]), torch.tensor([2 * relation]))[0].detach()
        true = graph.train[(graph.train[:, 0] == head) & (graph.train[:, 1] == relation), 2]
        false = [i for i in range(32) if i not in true.tolist()]
        assert outcome.logit == pytest.approx(float(scores[tail]))
        assert outcome.margin == pytest.approx(float(scores[tail] - scores[false].exp().sum().log()))
        labels = torch.zeros_like(scores)
        labels[tail] = 1
        bce = -(labels * scores.sigmoid().log() + (1 - labels) * (1 - scores.sigmoid()).log()).mean()
        assert outcome.loss == pytest.approx(float(bce))
        truth = scores.sigmoid() if loss.endswith("bce") else scores.softmax(0)
        assert outcome.probability == pytest.approx(float(truth[tail]))
        assert outcome.rank == 1 + int((scores[false] > scores[tail]).sum())
