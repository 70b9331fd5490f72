"""PyKEEN's weights in and out: the same scores on both sides, and no pickle without being told to."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pykeen.datasets import Nations
from pykeen.models import ConvE as PykeenConvE
from pykeen.models import TransE

from kgops.errors import BadInput
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import conve_of, from_pykeen_state, load_saved, to_pykeen_state
from kgops.workloads.train.models import ConvEConfig

SHAPES: list[dict[str, Any]] = [
    {"embedding_dim": 12},
    {"embedding_dim": 12, "apply_batch_normalization": False},
    {"embedding_dim": 24, "input_channels": 2, "embedding_height": 3, "kernel_width": 2, "kernel_height": 4},
    {"embedding_dim": 12, "embedding_height": 2, "embedding_width": 6, "output_channels": 5},
    {"embedding_dim": 16, "input_dropout": 0.1, "feature_map_dropout": 0.3, "output_dropout": 0.5},
]


def theirs(inverse: bool = True, **shape: Any) -> Any:
    data = Nations(create_inverse_triples=inverse)
    model = PykeenConvE(triples_factory=data.training, random_seed=1, **{"output_channels": 4, **shape})
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.train()
    for _ in range(2):  # move the running statistics
        model.score_t(torch.tensor([[0, 0], [1, 2], [3, 4]]))
    return model.eval()


def all_pairs(model: ConvE) -> tuple[torch.Tensor, torch.Tensor]:
    c = model.config
    pairs = torch.cartesian_prod(torch.arange(c.num_entities), torch.arange(c.relation_rows))
    return pairs[:, 0], pairs[:, 1]


@torch.no_grad()
def assert_same_scores(ours: ConvE, reference: Any) -> None:
    heads, relations = all_pairs(ours)
    scores = ours.eval()(heads, relations)
    expected = reference.score_t(torch.stack([heads, relations], dim=1))
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inverse", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_state_dict_of_pykeen_scores_alike_here(shape: dict[str, Any], inverse: bool) -> None:
    reference = theirs(inverse, **shape)
    info = reference.interaction.shape_info
    image = {"embedding_height": info.image_height, "embedding_width": info.image_width}
    ours = from_pykeen_state(reference.state_dict(), inverse=inverse, **image)
    assert_same_scores(ours, reference)
    assert ours.config.num_relations == 55


@pytest.mark.parametrize("shape", SHAPES)
def test_our_weights_load_into_pykeen_and_score_alike_there(shape: dict[str, Any]) -> None:
    reference = theirs(**shape)
    info = reference.interaction.shape_info
    torch.manual_seed(5)
    image = info.embedding_dim, info.input_channels, info.image_height, info.image_width
    kernels = info.output_channels, info.kernel_height, info.kernel_width
    normalised = shape.get("apply_batch_normalization", True)
    ours = ConvE(ConvEConfig(14, 55, True, *image, *kernels, batch_norm=normalised))
    ours.encode(*all_pairs(ours))
    reference.load_state_dict(to_pykeen_state(ours))
    assert_same_scores(ours, reference)


def test_a_trained_model_is_loaded_only_when_its_pickle_is_trusted(tmp_path: Path) -> None:
    reference = theirs(**SHAPES[4])
    path = tmp_path / "trained_model.pkl"
    torch.save(reference, path)
    with pytest.raises(BadInput, match="would run the code in it") as caught:
        load_saved(path, trust_pickle=False)
    assert "--trust-pickle" in (caught.value.hint or "")
    ours = conve_of(path, load_saved(path, trust_pickle=True), 55)
    assert_same_scores(ours, reference)
    assert ours.config.inverse
    assert ours.config.input_dropout == 0.1
    assert ours.config.feature_map_dropout == 0.3
    assert ours.config.output_dropout == 0.5


@pytest.mark.parametrize("inverse", [True, False])
def test_a_saved_state_dict_needs_no_trust(tmp_path: Path, inverse: bool) -> None:
    reference = theirs(inverse, embedding_dim=12)
    path = tmp_path / "state.pt"
    torch.save(reference.state_dict(), path)
    ours = conve_of(path, load_saved(path, trust_pickle=False), 55)
    assert ours.config.inverse == inverse
    assert_same_scores(ours, reference)


def test_the_file_of_save_state_needs_trust_since_its_pickle_protocol_does(tmp_path: Path) -> None:
    reference = theirs(embedding_dim=12)
    path = tmp_path / "state.pt"
    reference.save_state(path)
    with pytest.raises(BadInput, match="safe reader refuses"):
        load_saved(path, trust_pickle=False)
    assert_same_scores(conve_of(path, load_saved(path, trust_pickle=True), 55), reference)


def test_what_is_no_conve_is_refused_by_name(tmp_path: Path) -> None:
    other = TransE(triples_factory=Nations().training, embedding_dim=4)
    with pytest.raises(BadInput, match="not a PyKEEN ConvE"):
        from_pykeen_state(other.state_dict(), inverse=False)
    path = tmp_path / "trained_model.pkl"
    torch.save(other, path)
    with pytest.raises(BadInput, match="holds a TransE, not a ConvE"):
        conve_of(path, load_saved(path, trust_pickle=True), 55)
