"""What rules and plans must know of the card a run will get, read here or known by the model's name."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kgops.gpus.known import KnownCard, known_by_name
from kgops.gpus.nvml import Nvml, open_nvml
from kgops.gpus.readings import CardReading
from kgops.jobs.gpu_request import CardsAsked

__all__ = ["CardFacts", "TorchBuild", "facts_here", "facts_of_known", "facts_of_reading", "torch_build"]


@dataclass(frozen=True, slots=True)
class TorchBuild:
    version: tuple[int, int]
    cuda: tuple[int, int] | None  # None: a CPU build
    is_wheel: bool = True  # as PyTorch publishes it; somebody's own build may have kernels for any card


@dataclass(frozen=True, slots=True)
class CardFacts:
    """None is unknown, and a rule that would need it stays silent."""

    name: str
    compute_capability: tuple[int, int] | None
    is_slice: bool = False
    is_wsl: bool = False
    torch: TorchBuild | None = None
    model: str | None = None  # its short name, where it is a known one


def facts_of_known(card: KnownCard) -> CardFacts:
    """Of a card that is not here: nothing is assumed of the machine or the torch it will be used with."""
    return CardFacts(card.title, card.compute_capability, model=card.short_name)


def facts_of_reading(card: CardReading) -> CardFacts:
    known = known_by_name(card.name) if card.name else None
    return CardFacts(
        card.name or f"card {card.index}",
        card.compute_capability,
        is_slice=bool(card.mig_enabled),
        is_wsl="microsoft" in os.uname().release.lower(),
        torch=torch_build(),
        model=known.short_name if known else None,
    )


def facts_here(gpu_request: str | None) -> CardFacts | None:
    """Of the card that a job asks for, as `CardsAsked` reads it; None where there is none.

    While the choice among several is open, the one of least compute capability: what suits it suits all.
    """
    opened = open_nvml()
    if not isinstance(opened, Nvml):
        return None
    with opened:
        cards = [card for card in opened.cards() if card.problem is None]
    wanted = CardsAsked.read(gpu_request)
    asked = [card for card in cards if wanted.includes(str(card.index), card.uuid)]
    known = [card for card in asked if card.compute_capability is not None]
    chosen = min(
        known, key=lambda card: card.compute_capability or (0, 0), default=asked[0] if asked else None
    )
    return None if chosen is None else facts_of_reading(chosen)


def torch_build() -> TorchBuild | None:
    """By the package's own files: importing torch takes a second and 200 MB."""
    try:
        text = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec("torch")
    about = (Path(spec.origin).parent / "version.py").read_text() if spec and spec.origin else ""
    cuda = re.search(r"^cuda\b.*=\s*['\"]([\d.]+)['\"]", about, re.MULTILINE)
    version = _numbers(text)
    if version is None:
        return None
    is_wheel = re.fullmatch(r"\d+\.\d+\.\d+(\+(cu\d+|cpu))?", text) is not None
    return TorchBuild(version, _numbers(cuda[1]) if cuda else None, is_wheel)


def _numbers(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
