"""Models trained again without some triples: as they were trained, and measured as the evaluator would."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from validating import Listener, named

from kgops.maths.graphs.triples import Graph, read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N
from kgops.maths.tracin.retraining import FitAgain
from kgops.maths.tracin.scan import AllScores, Scoring
from kgops.maths.tracin.validate import validate
from kgops.maths.train.checkpoints import kept_checkpoints, read_checkpoint
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.loop import fit
from kgops.maths.train.settings import TrainSettings
from kgops.maths.worker.entry import Stopped
from kgops.workloads.train.models import ConvEConfig

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
    settings = TrainSettings(num_epochs=80, batch_size=128, learning_rate=0.02, label_smoothing=0.1, seed=2)
    retrain = FitAgain(graph, graph.test, TINY, settings, tmp_path, Listener())
    known = torch.zeros(1, len(graph.train))
    known[0, row] = 1.0
    found = validate(graph, graph.test, known, 1, retrain, tmp_path / "j", seed=2, noise=1, draws=2)
    metrics = found.metrics()
    before = found.changes[-1].before
    assert before.rank <= 3, "learnt at all"
    assert before.rank < next(c for c in found.changes if c.deletion == "proponents").after.rank
    for other in ("logit_change_random", "logit_change_neighbours", "logit_change_opponents"):
        assert metrics["logit_change_proponents"] < metrics[other] - 1, other
    assert -metrics["logit_change_proponents"] > metrics["logit_noise"]


def test_kinships_is_trained_again_as_it_was_and_validated(tmp_path: Path) -> None:
    graph = read_pykeen_dataset("kinships")
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=16, output_channels=4)
    settings = TrainSettings(
        num_epochs=2, learning_rate=0.003, seed=3, validate_every=1, checkpoint_frequency=1
    )
    torch.manual_seed(settings.seed)
    model = ConvE(config)
    fit(model, graph, settings, tmp_path / "run", Listener())
    tests = graph.test[:3]
    points = []
    for path in kept_checkpoints(tmp_path / "run" / "checkpoints"):
        checkpoint = read_checkpoint(path)
        points.append(TracinCheckpoint(checkpoint.build_model(), checkpoint.learning_rate))
    assert len(points) == 2
    sink = AllScores(len(tests), len(graph.train))
    Scoring(points, ONE_TO_N)(graph.train, tests, sink)
    told = Listener()
    again = FitAgain(graph, tests, config, replace(settings, seed=99), tmp_path, told)
    found = validate(
        graph, tests, sink.scores, 10, again, tmp_path / "j", seed=3, draws=1, noise=1, report=told
    )
    assert found.retrainings == 1 + 1 + 4
    assert told.done == sorted(told.done) and told.done[-1] == 1.0
    other = (told.options, told.metrics, told.mib, told.artifacts)
    assert not any(other), "what a retraining says of itself is no metric of this run"
    before = {change.test: change.before for change in found.changes if change.deletion == "proponents"}
    assert [before[i] for i in range(3)] == again.outcomes(model), "validation and checkpoints change nothing"
    known = torch.cat([graph.train, graph.valid, graph.test])
    ranks = Evaluator(known, graph.num_entities)(model, tests)
    assert ranks is not None
    assert [before[i].rank for i in range(3)] == ranks.tail_ranks.tolist()
    assert not (tmp_path / "retraining").exists(), "nothing is left of retrainings but their metrics"


def test_a_stop_within_a_retraining_ends_it_and_writes_nothing_down(tmp_path: Path) -> None:
    graph, _ = planted()
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 20

    settings = TrainSettings(num_epochs=50, batch_size=8, seed=1)
    again = FitAgain(graph, graph.test, TINY, settings, tmp_path, Listener(), stop_requested=stop)
    with pytest.raises(Stopped):
        validate(graph, graph.test, torch.ones(1, len(graph.train)), 1, again, tmp_path / "j", seed=1)
    assert not (tmp_path / "j").exists()
    assert not (tmp_path / "retraining").exists()


def test_what_disappears_from_training_keeps_its_id(tmp_path: Path) -> None:
    graph, _ = planted()
    head = int(graph.test[0, 0])
    without = graph.train[(graph.train[:, [0, 2]] != head).all(1) & (graph.train[:, 1] != 0)]
    settings = TrainSettings(num_epochs=1, batch_size=16)
    again = FitAgain(graph, graph.test, TINY, settings, tmp_path, Listener())
    (outcome,) = again(without, 0, lambda share: None)
    assert 1 <= outcome.rank <= 32 and 0 < outcome.probability < 1


def test_the_outcome_is_the_models_logit_probability_and_rank(tmp_path: Path) -> None:
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
        truth = scores.sigmoid() if loss.endswith("bce") else scores.softmax(0)
        assert outcome.probability == pytest.approx(float(truth[tail]))
        assert outcome.rank == 1 + int((scores[false] > scores[tail]).sum())
