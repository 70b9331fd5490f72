"""Random settings of training and TracIn runs that take a second or two, for `estimating`."""

import math
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from kgops.jobs.job import Job
from kgops.workloads.job_files import read_job
from kgops.workloads.train.models import ConvEConfig, ModelConfig, VectorConfig
from kgops.workloads.train.options import CONVE, CONVE_LAYERS, VECTOR_MODELS

Setting = TypeVar("Setting", "TrainSetting", "TracinSetting")
_FLOP = 2e10  # of a whole setting, at most
_CHUNK_SCORES = 1 << 24
_LEAST_FLOP = 1e8  # lower limit, below which no setting would be drawn


@dataclass(frozen=True)
class TrainSetting:
    """Size of the graph, and settings of model and training."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int
    settings: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    def job(self) -> Job:
        table = {"dataset": "drawn", "num_epochs": 2, "checkpoint_frequency": 1, **self.settings}
        return read_job({"workload": "train", "train": table, "options": self.options}, "a drawn setting")


@dataclass(frozen=True)
class TracinSetting:
    """Sizes of graph and model, and the settings of the job."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int
    embedding_dim: int
    output_channels: int
    inverse: bool
    batch_norm: bool
    checkpoints: int
    loss: str
    trained_loss: str
    smoothing: float
    both_directions: bool
    top_k: int | None
    options: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)  # of the job's settings
    model: str = CONVE

    def config(self) -> ModelConfig:
        if self.model != CONVE:
            rank = self.embedding_dim // VECTOR_MODELS[self.model]
            return VectorConfig(self.entities, self.relations, self.inverse, rank, self.model)
        return ConvEConfig(
            self.entities,
            self.relations,
            self.inverse,
            self.embedding_dim,
            output_channels=self.output_channels,
            batch_norm=self.batch_norm,
        )

    def job(self, folder: Path = Path("drawn")) -> Job:
        """The job, with its checkpoints in `folder`."""
        table: dict[str, Any] = {"dataset": "drawn", "checkpoint_dir": str(folder)}
        table |= {"loss": self.loss, "both_directions": self.both_directions, "device": "cpu", **self.more}
        table |= {} if self.top_k is None else {"top_k": self.top_k}
        return read_job({"workload": "tracin", "tracin": table, "options": self.options}, "a drawn setting")

    def explaining(self, folder: Path, triple: tuple[int, int, int]) -> Job:
        """The job that explains `triple` by the first of these checkpoints."""
        table = {"dataset": "drawn", "model_path": str(folder / "0.pt"), "device": "cpu", **self.more}
        asked = "\t".join(map(str, triple))
        return read_job({"workload": "explain", "explain": {**table, "triple": asked}}, "a drawn setting")


def draw_train(
    rng: random.Random, *, least_entities: int = 14, most_entities: int = 200_000, flop: float = _FLOP
) -> TrainSetting:
    while True:
        entities, relations = round(_between(rng, least_entities, most_entities)), rng.choice((1, 3, 20, 150))
        dim, channels = rng.choice((16, 32, 64, 100, 128, 200, 256)), rng.choice((3, 8, 16, 32, 48))
        batch = round(_between(rng, 8, 2048))
        train = max(120, int(batch * rng.uniform(1.2, 5)))
        valid, test = (int(train * rng.choice((0.0, *[rng.uniform(0.02, 0.3)] * 3))) for _ in (1, 2))
        settings: dict[str, Any] = {
            "embedding_dim": dim,
            "output_channels": channels,
            "inverse": rng.random() < 0.6,
            "batch_norm": rng.random() < 0.75,
            "loss": rng.choice(("kvsall-bce", "kvsall-ce", "1vsall-bce", "1vsall-ce")),
            "label_smoothing": rng.choice((0.0, 0.1)),
            "optimizer": rng.choice(("adam", "adamw", "adagrad", "sgd")),
            "weight_decay": rng.choice((0.0, 1e-4)),
            "input_dropout": rng.choice((0.0, 0.2, 0.2)),
            "output_dropout": rng.choice((0.0, 0.3, 0.3)),
            "relation_dropout": rng.choice((0.0, 0.0, 0.1)),
            "validate_every": rng.choice((0, 1, 1)),
        }
        options: dict[str, Any] = {
            "batch_size": batch,
            "precision": rng.choice(("fp32", "fp32", "bf16")),
            "gradient_checkpointing": rng.random() < 0.3,
        }
        if rng.random() < 0.5:
            options["entity_chunk"] = rng.choice((64, 500, 1024, 4096, 50_000))
        setting = TrainSetting(entities, relations, train, valid, test, settings, options)
        if _train_flop(setting) <= flop:
            return setting


