"""Memory of a regression: weights, optimizer, batches and phases."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kgops.gpus.facts import GpuFacts
from kgops.workloads.memory.ledger import Held, Ledger
from kgops.workloads.memory.peak import PeakMemory, replayed
from kgops.workloads.regress.encoder_memory import Maps
from kgops.workloads.regress.sizes import RegressShape

MOMENTS = {"adam": 2, "adamw": 2}  # of an optimizer, for each weight
_FULL = 4  # bytes of a float32


class Weights:
    """Names of weights are given by their beginnings."""

    def __init__(self, ledger: Ledger, s: RegressShape) -> None:
        self._ledger, self._optimizer, self._low = ledger, s.optimizer, s.low
        self._sizes = {name: _FULL * math.prod(shape) for name, shape in s.model.shapes.items()}
        self._gradients: dict[str, Held] = {}
        self._waiting: dict[str, Held] = {}
        self._has_moments = False

    @property
    def sizes(self) -> list[int]:
        return list(self._sizes.values())

    def load(self) -> None:
        for size in self.sizes:
            self._ledger.take("weights", size)

    def arrives(self, prefix: str) -> None:
        """A gradient stays, or is added to the one that a piece before has left."""
        for name in self._named(prefix):
            if name in self._gradients:
                self._ledger.flash("gradients", self._sizes[name])
            else:
                self._gradients[name] = self._ledger.take("gradients", self._sizes[name])

    def waits(self, prefix: str) -> None:
        """One of several frames' gradients, which are summed, in the format that weights are cast to, before the
        sum arrives."""
        for name in self._named(prefix):
            if name in self._waiting:
                self._ledger.flash("gradients", self._cast(name))
            else:
                self._waiting[name] = self._ledger.take("gradients", self._cast(name))

    def arrives_summed(self, prefix: str) -> None:
        """The last frame's, and with it their sum."""
        self.waits(prefix)
        for name in self._named(prefix):
            held = self._waiting.pop(name)
            if name not in self._gradients and held[1] == self._sizes[name]:
                self._gradients[name] = held
                continue
            if held[1] != self._sizes[name]:
                self.arrives(name)
            self._ledger.give(held)

    def forget_gradients(self) -> None:
        self._ledger.give(*self._gradients.values())
        self._gradients.clear()

    def update(self) -> None:
        """Moments come with the first one."""
        if not self._has_moments:
            self._has_moments = True
            for size in self.sizes:
                for _ in range(MOMENTS.get(self._optimizer, 0)):
                    self._ledger.take("optimizer", size)

    def _named(self, prefix: str) -> list[str]:
        return [name for name in self._sizes if name.startswith(prefix)]

    def _cast(self, name: str) -> int:
        """Autocast leaves norms as they are."""
        return self._sizes[name] if ".norm." in name else self._sizes[name] * self._low // _FULL


_AHEAD = 3  # batches that a GPU holds beside the one in work: two that wait and one on its way


def walk_regression(
    ledger: Ledger, s: RegressShape, *, resumed: bool = False, reads_late: bool = False
) -> None:
    """All its stages are alike; a usual step, the last of an epoch and what lies between steps are walked once.

    A thread reads batches ahead, and what it takes lies before or (`reads_late`) within what the first step takes:
    chance says which, and with it which holes are left."""
    ledger.phase = "loading"
    weights = Weights(ledger, s)
    weights.load()
    if resumed:
        ledger.phase = "resuming"
        ledger.flash("checkpoint", *weights.sizes * (1 + MOMENTS.get(s.optimizer, 0)))
    reader = _read_ahead(ledger, s)
    next(reader, None)
    if not reads_late:
        next(reader, None)
    for batches in (_batches(s, s.train), [s.batch]):  # moments come with the first update, and stay
        ledger.phase = "step"
        for windows in batches:
            _step(ledger, s, weights, windows, reader)
        if s.valid:
            ledger.phase = "validation"
            _evaluate(ledger, s, s.valid)
    if s.held_out:
        ledger.phase = "test"
        ledger.flash("checkpoint", *weights.sizes)
        _evaluate(ledger, s, s.held_out)


def walk_step(ledger: Ledger, s: RegressShape) -> None:
    """The second step of a network on normalised images, without an optimizer and without what is read ahead."""
    ledger.phase = "step"
    weights = Weights(ledger, s)
    weights.load()
    ledger.take("data", _FULL * s.computed * _pixels(s))
    for _ in (1, 2):
        weights.forget_gradients()
        _piece(ledger, s, weights, s.computed)


def _read_ahead(ledger: Ledger, s: RegressShape) -> Iterator[None]:
    """The first batch, then the others. On a CPU a batch is numpy's, and no allocation of torch's."""
    if not s.on_gpu:
        return
    if s.flat_field:
        ledger.take("data", _FULL * s.model.height * s.model.width)  # the mean frame
    usual, last = _batches(s, s.train)[0], _batches(s, s.train)[-1]
    first, *others = [*[usual] * (s.steps - 1), last][: 1 + _AHEAD]
    ledger.take("data", s.pixel * first * _pixels(s))
    yield
    for windows in others:
        ledger.take("data", s.pixel * windows * _pixels(s))


def _batches(s: RegressShape, windows: int) -> list[int]:
    """So many windows are read in: a usual one, and a smaller last one, whose holes are others."""
    last = windows % s.batch_size
    return [s.batch_size, *([last] if last else [])] if windows > s.batch_size else [windows]


