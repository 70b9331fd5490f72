"""The image network's encoder as the allocator sees it: maps of its stages, there and back.

After `kgops.maths.regress.network`, and after what torch 2.13 allocates inside its operators: on a CPU oneDNN copies
what a convolution reads and writes into blocks of channels, and of bf16 at most what a CPU with tiles (AMX) takes: once
more what it made. Nobody asks which CPU it is; what one without AVX2 takes beside that is small, and a matter of
`process_memory`. What cuDNN takes on a GPU is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kgops.workloads.memory.ledger import Held, Ledger
from kgops.workloads.regress.sizes import RegressShape

Arrives = Callable[[str], None]
"""Receives the weights whose gradient exists, by the beginning of their names."""

_ACTIVATIONS = "activations"
_WORKSPACE = "workspace"
_FULL = 4  # bytes of a float32
_INDEX = 8  # of a place that a pool remembers
_KERNEL = 9
_TINY = 20_480  # numbers
_BORDER = 16 << 10
_TILES = 96 << 10  # that are prepared for a product; between 46 and 140 KiB, and more for large frames
_WIDER = 10  # columns by which tiles want a frame wider that is turned around for them
_LEAST_TURNED, _MOST_TURNED = 28 << 10, 570 << 10


@dataclass(frozen=True)
class _Stage:
    """What a stage has kept for its way back."""

    entered: tuple[Held, ...]
    convolved: tuple[Held, ...]
    normed: tuple[Held, ...]
    small: tuple[Held, ...]
    rectified: Held
    places: Held


class Maps:
    """The encoder on `images` frames at once; `low` is the bytes of a number in its convolutions."""

    def __init__(self, ledger: Ledger, s: RegressShape, images: int, low: int) -> None:
        self._ledger, self._c, self._images, self._low = ledger, s.model, images, low
        self._on_gpu, self._tiles = s.on_gpu, _TILES if low != _FULL and not s.on_gpu else 0
        # A GPU's autocast norms in float32, and what follows stays so; a CPU's stays in bf16.
        self._wide = _FULL if s.on_gpu else low
        self._is_mixed = low != self._wide
        self._stages: list[_Stage] = []
        self._last: tuple[Held, ...] = ()

    def forward(self, *, keeps: bool) -> None:
        """Into a vector of each frame; with `keeps` all that the way back asks for stays."""
        maps: tuple[Held, ...] = ()
        for number in range(len(self._c.channels)):
            maps = self._stage(number, maps, keeps)
        if self._c.use_spatial_attention:
            maps = self._attended(maps, keeps)
        self._ledger.give(*maps)

    def backward(self, arrives: Arrives) -> None:
        """From the vectors' gradient to those of the weights."""
        grad = self._back_through_pooling()
        arrives("encoder.attention")
        for number in reversed(range(len(self._c.channels))):
            grad = self._back_through_stage(number, grad, arrives)

    @property
    def _left(self) -> int:
        """Numbers in what the last pool leaves."""
        return self._images * self._c.features * self._c.pixels(3)

    def _entering(self, stage: int) -> int:
        return self._images * (self._c.channels[stage - 1] if stage else 1) * self._c.pixels(stage)

    def _made(self, stage: int) -> int:
        return self._images * self._c.channels[stage] * self._c.pixels(stage)

    def _kernels(self, stage: int) -> int:
        """Bytes of a copy of them."""
        entering = self._c.channels[stage - 1] if stage else 1
        return self._low * _KERNEL * entering * self._c.channels[stage]

    def _take(self, size: int, part: str = _ACTIVATIONS) -> Held:
        return self._ledger.take(part, size)

    def _stage(self, number: int, maps: tuple[Held, ...], keeps: bool) -> tuple[Held, ...]:
        """`_Stage.forward`; the maps for the next."""
        size = self._wide * self._made(number)
        pooled_size = self._images * self._c.channels[number] * self._c.pixels(number + 1)
        # Layers in a low type read copies, first made of weights; the backward pass reads them again.
        weights = self._take(self._kernels(number) if self._low != _FULL else 0)
        casts = self._is_mixed or (number == 0 and self._low != _FULL)
        entered = (self._take(self._low * self._entering(number)),) if casts else maps
        convolved, normed = self._normed(number, size)
        small = (weights, *self._small(number))
        modulated = normed
        if not keeps:
            self._ledger.give(convolved, *(entered if casts else ()))
        if self._c.angle_features:
            self._ledger.use_cublas()
            modulated = self._take(size)
            self._ledger.give(*(() if keeps else (normed,)))
        rectified = self._take(size)
        pooled, places = self._take(self._wide * pooled_size), self._take(_INDEX * pooled_size)
        self._ledger.give(modulated)
        if keeps:
            kept = (normed,) if self._c.angle_features else ()
            self._stages.append(_Stage(entered, (convolved,), kept, small, rectified, places))
        else:
            self._ledger.give(rectified, places, *small)
        if casts or not keeps:
            self._ledger.give(*maps)
        return (pooled,)

    def _normed(self, number: int, size: int) -> tuple[Held, Held]:
        """What the convolution made, as the norm keeps it, and what the norm made."""
        convolved = self._convolved(number)
        if not self._is_mixed:
            return convolved, self._take(size)
        wide = self._take(size)
        normed = self._take(size)
        self._ledger.give(convolved)
        return wide, normed

    def _convolved(self, number: int) -> Held:
        size = self._low * self._made(number)
        if self._on_gpu or self._is_tiny(number):
            self._ledger.flash(
                _WORKSPACE, 0 if self._on_gpu else _KERNEL * self._low * self._entering(number)
            )
            return self._take(size)
        copies = [self._low * self._entering(number), self._kernels(number)] if number else []
        inside = [self._take(copy, _WORKSPACE) for copy in (self._tiles, *copies)]
        blocked = self._take(size, _WORKSPACE)
        self._ledger.give(*inside)
        again = self._take(size if self._tiles else 0, _WORKSPACE)
        convolved = self._take(size)
        self._ledger.give(blocked, again)
        return convolved

    def _small(self, number: int) -> tuple[Held, ...]:
        """Statistics of the norm; of FiLM what its two layers keep, and 1 + scale."""
        statistics = 2 * _FULL * self._images * self._c.groups(number)
        film = 0
        if self._c.angle_features:
            hidden = self._images * self._c.film_width
            film = self._low * 2 * hidden + self._wide * 3 * self._images * self._c.channels[number]
        return tuple(self._take(size) for size in (statistics, film) if size)

    def _attended(self, maps: tuple[Held, ...], keeps: bool) -> tuple[Held, ...]:
        """Attention over pixels; what of the maps is not kept. Layers in a low type keep a copy each."""
        if not self._is_mixed or not keeps:
            self._ledger.flash(_WORKSPACE, self._low * self._left if self._low != _FULL else 0)
            self._last, maps = (maps, ()) if keeps else ((), maps)
        else:
            self._last = (self._take(self._low * self._left), self._take(self._low * self._left))
        self._ledger.use_cublas()
        return maps

    def _back_through_pooling(self) -> Held:
        """Of attention over pixels, or their mean: the gradient of the last maps."""
        size = self._wide * self._left
        if not self._c.use_spatial_attention:
            return self._take(size)
        parts = []
        for copy in reversed(self._last if self._is_mixed else ()):
            low = self._take(self._low * self._left)
            self._ledger.give(copy)
            parts.append(self._take(size))
            self._ledger.give(low)
        if not parts:
            parts = [self._take(size), self._take(size)]
            self._ledger.give(*self._last)
        summed = self._take(size)
        self._ledger.give(*parts)
        return summed

    def _back_through_stage(self, number: int, grad: Held, arrives: Arrives) -> Held:
        kept, name = self._stages[number], f"encoder.stages.{number}"
        size = self._wide * self._made(number)
        unpooled = self._take(size)
        self._ledger.give(grad, kept.places)
        grad = self._take(size)
        self._ledger.give(unpooled, kept.rectified)
        if self._c.angle_features:
            before, grad = grad, self._take(size)
            self._ledger.flash(_ACTIVATIONS, size, size)  # for the scale's gradient
            self._ledger.give(before, *kept.normed)
            arrives(f"{name}.film")
        before, grad = grad, self._take(size)
        self._ledger.give(before, *kept.convolved)
        arrives(f"{name}.norm")
        if self._is_mixed:
            before, grad = grad, self._take(self._low * self._made(number))
            self._ledger.give(before)
        return self._back_through_convolution(number, grad, kept, lambda: arrives(f"{name}.conv"))

    def _back_through_convolution(
        self, number: int, grad: Held, kept: _Stage, arrives: Callable[[], None]
    ) -> Held:
        """Of a low type both gradients are widened once all that the convolution kept is gone: the maps' before the
        kernels'."""
        entering = self._back_to_entering(number)
        low = (self._take(self._kernels(number), _WORKSPACE),) if self._is_mixed else ()
        if not low:
            self._back_to_kernels(number, arrives)
        self._ledger.give(grad, *kept.entered, *kept.small)
        if low and number:
            narrow, entering = entering, self._take(self._wide * self._entering(number))
            self._ledger.give(narrow)
        if low:
            arrives()
            self._ledger.give(*low)
        return entering

    def _back_to_entering(self, number: int) -> Held:
        """The gradient of what entered a convolution; of the frames nobody asks for one."""
        if not number:
            return self._take(0)
        made, entering = self._low * self._made(number), self._low * self._entering(number)
        if self._on_gpu or self._is_tiny(number):
            return self._take(entering)
        copies = [self._take(size, _WORKSPACE) for size in (made, self._kernels(number), self._tiles)]
        blocked = self._take(entering, _WORKSPACE)
        self._ledger.give(*copies)
        again = self._take(entering if self._tiles else 0, _WORKSPACE)
        grad = self._take(entering)
        self._ledger.give(blocked, again)
        return grad

    def _back_to_kernels(self, number: int, arrives: Callable[[], None]) -> None:
        made, entering = self._low * self._made(number), self._low * self._entering(number)
        kernels = self._kernels(number)
        if self._on_gpu:
            arrives()
            return
        if self._is_tiny(number):
            self._ledger.flash(_WORKSPACE, kernels, _KERNEL * entering)
            arrives()
            return
        inside = [self._take(size, _WORKSPACE) for size in (made, entering if number else 0)]
        blocked = self._take(kernels, _WORKSPACE)
        if self._low != _FULL:
            # Sums in float32, and a frame turned around twice, with room for a border.
            once, width = (made + entering) // self._images, max(1, self._c.width >> number)
            by_tiles = min(once * (width + _WIDER) // width + _LEAST_TURNED, _MOST_TURNED)
            turned = max(once + _BORDER, by_tiles)
            self._ledger.flash(_WORKSPACE, 2 * kernels + turned if number else 0)
        self._ledger.give(*inside)
        arrives()
        self._ledger.give(blocked)

    def _is_tiny(self, number: int) -> bool:
        """One small frame alone: torch then unrolls it into columns instead of asking oneDNN."""
        is_alone = self._images == 1 and self._entering(number) <= _TINY
        return is_alone and self._low == _FULL and not self._on_gpu
