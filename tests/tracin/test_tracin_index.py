"""The training side on disk: the scores of a scan, no pass over the training set, and nothing mixed up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kgops.errors import BadInput, Interrupted
from kgops.models.conve import ConvE, ConvEConfig
from kgops.tracin.agreement import compare
from kgops.tracin.blocks import Settings, TracinCheckpoint
from kgops.tracin.index import build_index, open_index
from kgops.tracin.loss import ONE_TO_N, TARGET, TracinLoss, trained_loss
from kgops.tracin.scan import AllScores, TopTriples, scan
from kgops.training.batches import inverse_triples, query_rows

ENTITIES, RELATIONS = 50, 4


def points(many: int = 2) -> list[TracinCheckpoint]:
    torch.manual_seed(0)
    config = ConvEConfig(
        ENTITIES,
        RELATIONS,
        inverse=True,
        embedding_dim=12,
        embedding_height=3,
        embedding_width=4,
        output_channels=3,
    )
    return [TracinCheckpoint(ConvE(config).double().eval(), 0.1 * (n + 1)) for n in range(many)]


def triples(many: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(n, (many,), generator=draw) for n in (12, RELATIONS, ENTITIES)], dim=1)


TRAIN, TESTS = triples(150, 1), triples(11, 2)


def known_tails() -> TracinLoss:
    rows = query_rows(TRAIN, True)
    whole = torch.cat([rows, inverse_triples(TRAIN)])
    return trained_loss({"name": "kvsall-bce", "label_smoothing": 0.1}, whole, 2 * RELATIONS)


LOSSES = {
    "target": TARGET,
    "one-to-n": ONE_TO_N,
    "softmax": TracinLoss("softmax", 0.1),
    "train": known_tails(),
}


def scanned(of: list[TracinCheckpoint], loss: TracinLoss, settings: Settings) -> torch.Tensor:
    sink = AllScores(len(TESTS), len(TRAIN), like=of[0].model.entities)
    scan(of, loss, TRAIN, TESTS, sink, settings=settings)
    return sink.scores


def asked(folder: Path, of: list[TracinCheckpoint], loss: TracinLoss, settings: Settings) -> torch.Tensor:
    sink = AllScores(len(TESTS), len(TRAIN), like=of[0].model.entities)
    open_index(folder, of, loss, TRAIN, settings=settings).scan(TESTS, sink)
    return sink.scores


class Mapped(AllScores):
    """Which files of a folder this process maps when it is given a block's scores."""

    def __init__(self, folder: Path) -> None:
        super().__init__(len(TESTS), len(TRAIN), like=torch.zeros(0, dtype=torch.float64))
        self.folder = folder
        self.files: list[str] = []

    def add(self, first: int, ids: torch.Tensor, scores: torch.Tensor) -> None:
        maps = Path("/proc/self/maps").read_text().splitlines()
        self.files += [line for line in maps if str(self.folder) in line]
        super().add(first, ids, scores)


def test_a_block_that_was_read_is_not_kept_beside_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgops.tracin.index.BLOCK", 40)
    settings, of, mapped = Settings(tests_at_once=4), points(), Mapped(tmp_path)
    build_index(of, ONE_TO_N, TRAIN, tmp_path, settings=settings)
    open_index(tmp_path, of, ONE_TO_N, TRAIN, settings=settings).scan(TESTS, mapped)
    assert mapped.files == []


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_exact_index_answers_with_the_scores_of_a_scan(
    tmp_path: Path, loss: str, both: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgops.tracin.index.BLOCK", 40)
    settings, of = Settings(both_directions=both, tests_at_once=4, chunk=17), points()
    size = build_index(of, LOSSES[loss], TRAIN, tmp_path, settings=settings)
    assert size == sum(path.stat().st_size for path in tmp_path.glob("*.pt"))
    expected = scanned(of, LOSSES[loss], settings)
    found = asked(tmp_path, of, LOSSES[loss], settings)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * float(expected.abs().max()))


@pytest.mark.parametrize("loss", list(LOSSES))
def test_projected_index_answers_with_the_scores_of_a_projected_scan(tmp_path: Path, loss: str) -> None:
    settings, of = Settings(projection_dim=16, seed=3), points()
    build_index(of, LOSSES[loss], TRAIN, tmp_path, settings=settings)
    expected = scanned(of, LOSSES[loss], settings)
    found = asked(tmp_path, of, LOSSES[loss], settings)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * float(expected.abs().max()))


@pytest.mark.parametrize("loss", ["target", "one-to-n"])
def test_projection_is_right_on_average_and_better_the_wider_it_is(loss: str) -> None:
    of = points(1)
    exact = scanned(of, LOSSES[loss], Settings())
    many = [scanned(of, LOSSES[loss], Settings(projection_dim=16, seed=seed)) for seed in range(60)]
    mean, spread = torch.stack(many).mean(0), torch.stack(many).std(0) / len(many) ** 0.5
    off = (mean - exact).abs() / spread.clamp_min(1e-12 * float(exact.abs().max()))
    assert float((off > 4).double().mean()) < 0.01  # 4 standard errors: 1 in 16,000 by chance
    wide = scanned(of, LOSSES[loss], Settings(projection_dim=2048))
    assert compare(exact, wide).mean_error < compare(exact, many[0]).mean_error / 4


