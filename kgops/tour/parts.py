"""Parts of the tour's sample runs: options of each workload, OOM fallbacks, training curves, memory by part."""

from __future__ import annotations

from typing import Any

from kgops.jobs.options import effect_of
from kgops.planning.oom_fallbacks import Change, Fallback
from kgops.tour.curves import SampleCurve
from kgops.tour.story import SAMPLE_DATA, OptionValue
from storage.influences import Influence, TestTriple

__all__ = ["REGRESS", "TRACIN", "TRAIN", "fallback", "mib", "traced", "training", "with_"]

TRAIN = (
    OptionValue("batch_size", "256", "256", by="default"),
    OptionValue("precision", "fp32", "fp32", by="default"),
    OptionValue("compile", "default", "off", "not yet measured on a GPU: eager runs"),
    OptionValue("cuda_graphs", "on", "on"),
    OptionValue("entity_chunk", "auto", "2048", "by device and batch size"),
    OptionValue("memory_cleanup", "on", "on"),
)
TRACIN = (
    OptionValue("precision", "fp32", "fp32", by="default"),
    OptionValue("block", "auto", "1024", "by device", by="default"),
    OptionValue("tests_at_once", "auto", "64", "by what is free"),
    OptionValue("gram_precision", "fp32", "fp32", by="default"),
    OptionValue("vectorized_gradients", "on", "on"),
    OptionValue("test_gradient_caching", "on", "on"),
)
REGRESS = (
    OptionValue("batch_size", "8", "8", by="default"),
    OptionValue("microbatch", "auto", "8", by="default"),
    OptionValue("precision", "fp16", "fp16"),
    OptionValue("gradient_checkpointing", "off", "off", by="default"),
    OptionValue("num_workers", "4", "0", "data lives on the device here", by="person"),
)


def with_(options: tuple[OptionValue, ...], *other: OptionValue) -> tuple[OptionValue, ...]:
    """The options with others of the same name replaced."""
    named = {one.name: one for one in other}
    return (*(named.pop(one.name, one) for one in options), *named.values())


def fallback(option: str, before: Any, after: Any, why: str, above: Fallback | None = None) -> Fallback:
    effect = effect_of(option)
    settings = {**(above.settings if above else {}), option: after}
    return Fallback(effect, why, (Change(option, before, after, effect),), settings)


def training(
    epochs: int,
    loss: tuple[float, float],
    mrr: float | None,
    *,
    epoch_s: float,
    lost_at: float | None = None,
) -> tuple[SampleCurve, ...]:
    """Curves of a training: falling loss, rising MRR and Hits@10, seconds per epoch."""
    curves = [
        SampleCurve("loss", *loss, points=epochs, steps=epochs, lost_at=lost_at),
        SampleCurve("epoch_seconds", 1.06 * epoch_s, epoch_s, points=epochs, steps=epochs, noise=0.5),
    ]
    if mrr is not None:
        points = max(epochs // 5, 4)
        curves.append(SampleCurve("valid_mrr", mrr * 0.15, mrr, points=points, steps=epochs))
        curves.append(SampleCurve("valid_hits_at_10", mrr * 0.3, mrr * 1.5, points=points, steps=epochs))
    return tuple(curves)


def mib(weights: float, activations: float, scores: float, data: float) -> dict[str, float]:
    """A memory estimate by part: gradients take as much as the weights, Adam's moments twice as much."""
    more = {"gradients": weights, "optimizer": 2 * weights}
    return {"weights": weights, **more, "activations": activations, "scores": scores, "data": data}


_NAMES = {
    "ex:1": "Veritol",
    "ex:2": "Lumasine",
    "ex:3": "Cordafen",
    "ex:4": "Nerolide",
    "ex:11": "lunar fever",
    "ex:12": "glass ache",
    "ex:13": "tin cough",
    "ex:21": "gene QX1",
    "ex:22": "gene QX2",
    "ex:23": "gene BR7",
}
_FOUND = (
    (("ex:1", "binds", "ex:21"), 0.0412),
    (("ex:21", "linked to", "ex:11"), 0.0387),
    (("ex:2", "treats", "ex:11"), 0.0214),
    (("ex:1", "treats", "ex:12"), 0.0151),
    (("ex:3", "binds", "ex:21"), 0.0090),
    (("ex:4", "worsens", "ex:11"), -0.0302),
    (("ex:1", "worsens", "ex:13"), -0.0177),
    (("ex:23", "linked to", "ex:13"), -0.0058),
)
_TESTS = (("ex:1", "treats", "ex:11"), ("ex:2", "treats", "ex:12"), ("ex:3", "treats", "ex:13"))


def traced(scale: float = 1.0, *, trouble_at: int | None = None) -> tuple[TestTriple, ...]:
    """Three test triples of a fictional graph, with their influences."""
    return tuple(
        TestTriple(n, *test, candidates=12_408, trouble=f"its tail is not in the vocabulary ({SAMPLE_DATA})")
        if n == trouble_at
        else TestTriple(n, *test, 12_408, None, _influences(n, scale), _NAMES)
        for n, test in enumerate(_TESTS, 1)
    )


def _influences(test: int, scale: float) -> tuple[Influence, ...]:
    """The sample triples in another order for each test, ranked by score: proponents up, opponents down."""
    rotated = _FOUND[test - 1 :] + _FOUND[: test - 1]
    scores = sorted((score * scale / test for _, score in _FOUND), reverse=True)
    up = [score for score in scores if score > 0]
    down = sorted(score for score in scores if score < 0)
    ranked = [(n, score) for n, score in enumerate(up, 1)] + [(-n, score) for n, score in enumerate(down, 1)]
    return tuple(
        Influence(test, rank, *triple, score)
        for (rank, score), (triple, _) in zip(ranked, rotated, strict=True)
    )