def of_vectors(rng: random.Random, drawn: Setting) -> Setting:
    """The same of ComplEx or DistMult."""
    model = rng.choice(tuple(VECTOR_MODELS))
    if isinstance(drawn, TracinSetting):
        return replace(drawn, model=model)
    settings = {name: value for name, value in drawn.settings.items() if name not in CONVE_LAYERS}
    settings |= {"model": model, "embedding_dim": settings["embedding_dim"] // VECTOR_MODELS[model]}
    settings["regularizer"] = rng.choice(("none", "n3"))
    settings["relation_prediction"] = rng.choice((0.0, 0.5))
    return replace(drawn, settings=settings)


def draw_large_train(rng: random.Random) -> TrainSetting:
    """A training of a GiB to four by a rough count of its largest tensors, in few steps."""
    while True:
        drawn = draw_train(rng, least_entities=10_000, most_entities=600_000, flop=math.inf)
        settings, options = drawn.settings, drawn.options
        dim, batch = settings["embedding_dim"], options["batch_size"]
        table = drawn.entities * dim
        kept = {"adam": 4, "adamw": 4, "adagrad": 5, "sgd": 2}[settings["optimizer"]] * table
        plane = min(drawn.entities, options.get("entity_chunk", _CHUNK_SCORES // batch)) * batch
        maps = batch * settings["output_channels"] * 2 * dim
        ranks_heads = not settings["inverse"] and drawn.valid + drawn.test > 0
        if ranks_heads and (drawn.entities > 60_000 or drawn.relations > 3):
            continue
        if 1.2e9 < 4 * (kept + 2 * plane + 2 * maps) < 4e9 and drawn.entities * drawn.train < 6e8:
            most = rng.choice((60, 60, 60, 600))
            return replace(drawn, valid=min(drawn.valid, most), test=min(drawn.test, most))


def draw_tracin(
    rng: random.Random, *, least_entities: int = 60, most_entities: int = 100_000, flop: float = _FLOP
) -> TracinSetting:
    while True:
        inverse = rng.random() < 0.6
        options: dict[str, Any] = {}
        if rng.random() < 0.5:
            options["block"] = rng.choice((64, 256, 512, 1000))
        if rng.random() < 0.5:
            options["entity_chunk"] = rng.choice((500, 2048, 8192))
        setting = TracinSetting(
            entities=round(_between(rng, least_entities, most_entities)),
            relations=rng.choice((1, 3, 20, 150)),
            train=round(_between(rng, 512, 8192)),
            valid=0,
            test=rng.choice((1, rng.randint(2, 64), round(_between(rng, 32, 2048)))),
            embedding_dim=rng.choice((32, 64, 100, 200)),
            output_channels=rng.choice((3, 8, 16, 32)),
            inverse=inverse,
            batch_norm=rng.random() < 0.75,
            checkpoints=rng.choice((1, 1, 2, 3)),
            loss=rng.choice(("target", "one-to-n", "train")),
            trained_loss=rng.choice(("kvsall-bce", "kvsall-ce", "1vsall-bce", "1vsall-ce")),
            smoothing=rng.choice((0.0, 0.1)),
            both_directions=inverse and rng.random() < 0.4,
            top_k=rng.choice((None, 1, 10, 100)),
            options=options,
        )
        if _tracin_flop(setting) <= flop:
            return setting


def draw_other(rng: random.Random, *, most_entities: int = 20_000, flop: float = _FLOP / 4) -> TracinSetting:
    """TracIn otherwise than plainly: in fewer bits, of some layers, filtered, of the
    training triples themselves, or validated."""
    plain = draw_tracin(rng, most_entities=most_entities, flop=flop)
    kind = rng.choice(("precision", "layers", "filter", "self", "validate"))
    options: dict[str, Any] = {}
    more: dict[str, Any] = {}
    if kind == "precision" or rng.random() < 0.3:
        options["precision"] = rng.choice(("bf16", "fp16"))
    if kind == "layers":
        options["last_layers"] = rng.choice((1, 2, 3, 5))
    elif kind == "self":
        more["self_influence"] = True
    elif kind == "validate":
        more["validate"] = rng.choice((1, 3))
        # Trained again thirty times: small, and in few steps.
        small = draw_tracin(rng, most_entities=min(most_entities, 2000), flop=max(flop / 50, _LEAST_FLOP))
        plain = replace(small, test=rng.randint(1, 5), checkpoints=1)
    elif kind == "filter":
        options["filtering"] = True
        # The prediction assumes that filtering keeps all triples, so the hops reach everything.
        plain = replace(plain, entities=rng.randint(60, 600), test=rng.randint(1, 40))
        more["n_hops"] = 4
    return replace(plain, options=plain.options | options, more=more)


def draw_explain(
    rng: random.Random, *, most_entities: int = 20_000, flop: float = _FLOP / 4
) -> TracinSetting:
    """An explanation of one triple, verified by training again in some."""
    verifies = rng.random() < 0.3
    if verifies:
        most_entities, flop = min(most_entities, 2000), max(flop / 10, _LEAST_FLOP)
    plain = draw_tracin(rng, most_entities=most_entities, flop=flop)
    return replace(plain, checkpoints=1, options={}, more={"verify": verifies})


def _between(rng: random.Random, low: float, high: float) -> float:
    """A random number from a log-uniform distribution."""
    return float(low * (high / low) ** rng.random())


def _train_flop(s: TrainSetting) -> float:
    dim: int = s.settings["embedding_dim"]
    inverse: bool = s.settings["inverse"]
    a_query = float(s.settings["output_channels"] * 2 * dim * dim)
    queries = 2 * s.train * (2 if inverse else 1)
    ranked = 2 * (s.valid + s.test)
    encoded = ranked if inverse else 2 * min(s.relations, ranked) * s.entities
    chunk: int = s.options.get("entity_chunk", s.entities)
    batch: int = s.options["batch_size"]
    many_small = 1e8 * max(1, s.entities / chunk) * queries / batch
    return (
        6 * queries * (a_query + s.entities * dim)
        + 2 * (encoded * a_query + ranked * s.entities * dim)
        + many_small
    )


def _tracin_flop(s: TracinSetting) -> float:
    directions = 2 if s.both_directions else 1
    rows = s.checkpoints * directions * (s.train + s.test)
    pairs = s.checkpoints * directions**2 * s.train * s.test
    features = s.output_channels * 2 * s.embedding_dim
    over_entities = 0 if s.loss == "target" else s.entities * (4 * s.embedding_dim * rows + 2 * pairs)
    return 12 * rows * features * s.embedding_dim + 2 * pairs * features + over_entities