def test_checkpoints_are_projected_each_by_its_own_so_that_errors_do_not_add_up() -> None:
    one = points(1)
    exact = scanned(one, ONE_TO_N, Settings())
    each = [scanned(one, ONE_TO_N, Settings(projection_dim=32, seed=seed)) for seed in range(8)]
    alone = sum(compare(exact, found).mean_error for found in each) / len(each)
    eight = compare(8 * exact, scanned(one * 8, ONE_TO_N, Settings(projection_dim=32))).mean_error
    assert eight < 0.7 * alone


def test_entity_that_the_model_lacks_is_refused_by_an_index_as_by_a_scan(tmp_path: Path) -> None:
    of = points(1)
    build_index(of, TARGET, TRAIN, tmp_path, settings=Settings())
    sink = AllScores(1, len(TRAIN), like=of[0].model.entities)
    with pytest.raises(BadInput, match="entity 50"):
        open_index(tmp_path, of, TARGET, TRAIN, settings=Settings()).scan(torch.tensor([[50, 0, 1]]), sink)


def test_top_triples_come_from_an_index_as_from_a_scan(tmp_path: Path) -> None:
    of = points(1)
    build_index(of, ONE_TO_N, TRAIN, tmp_path, settings=Settings())
    ours, theirs = TopTriples(5), TopTriples(5)
    open_index(tmp_path, of, ONE_TO_N, TRAIN, settings=Settings()).scan(TESTS, ours)
    scan(of, ONE_TO_N, TRAIN, TESTS, theirs)
    assert torch.equal(ours.proponents[1], theirs.proponents[1])


def test_building_goes_on_where_it_stopped_and_half_an_index_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgops.tracin.index.BLOCK", 40)
    of = points()

    def after_three() -> bool:
        return len(list(tmp_path.glob("*.pt"))) >= 3

    with pytest.raises(Interrupted):
        build_index(of, ONE_TO_N, TRAIN, tmp_path, settings=Settings(), stop_requested=after_three)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.pt")}
    assert len(kept) == 3
    with pytest.raises(BadInput, match="unfinished"):
        open_index(tmp_path, of, ONE_TO_N, TRAIN, settings=Settings())
    build_index(of, ONE_TO_N, TRAIN, tmp_path, settings=Settings())
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    expected = scanned(of, ONE_TO_N, Settings())
    torch.testing.assert_close(asked(tmp_path, of, ONE_TO_N, Settings()), expected)


def test_index_of_something_else_is_refused_with_what_differs(tmp_path: Path) -> None:
    of = points(1)
    build_index(of, ONE_TO_N, TRAIN, tmp_path, settings=Settings())
    torch.manual_seed(9)
    other = [replace(of[0], model=ConvE(of[0].model.config).double().eval())]
    cases = [
        ("different models", other, ONE_TO_N, TRAIN, Settings()),
        ("different learning rates", [replace(of[0], learning_rate=0.5)], ONE_TO_N, TRAIN, Settings()),
        ("different loss", of, TARGET, TRAIN, Settings()),
        ("different training triples", of, ONE_TO_N, TRAIN[1:], Settings()),
        ("different both directions", of, ONE_TO_N, TRAIN, Settings(both_directions=True)),
        ("different precision", of, ONE_TO_N, TRAIN, Settings(precision=torch.bfloat16)),
        ("different projection, seed", of, ONE_TO_N, TRAIN, Settings(projection_dim=8)),
    ]
    for what, models, loss, train, settings in cases:
        with pytest.raises(BadInput, match=what):
            open_index(tmp_path, models, loss, train, settings=settings)
        with pytest.raises(BadInput, match=what):
            build_index(models, loss, train, tmp_path, settings=settings)
    with pytest.raises(BadInput, match="no index"):
        open_index(tmp_path / "nowhere", of, ONE_TO_N, TRAIN, settings=Settings())


@pytest.mark.parametrize("damage", ["cut", "one bit of a number"])
def test_damaged_block_is_named(tmp_path: Path, damage: str) -> None:
    of = points(1)
    build_index(of, ONE_TO_N, TRAIN, tmp_path, settings=Settings())
    file = next(tmp_path.glob("*.pt"))
    whole = bytearray(file.read_bytes())
    if damage == "cut":
        del whole[-100:]
    else:
        whole[len(whole) // 2] ^= 0x10
    file.write_bytes(whole)
    with pytest.raises(BadInput, match=file.name):
        asked(tmp_path, of, ONE_TO_N, Settings())


def test_index_that_would_fill_the_disk_is_refused_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kgops.errors import Unavailable

    monkeypatch.setattr("kgops.tracin.index.SPARE_BYTES", 1 << 60)
    with pytest.raises(Unavailable, match=r"would take about .* GiB; .* free"):
        build_index(points(1), ONE_TO_N, TRAIN, tmp_path, settings=Settings())
