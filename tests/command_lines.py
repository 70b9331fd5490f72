"""Random command lines of all workloads, on data so small that each of them can really be run in seconds."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracing import batch_file, files, first_test_triples

from kgops.jobs import toml
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.planning import profiles

Words = list[str]
Choices = dict[str, tuple[Any, ...]]  # an option → its values; () is a switch
Make = Callable[["Bed", random.Random], tuple[Words, Words]]

_COMMON: Choices = {
    "--memory-limit": (8000, 16000),
    "--allow-approximate": (),
    "--exclusive": (),
    "--attempts": (2,),
    "--grace": (5,),
    "--log-limit": (16,),
    "--label": ("two words",),
}
_TRAIN: Choices = {
    "--batch-size": (64, 300, 1024),
    "--entity-chunk": (7, 512, 5000),
    "--precision": ("auto", "fp32", "tf32", "fp16", "bf16"),
    "--use-mixed-precision": (),
    "--use-gradient-checkpointing": (),
    "--cuda-graphs": (),
    "--disable-memory-cleanup": (),
    "--num-workers": (0, 3),
    "--optimizer": ("adam", "adamw", "adagrad"),
    "--loss": ("kvsall-bce", "1vsall-ce"),
    "--device": ("cpu",),
}
_TRACIN: Choices = {
    "--batch-size": (32, 500),
    "--entity-chunk": (7, 4096),
    "--tests-at-once": (1, 50),
    "--precision": ("auto", "fp32", "tf32", "bf16"),
    "--use-mixed-precision": (),
    "--use-last-layers-only": (),
    "--num-last-layers": (1, 2),
    "--skip-filtering": (),
    "--n-hops": (1,),
    "--top-k": (3,),
    "--use-gradient-checkpointing": (),
    "--disable-memory-cleanup": (),
    "--use-torch-compile": (),
    "--use-vectorized-gradients": (),
    "--disable-vectorized-gradients": (),
    "--disable-test-gradient-caching": (),
    "--devices": (1, 2),
    "--enable-multi-gpu": (),
    "--self-influence": (),
    "--device": ("cpu",),
}
_REGRESS: Choices = {
    "--batch_size": (4, 9),
    "--microbatch": (2, 100),
    "--temporal_frames": (3, 4),
    "--memory_optimized": (),
    "--no-memory_optimized": (),
    "--gradient_checkpointing": (),
    "--no-gradient_checkpointing": (),
    "--precision": ("auto", "fp32", "fp16", "bf16", "tf32"),
    "--compile": ("off",),
    "--num_workers": (0, 4),
    "--memory_cleanup": (),
    "--no-memory_cleanup": (),
    "--optimizer": ("adam", "sgd"),
    "--device": ("cpu",),
}
_PREDICT: Choices = {
    "--top-k": (1, 5),
    "--new": (),
    "--no-new": (),
    "--entity-chunk": (7, 4096, "auto"),
    "--disable-memory-cleanup": (),
    "--device": ("cpu",),
}
_EXPLAIN: Choices = {
    "--max-facts": (1, 3),
    "--sufficient": (),
    "--disable-memory-cleanup": (),
    "--device": ("cpu",),
}
# What a job file can say of any workload, whether or not it has that option.
_OPTIONS: Choices = {
    "precision": ("auto", "fp32", "bf16"),
    "batch_size": (100, 512),
    "microbatch": ("auto", 4),
    "block": (48,),
    "tests_at_once": ("auto", 5),
    "entity_chunk": ("auto", 9),
    "gradient_checkpointing": (True, False),
    "memory_cleanup": (True, False),
    "cuda_graphs": (True, False),
    "filtering": (True, False),
    "last_layers": (False, 2),
    "vectorized_gradients": (True, False),
    "test_gradient_caching": (True, False),
    "optimizer_kernel": ("fused", "plain"),
    "scale_gradients": (True, False),
    "num_workers": (0, 2),
    "temporal_frames": (4,),
    "memory_optimized": (True, False),
}
_OWN_PROFILE = """
summary = "one of a person's own"
[options]
precision = "bf16"
batch_size = 200
gradient_checkpointing = true
compile = "off"
optimizer_kernel = "plain"
num_workers = 2
[environment]
PYTORCH_ALLOC_CONF = "expandable_segments:True"
"""
_OWN_CONFIGURATION = (
    "epochs: 1\nmemory_optimized: true\ntorch_compile: false\nbatch_size: 6\nhpc_mode: true\n"
)


@dataclass(frozen=True, slots=True)
class Line:
    """`words` follow `kgops run`. `tokens` say what of the product it tries. `planned` is a sweep's first run."""

    workload: str
    words: tuple[str, ...]
    tokens: frozenset[str]
    planned: tuple[str, ...]

    @property
    def is_startable(self) -> bool:
        """Not one that asks for a GPU, nor one that waits minutes for a compiler."""
        return not {"--gpu", "--gpu-memory", "--compile"} & set(self.words)

    @property
    def can_be_suggested(self) -> bool:
        return self.words[0] != "exec"

    def __str__(self) -> str:
        return " ".join(self.words)