def _pixels(s: RegressShape) -> int:
    """Of a window."""
    return s.model.temporal_frames * s.model.height * s.model.width


def _normalised(ledger: Ledger, s: RegressShape, windows: int, reader: Iterator[None] | None = None) -> Held:
    """`Scaling.images`, while a thread may read batches."""
    size = _FULL * windows * _pixels(s)
    read = [ledger.take("data", size)] if s.pixel != _FULL else []
    if s.flat_field:
        read = [ledger.take("data", size), *read]
        ledger.give(*read[1:])
        read = read[:1]
    centred = ledger.take("data", size)
    if reader is not None:
        next(reader, None)
    found = ledger.take("data", size)
    ledger.give(centred, *read)
    return found


def _augmented(ledger: Ledger, s: RegressShape, images: Held) -> Held:
    """`augmented`, mirrored twice and made brighter, while its caller holds the images."""
    size = images[1]
    before: list[Held] = []
    for _ in ("upside", "sideways"):
        flipped, chosen = ledger.take("data", size), ledger.take("data", size)
        ledger.give(flipped, *before)
        before = [chosen]
    brighter = ledger.take("data", size)
    found = ledger.take("data", size)
    ledger.give(brighter, *before, images)
    return found


def _step(ledger: Ledger, s: RegressShape, weights: Weights, windows: int, reader: Iterator[None]) -> None:
    """`_take` and `RegressionStep`: piece by piece there and back, then the update."""
    images = _normalised(ledger, s, windows, reader)
    if s.augment:
        images = _augmented(ledger, s, images)
    weights.forget_gradients()
    left = windows
    while left > 0:
        _piece(ledger, s, weights, min(s.computed, left))
        left -= s.computed
        if left > s.computed:
            left = s.computed + left % s.computed  # those between are like the second
    weights.update()
    ledger.give(images)


def _piece(ledger: Ledger, s: RegressShape, weights: Weights, windows: int) -> None:
    frames = s.model.temporal_frames
    mixing = _Mixing(ledger, s, windows)
    if s.checkpointing:
        Maps(ledger, s, windows, s.low).forward(keeps=False)  # each frame alone
        mixing.forward()
        mixing.backward(weights)
        # The first finds nothing to add to; those between are alike.
        arrivals = [
            *[weights.waits] * (min(frames, 3) - 1),
            weights.arrives_summed if frames > 1 else weights.arrives,
        ]
        for arrives in arrivals:
            maps = Maps(ledger, s, windows, s.low)
            maps.forward(keeps=True)
            maps.backward(arrives)
    else:
        maps = Maps(ledger, s, windows * frames, s.low)
        maps.forward(keeps=True)
        mixing.forward()
        mixing.backward(weights)
        maps.backward(weights.arrives)
    mixing.close()


def _evaluate(ledger: Ledger, s: RegressShape, windows: int) -> None:
    """`predict`, in float32 whatever the format of training, in pieces as training does."""
    for batch in _batches(s, windows):
        images = _normalised(ledger, s, batch)
        piece = min(s.at_once, batch)
        frames = 1 if s.checkpointing else s.model.temporal_frames
        Maps(ledger, s, piece * frames, _FULL).forward(keeps=False)
        mixing = _Mixing(ledger, s, piece)
        mixing.forward(keeps=False)
        mixing.close()
        ledger.give(images)


class _Mixing:
    """Mixer and head: a vector of each frame, and what is done with it. Small beside maps, and kept together."""

    def __init__(self, ledger: Ledger, s: RegressShape, windows: int) -> None:
        self._ledger, self._s, self._windows = ledger, s, windows
        self._kept: list[Held] = []

    def forward(self, *, keeps: bool = True) -> None:
        c = self._s.model
        vectors = _FULL * self._windows * c.temporal_frames * c.features
        copies = _COPIES[c.mixer] if keeps else min(_COPIES[c.mixer], 4)
        self._ledger.use_cublas()
        self._kept = [self._ledger.take("activations", vectors) for _ in range(copies)]
        if c.mixer == "scan":
            self._kept.append(
                self._ledger.take("activations", 3 * _FULL * c.features * c.states * c.temporal_frames)
            )

    def backward(self, weights: Weights) -> None:
        self._ledger.use_cublas("autograd")
        for prefix in ("head", "mixer"):
            weights.arrives(prefix)
        self._ledger.give(*self._kept)
        c = self._s.model
        # The gradient of the vectors, until the last frame has taken its part.
        self._kept = [
            self._ledger.take("activations", _FULL * self._windows * c.temporal_frames * c.features)
        ]

    def close(self) -> None:
        self._ledger.give(*self._kept)


# Of the vectors, by what each mixer's way back asks for.
_COPIES = {"attention": 17, "messages": 12, "scan": 6, "mean": 2}


def peak_memory(shape: RegressShape, gpu: GpuFacts | None, *, resumed: bool, expandable: bool) -> PeakMemory:
    def walk(ledger: Ledger) -> None:
        walk_regression(ledger, shape, resumed=resumed)

    def walk_late(ledger: Ledger) -> None:
        walk_regression(ledger, shape, resumed=resumed, reads_late=True)

    return replayed(walk, gpu, on_gpu=shape.on_gpu, expandable=expandable, other_order=walk_late)
