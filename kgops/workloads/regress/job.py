"""The workload `regress`: the sizes of its network, its checks and its label."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Literal

from kgops.errors import Usage
from kgops.jobs.job import Job
from kgops.jobs.on_device import (
    Applied,
    WorkerDevice,
    applied_cleanup,
    gradient_scaling,
    training_compile,
    training_precision,
)
from kgops.jobs.option import Option, at_least, problems_of
from kgops.jobs.text import on_or_off
from kgops.workloads.regress.options import (
    REGRESS_BATCH,
    REGRESS_FRAMES,
    REGRESS_OPTIONS,
    REGRESS_VALIDATION_SHARE,
)
from kgops.workloads.workload import Workload

Mixer = Literal["attention", "messages", "scan", "mean"]

_MIXER_OF: dict[str, Mixer] = {
    "transformer": "attention",
    "gnn": "messages",
    "ssm": "scan",
    "cnn": "mean",
}
# Inputs per mode: a sine and a cosine of each sun angle.
_ANGLE_FEATURES = {"both": 4, "sza_only": 2, "saa_only": 2, "none": 0}
CHANNELS = (64, 128, 256)
SMALL_CHANNELS = (32, 64, 128)  # with memory_optimized
_MOST_GROUPS = 8
_LEAST_PIXELS = 8  # on a side: three pools leave one


@dataclass(frozen=True)
class RegressionConfig:
    """Without `use_temporal_attention` a transformer is a mean over frames; other mixers do not ask for it."""

    height: int
    width: int
    temporal_frames: int = 5
    architecture: str = "transformer"
    angles_mode: str = "both"
    channels: tuple[int, int, int] = CHANNELS
    use_spatial_attention: bool = True
    use_temporal_attention: bool = True
    film_width: int = 64
    attention_heads: int = 4
    message_rounds: int = 2
    states: int = 16
    dropout: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))  # JSON gives a list
        problems = problems_of((*_SIZES, *REGRESS_OPTIONS), asdict(self))
        if len(self.channels) != 3 or min(self.channels) < 1:
            problems.append(f"channels are {self.channels}; three stages need three counts from 1 on")
        elif self.mixer == "attention" and self.features % self.attention_heads:
            problems.append(f"{self.features} features do not divide into {self.attention_heads} heads")
        if problems:
            raise Usage("; ".join(problems))

    @property
    def mixer(self) -> Mixer:
        """How frames become one, whatever it is called."""
        found = _MIXER_OF.get(self.architecture, "mean")
        return "mean" if found == "attention" and not self.use_temporal_attention else found

    @property
    def features(self) -> int:
        """Numbers of a frame's vector."""
        return self.channels[-1]

    @property
    def hidden(self) -> int:
        """Of the head."""
        return max(1, self.features // 2)

    @property
    def angle_features(self) -> int:
        return _ANGLE_FEATURES[self.angles_mode]

    def groups(self, stage: int) -> int:
        """Of its norm."""
        return math.gcd(self.channels[stage], _MOST_GROUPS)

    def pixels(self, stage: int) -> int:
        """That a convolution of this stage sees; stage 3 is what the last pool leaves."""
        return (self.height >> stage) * (self.width >> stage)

    @property
    def products(self) -> int:
        """Multiplications of a frame's convolutions."""
        entering = (1, *self.channels)
        return sum(9 * entering[i] * out * self.pixels(i) for i, out in enumerate(self.channels))

    @property
    def sizes(self) -> list[int]:
        """Of every parameter, in the network's order."""
        sizes: list[int] = []
        d, entering = self.features, (1, *self.channels)
        for stage, channels in enumerate(self.channels):
            sizes += [9 * entering[stage] * channels, *_norm(channels)]
            if self.angle_features:
                sizes += _linear(self.angle_features, self.film_width)
                sizes += _linear(self.film_width, 2 * channels)
        if self.use_spatial_attention:
            sizes += _linear(d, 1)
        if self.mixer == "attention":
            sizes += [self.temporal_frames * d, *_norm(d), *_linear(d, 3 * d), *_linear(d, d)]
            sizes += [*_norm(d), *_linear(d, 2 * d), *_linear(2 * d, d)]
        elif self.mixer == "messages":
            sizes += [*_norm(d), *_linear(d, d), d * d] * self.message_rounds
        elif self.mixer == "scan":
            sizes += [*[d * self.states] * 3, d, *_norm(d), *_linear(d, d)]
        return [*sizes, *_linear(d, self.hidden), *_linear(self.hidden, 1)]

    @property
    def parameters(self) -> int:
        return sum(self.sizes)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "channels": list(self.channels)}


