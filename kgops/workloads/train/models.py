"""The models of kgops' own engine as the console knows them: sizes, bytes of weights, and products of a step."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from kgops.errors import Usage
from kgops.jobs.option import Option, at_least, defaults_of, problems_of
from kgops.workloads.train.options import CONVE, OWN_MODELS, TRAIN_OPTIONS, VECTOR_MODELS

_LONGEST = 1 << 20
_DEFAULTS = defaults_of(TRAIN_OPTIONS)
_GRAPH = tuple(Option(name, "int", check=at_least(1)) for name in ("num_entities", "num_relations"))


@dataclass(frozen=True)
class ConvEConfig:
    """Sizes and dropout of a ConvE. With `inverse`, relation r has rows 2r and 2r + 1.

    Of `input_channels`, `embedding_height` and `embedding_width` any may be None: channels default to
    1 and the image to the one nearest to a square. `relation_dropout` is LibKGE's and unknown to PyKEEN.
    """

    num_entities: int
    num_relations: int
    inverse: bool = True
    embedding_dim: int = _DEFAULTS["embedding_dim"]
    input_channels: int | None = None
    embedding_height: int | None = None
    embedding_width: int | None = None
    output_channels: int = _DEFAULTS["output_channels"]
    kernel_height: int = _DEFAULTS["kernel_height"]
    kernel_width: int = _DEFAULTS["kernel_width"]
    input_dropout: float = _DEFAULTS["input_dropout"]
    feature_map_dropout: float = _DEFAULTS["feature_map_dropout"]
    output_dropout: float = _DEFAULTS["output_dropout"]
    relation_dropout: float = _DEFAULTS["relation_dropout"]
    batch_norm: bool = _DEFAULTS["batch_norm"]

    def __post_init__(self) -> None:
        channels, height, width = _image(
            self.embedding_dim, self.input_channels, self.embedding_height, self.embedding_width
        )
        object.__setattr__(self, "input_channels", channels)
        object.__setattr__(self, "embedding_height", height)
        object.__setattr__(self, "embedding_width", width)
        problems = problems_of((*_GRAPH, *TRAIN_OPTIONS), vars(self))
        if problems:
            raise Usage("; ".join(problems))
        if self.map_height < 1 or self.map_width < 1:
            raise Usage(
                f"a {self.kernel_height}x{self.kernel_width} kernel does not fit into the image of "
                f"{2 * height}x{width} that head and relation make.",
                hint="choose a smaller kernel, or another embedding height and width.",
            )

    @property
    def channels(self) -> int:
        assert self.input_channels is not None
        return self.input_channels

    @property
    def height(self) -> int:
        assert self.embedding_height is not None
        return self.embedding_height

    @property
    def width(self) -> int:
        assert self.embedding_width is not None
        return self.embedding_width

    @property
    def map_height(self) -> int:
        return 2 * self.height - self.kernel_height + 1

    @property
    def map_width(self) -> int:
        return self.width - self.kernel_width + 1

    @property
    def features(self) -> int:
        """Numbers in the flattened feature maps of one (head, relation)."""
        return self.output_channels * self.map_height * self.map_width

    @property
    def relation_rows(self) -> int:
        return self.num_relations * (2 if self.inverse else 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _image(dim: int, channels: int | None, height: int | None, width: int | None) -> tuple[int, int, int]:
    if dim < 1:
        raise Usage(f"embedding_dim is {dim}; it must be at least 1.")
    if dim > _LONGEST:  # looking for the factors of a number takes its root's time
        raise Usage(f"embedding_dim is {dim}; it must be at most {_LONGEST:,}.")
    if channels is None:
        channels = dim // (height * width) if height and width else 1
    area = dim // max(channels, 1)
    if height is None and width is None:
        height = max(factor for factor in range(1, math.isqrt(max(area, 1)) + 1) if area % factor == 0)
        width = area // height
    elif height is None:
        height = area // width if width else 0
    elif width is None:
        width = area // height if height else 0
    assert height is not None and width is not None
    if channels < 1 or channels * height * width != dim:
        raise Usage(
            f"embedding_dim {dim} is not channels x height x width = {channels} x {height} x {width}.",
            hint="leave out embedding height and width, or give factors of embedding_dim.",
        )
    return channels, height, width


@dataclass(frozen=True)
class VectorConfig:
    """Sizes of a model of one vector for each entity and each relation row, without layers. A vector of `rank`
    dimensions has `embedding_dim` numbers: two for each dimension where they are complex."""

    num_entities: int
    num_relations: int
    inverse: bool = True
    rank: int = _DEFAULTS["embedding_dim"]
    model: str = "ComplEx"

    # What formulas of ConvE ask for: layers of no size.
    channels: ClassVar[int] = 0
    width: ClassVar[int] = 0
    output_channels: ClassVar[int] = 0
    kernel_height: ClassVar[int] = 1
    kernel_width: ClassVar[int] = 1
    map_height: ClassVar[int] = 1
    map_width: ClassVar[int] = 1
    features: ClassVar[int] = 0
    batch_norm: ClassVar[bool] = False
    input_dropout: ClassVar[float] = 0.0
    relation_dropout: ClassVar[float] = 0.0
    output_dropout: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        problems = problems_of(_GRAPH, vars(self))
        if self.model not in VECTOR_MODELS:
            problems.append(f"model: there is no {self.model!r:.60}")
        if not isinstance(self.rank, int) or not 1 <= self.rank <= _LONGEST:
            problems.append(f"embedding_dim is {self.rank}; it must be from 1 to {_LONGEST:,}")
        if problems:
            raise Usage("; ".join(problems))

    @property
    def embedding_dim(self) -> int:
        return self.rank * VECTOR_MODELS[self.model]

    @property
    def relation_rows(self) -> int:
        return self.num_relations * (2 if self.inverse else 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


ModelConfig = ConvEConfig | VectorConfig
_KEYS = {kind: {field.name for field in fields(kind)} for kind in (ConvEConfig, VectorConfig)}


def model_of_sizes(sizes: Mapping[str, Any]) -> ModelConfig:
    """From what `to_dict` gave; Usage, TypeError or ValueError where it is none."""
    return VectorConfig(**sizes) if "rank" in sizes else ConvEConfig(**sizes)


def model_of_settings(settings: Mapping[str, Any], entities: int, relations: int) -> ModelConfig:
    """The model that the worker builds."""
    name = OWN_MODELS[settings["model"].lower()] if settings.get("model") else CONVE
    kind = ConvEConfig if name == CONVE else VectorConfig
    given = {key: settings[key] for key in _KEYS[kind] & settings.keys() if settings[key] is not None}
    if name != CONVE:
        given |= {"rank": settings["embedding_dim"], "model": name}
    return model_of_sizes({"num_entities": entities, "num_relations": relations, **given})


def model_of_config(config: Mapping[str, Any]) -> ModelConfig | None:
    """From the `config.json` that a training leaves next to its models; None where it is of another model."""
    sizes = config.get("model")
    required = {"num_entities", "num_relations"}
    if not isinstance(sizes, Mapping) or not any(
        required <= sizes.keys() <= known for known in _KEYS.values()
    ):
        return None
    counts = [value for name, value in sizes.items() if name != "model" and not name.endswith("dropout")]
    if not all(value is None or isinstance(value, int) for value in counts):
        return None
    try:
        return model_of_sizes(sizes)
    except (Usage, TypeError, ValueError, ArithmeticError):  # changed since, or of another kgops
        return None


@functools.lru_cache(maxsize=64)
def weight_sizes(c: ModelConfig) -> tuple[int, ...]:
    """Of every parameter, in float32."""
    if isinstance(c, VectorConfig):
        return 4 * c.num_entities * c.embedding_dim, 4 * c.relation_rows * c.embedding_dim
    numbers = [
        c.num_entities * c.embedding_dim,
        c.num_entities,
        c.relation_rows * c.embedding_dim,
        c.output_channels * kernel(c),
        c.output_channels,
        c.embedding_dim * c.features,
        c.embedding_dim,
    ]
    if c.batch_norm:
        numbers += [width for width in _widths(c) for _ in ("weight", "bias")]
    return tuple(4 * n for n in numbers)


def weight_bytes(c: ModelConfig) -> int:
    return sum(weight_sizes(c))


def buffer_bytes(c: ModelConfig) -> int:
    """Of running statistics, which have no gradient: two vectors and a counter for each norm."""
    return sum(8 * width + 8 for width in _widths(c)) if c.batch_norm else 0


def _widths(c: ModelConfig) -> tuple[int, int, int]:
    return c.channels, c.output_channels, c.embedding_dim


def kernel(model: ModelConfig) -> int:
    return model.channels * model.kernel_height * model.kernel_width


# Below this a thread waits longer than it computes.
GFLOP_A_THREAD = 0.5


def step_gflop(config: ModelConfig, batch_size: int) -> float:
    """Gflop of a step's products: once forward, twice backward."""
    a_query = (
        config.features * (kernel(config) + config.embedding_dim) + config.num_entities * config.embedding_dim
    )
    return 6 * batch_size * a_query / 1e9


def threads_for(gflop: float, cores: int) -> int:
    return max(1, min(cores, int(gflop / GFLOP_A_THREAD)))
