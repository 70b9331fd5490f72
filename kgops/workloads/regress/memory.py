"""Memory of a regression: weights, batches, and the maps of its network's stages.

Each function names the code that allocates. Sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kgops.gpus.facts import GpuFacts
from kgops.gpus.known import cublas_workspace
from kgops.workloads.memory.phases import PeakMemory, Phases, Tensor
from kgops.workloads.regress.sizes import RegressShape

MOMENTS = {"adam": 2, "adamw": 2}  # of an optimizer, for each weight
_FULL, _INDEX = 4, 8  # bytes of a float32, and of a place that a pool remembers
_AHEAD = 3  # other batches that a GPU holds during a step: two that wait and one on its way
# Vectors of frames, by what each mixer's way back asks for.
_VECTORS = {"attention": 17, "messages": 12, "scan": 6, "mean": 2}


def peak_memory(shape: RegressShape, gpu: GpuFacts | None, *, expandable: bool) -> PeakMemory:
    return phases(shape, gpu, expandable=expandable).peak


def phases(s: RegressShape, gpu: GpuFacts | None, *, expandable: bool = False) -> Phases:
    """`kgops.maths.regress.loop`: a usual step, the last of an epoch, and what lies between epochs."""
    angles = "" if s.model.angle_features else ", no angles"
    p = Phases(
        f"regress{angles}{'' if s.low == _FULL else ', low precision'}",
        on_gpu=s.on_gpu,
        expandable=expandable,
    )
    weights = [_FULL * size for size in s.model.sizes]
    moments = MOMENTS.get(s.optimizer, 0)
    workspace = cublas_workspace(gpu.compute_capability if gpu else None) if s.on_gpu else 0
    p.keep("loading", *_parts("weights", weights))
    if s.on_gpu:
        batches = min(s.steps, 1 + _AHEAD)
        p.keep("loading", *_parts("data", [s.pixel * s.batch * _pixels(s)] * batches))
    sizes = {s.batch, s.train % s.batch_size or s.batch} if s.train > s.batch_size else {s.batch}
    p.keep("step", *_parts("workspace", [workspace] * 2))
    for is_first in (True, False):
        for windows in sorted(sizes, reverse=True):
            _step(p, s, windows)
        if is_first:
            p.keep("step", *_parts("gradients", weights), *_parts("optimizer", weights * moments))
    for phase, windows in (("validation", s.valid), ("test", s.held_out)):
        if phase == "test" and windows:
            p.run(phase, *_parts("checkpoint", weights))
        if windows:
            _evaluate(p, s, phase, min(s.batch_size, windows))
    return p


def _parts(part: str, sizes: list[int]) -> list[Tensor]:
    return [(part, size) for size in sizes]


def _pixels(s: RegressShape) -> int:
    """Of a window."""
    return s.model.temporal_frames * s.model.height * s.model.width


def _step(p: Phases, s: RegressShape, windows: int) -> None:
    """Images, then each piece of the batch there and back."""
    image = _FULL * windows * _pixels(s)
    p.run("step", *_parts("data", [image] * (6 if s.augment else 3)))
    images = _parts("data", [image])
    piece, frames = min(s.computed, windows), s.model.temporal_frames
    vectors = _FULL * piece * frames * s.model.features
    mixing = _parts("activations", [vectors] * _VECTORS[s.model.mixer])
    if s.checkpointing:  # each frame alone, and once more on the way back
        for maps in _there(s, piece, s.low, keeps=False):
            p.run("step", *images, *_parts("activations", maps))
        p.run("step", *images, *mixing)
        frame_gradients = [s.low * size for size in s.model.sizes]
        images += _parts("gradients", frame_gradients if frames > 1 else [])
        passes = [*_there(s, piece, s.low, keeps=True), *_back(s, piece, s.low)]
    else:
        there = list(_there(s, piece * frames, s.low, keeps=True))
        p.run("step", *images, *_parts("activations", there[-1]), *mixing)
        passes = [*there, *_back(s, piece * frames, s.low)]
    for maps in passes:
        p.run("step", *images, ("activations", vectors), *_parts("activations", maps))


def _evaluate(p: Phases, s: RegressShape, phase: str, windows: int) -> None:
    """`predict`, in float32 whatever the format of training."""
    image = _FULL * windows * _pixels(s)
    p.run(phase, *_parts("data", [image] * 3))
    frames = 1 if s.checkpointing else s.model.temporal_frames
    for maps in _there(s, min(s.at_once, windows) * frames, _FULL, keeps=False):
        p.run(phase, ("data", image), *_parts("activations", maps))


class _Stage:
    """Sizes of one stage's maps: `entering`, `made` by its convolution, and `pooled`."""

    def __init__(self, s: RegressShape, number: int, images: int, low: int) -> None:
        c = s.model
        channels = (1, *c.channels)
        # A GPU's autocast norms in float32, and what follows stays so; a CPU's stays in bf16.
        self.low, self.wide = low, _FULL if s.on_gpu else low
        self.is_mixed = self.low != self.wide
        entering = images * channels[number] * c.pixels(number)
        made = images * channels[number + 1] * c.pixels(number)
        pooled = images * channels[number + 1] * c.pixels(number + 1)
        self.entering, self.made = low * entering, low * made
        self.size, self.pooled, self.places = self.wide * made, self.wide * pooled, _INDEX * pooled
        self.entering_wide = self.wide * entering
        self.kernels = low * 9 * channels[number] * channels[number + 1]
        casts = self.is_mixed or (number == 0 and low != _FULL)
        self.copies = [self.entering] if casts else []
        self.weights = [self.kernels] if low != _FULL else []
        # oneDNN copies what a convolution reads and writes into blocks of channels.
        self.blocks = [] if s.on_gpu else [self.entering, self.made]
        self.modulated = [self.size] if c.angle_features else []

    @property
    def kept(self) -> list[int]:
        """Kept for the way back: the stage's and the norm's input, ReLU's output, and the places of the pool."""
        return [*self.weights, *self.copies, self.size, *self.modulated, self.size, self.places]