class Bed:
    """Data, a profile, a configuration and runs to trace, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profile = folder / "own.toml"
        self.profile.write_text(_OWN_PROFILE)
        self.configuration = folder / "own.yaml"
        self.configuration.write_text(_OWN_CONFIGURATION)
        self.flights = folder / "flights"
        make_flights(self.flights, 2, Sky(frames=14, size=16), seed=1)
        self.tests = batch_file(folder, first_test_triples(3))
        self._jobs = 0

    def job_file(self, table: dict[str, Any]) -> str:
        self._jobs += 1
        path = self.folder / f"job-{self._jobs}.toml"
        path.write_text(toml.dumps(table))
        return str(path)


def lines(bed: Bed, many: int, seed: int, gpus: tuple[str, ...] = ()) -> Iterator[Line]:
    """The same for the same seed. `gpus` are some that a line may insist on."""
    chance = random.Random(seed)
    made = [make for make, times in _KINDS.items() for _ in range(times)]
    for number in range(many):
        make = made[number % len(made)] if number < len(made) else chance.choice(made)
        words, tokens = make(bed, chance)
        planned = list(words)
        if words[0] == "sweep":
            # The label is each run's own; its first is that of the job with the value in it.
            common = [word for word in _common(bed, chance, gpus) if word not in ("--label", "two words")]
            words, planned = [*words[:-1], *common], [words[-1], *common]
        elif words[0] != "exec":
            words += _common(bed, chance, gpus)
            planned = words
        else:
            words[1:1] = _common(bed, chance, ())
            planned = words
        named = (word for word in words if word.startswith("--"))
        kind = make.__name__.strip("_")
        tried = frozenset(f"{kind} {token}" for token in (*named, *tokens))
        yield Line(kind, tuple(words), tried, tuple(planned))


def _common(bed: Bed, chance: random.Random, gpus: tuple[str, ...]) -> Words:
    words = _some(_COMMON, chance, 0.12)
    if chance.random() < 0.7:
        words += ["--profile", chance.choice([*profiles.names(), str(bed.profile)])]
    if gpus and chance.random() < 0.5:
        words += ["--gpu", chance.choice(gpus)]
        words = _without(words, "--memory-limit")  # which is for the CPU
    return words


def _without(words: Words, option: str) -> Words:
    """Without the option and its value."""
    at = words.index(option) if option in words else len(words)
    return words[:at] + words[at + 2 :]


def _some(known: Choices, chance: random.Random, share: float) -> Words:
    found: Words = []
    for option, values in known.items():
        if chance.random() < share and found[-1:] != [option.replace("--no-", "--")]:
            found += [option, *([str(chance.choice(values))] if values else [])]
    return found


_SMALL = ["--num-epochs", "1", "--embedding-dim", "16", "--output-channels", "4", "--validate-every", "0"]


def _train(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    data = ["--dataset", "nations"]
    if chance.random() < 0.4:
        data = [word for name, path in files().items() for word in (f"--{name}", path)]
    if chance.random() < 0.2:
        data = ["--recipe", chance.choice(["umls", "kinships"])]
    return ["train", *data, *_SMALL, *_some(_TRAIN, chance, 0.25)], []


def _pykeen(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    known = {name: _TRAIN[name] for name in _TRAIN if name != "--loss"}
    own = ["--engine", "pykeen", "--model", chance.choice(["TransE", "DistMult"])]
    return ["train", "--dataset", "nations", *own, *_SMALL, *_some(known, chance, 0.25)], []


def _tracin(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    words = _some(_TRACIN, chance, 0.22)
    which = chance.choice([["--max-triples", "3"], ["--test-triples", bed.tests], ["--start-index", "198"]])
    if "--self-influence" in words:
        which = []
        words = _without([word for word in words if word != "--skip-filtering"], "--n-hops")
    run = chance.choice([["--run", "1"], ["--run", "1"], ["--run", "2", "--loss", "target"]])
    return ["tracin", *run, *which, *words], []


_QUESTION = ["--head", "uk", "--relation", "embassy"]
_PREDICTION = ["--triple", "uk embassy usa"]


def _predict(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    asked = chance.choice([_QUESTION, ["--relation", "embassy", "--tail", "usa"], ["--relation", "embassy"]])
    pairs = ["--best", "3"] if len(asked) == 2 else []
    words = _some(_PREDICT, chance, 0.25)
    return ["predict", "--run", chance.choice("12"), *asked, *pairs, *words], pairs[:1]


def _explain(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    return ["explain", "--run", "1", *_PREDICTION, *_some(_EXPLAIN, chance, 0.25)], []


def _regress(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    named = chance.choice([None, "colab_optimized", "colab_full_stable", str(bed.configuration)])
    words = _some(_REGRESS, chance, 0.25)
    if named is None or chance.random() < 0.5:
        words += ["--memory_optimized"] if "--no-memory_optimized" not in words else []
    quick = ["--data_directory", str(bed.flights), "--epochs", "1", "--no-pretrain", "--no-loo"]
    return ["regress", *(["--config", named] if named else []), *quick, *words], [str(named)]


def _options_of(chance: random.Random, share: float) -> dict[str, Any]:
    return {name: chance.choice(values) for name, values in _OPTIONS.items() if chance.random() < share}


def _file(bed: Bed, workload: str, settings: dict[str, Any], options: dict[str, Any]) -> tuple[Words, Words]:
    return [bed.job_file({"workload": workload, workload: settings, "options": options})], list(options)


_TRAINING = {"dataset": "nations", "num_epochs": 1, "embedding_dim": 16, "output_channels": 4}


def _file_of_train(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    return _file(bed, "train", _TRAINING, _options_of(chance, 0.4))


def _file_of_tracin(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    return _file(bed, "tracin", {"run": 1, "max_triples": 2, "top_k": 2}, _options_of(chance, 0.4))


def _file_of_regress(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    settings = {"data_directory": str(bed.flights), "epochs": 1, "pretrain": False}
    return _file(bed, "regress", settings, {"memory_optimized": True, **_options_of(chance, 0.4)})


def _sweep(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    """Its last word is the job that its first run is."""
    known: Choices = {
        "batch_size": (100, 512),
        "precision": ("fp32", "bf16"),
        "gradient_checkpointing": (True, False),
    }
    name = chance.choice(list(known))
    values = chance.sample(known[name], 2)
    options = {one: value for one, value in _options_of(chance, 0.3).items() if one != name}
    table = {"workload": "train", "train": _TRAINING, "options": options}
    texts = [str(value).lower() for value in values]
    first = {**table, "label": f"nations {name}={texts[0]}", "options": {**options, name: values[0]}}
    vary = f"{name}={','.join(texts)}"
    return ["sweep", bed.job_file(table), "--vary", vary, bed.job_file(first)], [name]


def _pipeline(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    device = {"device": "cpu"} if chance.random() < 0.3 else {}
    train = {**_TRAINING, "num_epochs": 2, **device}
    stages = {"train": train, "tracin": {"max_triples": 2, "top_k": 2, **device}}
    return _file(bed, "pipeline", stages, _options_of(chance, 0.35))


def _exec(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    return ["exec", "--", "true"], []


def _file_of_exec(bed: Bed, chance: random.Random) -> tuple[Words, Words]:
    return _file(bed, "exec", {"command": ["true"]}, _options_of(chance, 0.2))


_KINDS: dict[Make, int] = {
    _train: 5,
    _pykeen: 2,
    _tracin: 5,
    _predict: 3,
    _explain: 2,
    _regress: 4,
    _file_of_train: 2,
    _file_of_tracin: 2,
    _file_of_regress: 2,
    _sweep: 2,
    _pipeline: 3,
    _exec: 1,
    _file_of_exec: 1,
}
