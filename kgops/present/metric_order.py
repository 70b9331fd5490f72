"""Metrics and curves by importance: their order, their titles, and which direction is better."""

from __future__ import annotations

from collections.abc import Iterable

MOST_SHOWN = 200  # metrics, and curves, of one run: a record may have thousands
_MOST_HEADLINES = 6
_OTHER = 2  # rank of a curve that kgops knows nothing about
_RARELY_WATCHED = ("learning_rate",)  # shown last
_FIRST = ("mrr", "hits_at_10", "hits_at_3", "hits_at_1", "mean_rank", "r2", "rmse", "mae")
# Of these a run reports how it went, not what it reached.
_BOOKKEEPING = ("best_epoch", "disk_mib", "epochs", "fp16_overflows", "train_s")
_ABBREVIATIONS = ("gpu", "mae", "mape", "mrr", "mse", "rmse", "r2")
_HIGHER = ("mrr", "r2", "hits_at", "accuracy", "auc", "f1", "_per_s")
_LOWER = ("loss", "rank", "mae", "mse", "error", "took", "_seconds", "_mib", "train_s", "fp16_overflows")


def curve_rank(name: str) -> tuple[int, str]:
    """Sorts curves: loss, MRR, other metrics, times, memory, the rest."""
    if name == "loss":
        return 0, name
    if name.endswith("mrr"):
        return 1, name
    if name.endswith("_mib"):
        return 4, name
    return (5 if name in _RARELY_WATCHED else 3 if name.endswith("_seconds") else _OTHER), name


def headlines(names: Iterable[str]) -> list[str]:
    """The metrics that say what a run reached: of the test, otherwise of the validation, otherwise any."""
    known = sorted(set(names) - set(_BOOKKEEPING), key=_headline_rank)
    for start in ("test_", "best_valid_", "valid_", ""):
        found = [name for name in known if name.startswith(start)]
        if found:
            return found[:_MOST_HEADLINES]
    return []


def most_important(names: Iterable[str]) -> list[str]:
    """At most `MOST_SHOWN` of them, in their order: what says how a run went, then what kgops measured, then others."""
    known = list(names)
    if len(known) <= MOST_SHOWN:
        return known
    first = set(headlines(known))
    by_rank = sorted(
        known, key=lambda name: (name not in first, curve_rank(name)[0] == _OTHER, curve_rank(name))
    )
    kept = set(by_rank[:MOST_SHOWN])
    return [name for name in known if name in kept]


def _headline_rank(name: str) -> tuple[int, str]:
    place = next((i for i, end in enumerate(_FIRST) if name.endswith(end)), len(_FIRST))
    return place, name


def title_of(name: str) -> str:
    """`test_hits_at_10`: test hits@10; `test_mrr`: test MRR."""
    name = name.replace("_mib", "_memory") if name.startswith("peak_") else name
    words = name.replace("hits_at_", "hits@").split("_")
    return " ".join(word.upper() if word in _ABBREVIATIONS else word for word in words)


def lower_is_better(name: str) -> bool | None:
    """None where nobody knows, as of metrics that a command reports, and of what was not measured."""
    if name.startswith("predicted"):
        return None
    if any(part in name for part in _LOWER):
        return True
    return False if any(part in name for part in _HIGHER) else None