def _stages(s: RegressShape, images: int, low: int) -> list[_Stage]:
    return [_Stage(s, number, images, low) for number in range(len(s.model.channels))]


def _there(s: RegressShape, images: int, low: int, *, keeps: bool) -> Iterator[list[int]]:
    kept: list[int] = []
    before = 0
    for stage in _stages(s, images, low):
        convolved = [stage.made, stage.size] if stage.is_mixed else [stage.size]
        entered = [*kept, before, *stage.weights, *stage.copies]
        if stage.blocks:
            yield [*entered, *stage.blocks, stage.size]
        made = [*convolved, stage.size]
        pooled = [*stage.modulated, stage.size, stage.pooled, stage.places]
        if keeps:
            yield [*entered, *made, *pooled]
            kept += stage.kept if stage.copies else [before, *stage.kept]
        else:
            yield [*entered, *made]
            yield [before, stage.size, *pooled[-3:]]
        before = stage.pooled
    copies = [before // 2] * 2 if stage.is_mixed and s.model.use_spatial_attention else []
    yield [*kept, before, *copies]


def _back(s: RegressShape, images: int, low: int) -> Iterator[list[int]]:
    stages = _stages(s, images, low)
    last = stages[-1].pooled
    kept = [stage.kept if stage.copies else [0, *stage.kept] for stage in stages]
    for stage, after in zip(stages[1:], stages[:-1], strict=True):
        if not stage.copies:
            kept[stages.index(stage)][0] = after.pooled
    yield [size for one in kept for size in one] + [last] * 3
    grad = last
    for number in reversed(range(len(stages))):
        stage = stages[number]
        earlier = [size for one in kept[:number] for size in one]
        yield [*earlier, *kept[number], grad, stage.size]
        entered = kept[number][: -2 - len(stage.modulated)]
        if stage.modulated:
            yield [*earlier, *entered, stage.size, *[stage.size] * 4]
        yield [*earlier, *entered, *[stage.size] * 2, *([stage.made] if stage.is_mixed else [])]
        narrow = [stage.made, stage.entering] if number else [stage.made]
        widened = [stage.entering_wide] if number and stage.is_mixed else []
        copies = [stage.made, stage.entering, stage.entering] if stage.blocks else []
        yield [*earlier, *entered, *narrow, *widened, *copies, stage.kernels]
        grad = stage.entering_wide