_SIZES = (
    *(Option(name, "int", check=at_least(_LEAST_PIXELS)) for name in ("height", "width")),
    *(
        Option(name, "int", check=at_least(1))
        for name in ("film_width", "attention_heads", "message_rounds", "states")
    ),
)


def _norm(size: int) -> tuple[int, int]:
    return size, size


def _linear(entering: int, leaving: int) -> tuple[int, int]:
    return entering * leaving, leaving


def image_size(settings: Mapping[str, Any]) -> tuple[int, int] | None:
    """Height and width that the job names."""
    if settings["image_size"] is None:
        return None
    parts = [int(part) for part in settings["image_size"].split("x")]
    return parts[0], parts[-1]


def config_of(
    settings: Mapping[str, Any], options: Mapping[str, Any], size: tuple[int, int]
) -> RegressionConfig:
    """The network of a job for frames of this height and width."""
    same = ("architecture", "angles_mode", "use_spatial_attention", "use_temporal_attention", "dropout")
    return RegressionConfig(
        *size,
        temporal_frames=options.get("temporal_frames", REGRESS.default("temporal_frames")),
        channels=SMALL_CHANNELS if options.get("memory_optimized", False) else CHANNELS,
        **{name: settings[name] for name in same},
    )


def split_windows(windows: int, length: int) -> tuple[int, int]:
    """Of a flight's windows: its first, to train on, and its last, which say when to stop."""
    valid = int(REGRESS_VALIDATION_SHARE * windows)
    # Those that share frames with a validated one are left out.
    train = windows - valid - (length - 1 if valid else 0)
    return (train, valid) if train > 0 else (windows, 0)


def _check(settings: dict[str, Any]) -> list[str]:
    problems = []
    if not settings["data_directory"] and not settings["image_size"]:
        problems.append(
            "regress.data_directory: missing; name a folder of flights (to plan, image_size is enough)"
        )
    if not settings["final"] and not settings["pretrain"] and not settings["loo"]:
        problems.append("regress.final: off, and so are pretrain and loo: no training is left")
    return problems


def _label(settings: dict[str, Any]) -> str:
    data = PurePath(settings["data_directory"] or "").name or settings["image_size"]
    return settings["save_name"] or f"{data} {settings['architecture']}"


REGRESS = Workload(
    name="regress",
    summary="heights from windows of camera frames and sun angles",
    options=REGRESS_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,  # it resumes bit for bit, so a lost worker costs a minute
    module="kgops.maths.regress.worker",
    folders=("data_directory",),
    epochs="epochs",
    has_graph=False,
    has_configuration=True,
    with_profile=False,
    smaller=("smaller frames in the flight files",),
)


def regression_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    requested = job.options
    precision, precision_reason = training_precision(requested.get("precision", "fp32"), device)
    batch, microbatch = (
        requested.get("batch_size", REGRESS_BATCH),
        requested.get("microbatch", "auto"),
    )
    checkpointing = bool(requested.get("gradient_checkpointing", False))
    yield Applied("precision", precision, precision_reason)
    yield Applied("batch_size", batch)
    if microbatch == "auto":
        yield Applied("microbatch", batch, "the whole batch")
    else:
        yield Applied(
            "microbatch", min(microbatch, batch), "at most the batch size" if microbatch > batch else None
        )
    yield Applied("temporal_frames", requested.get("temporal_frames", REGRESS_FRAMES))
    yield Applied(
        "gradient_checkpointing", on_or_off(checkpointing), "frame by frame" if checkpointing else None
    )
    yield Applied("compile", *training_compile(job, device, checkpointing))
    yield gradient_scaling(requested, precision)
    yield applied_cleanup(job, device)
    for name, value in requested.items():
        if name == "memory_optimized":
            yield Applied(name, on_or_off(value), "half the channels" if value else None)
        elif name == "num_workers":
            why = "one thread reads the next windows while a step runs"
            yield Applied(name, 1, why if value != 1 else None)
        elif name != "memory_cleanup" and name not in REGRESS.optimizations:
            yield Applied(name, "off", "regression has no such option")
