"""An explain run as its screen, its report and its pictures show it: explanations, and what --verify found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kgops.jobs.files import open_regular
from kgops.jobs.text import one_line
from kgops.present.explanation_graph import MOST_FACTS, ExplanationGraph, graph_of
from kgops.present.explanations import ExplainedPrediction, Verification, read_explanations, read_verification
from kgops.present.formats import amount
from kgops.present.influences import settings_of, training_triples
from kgops.settings import Home
from kgops.supervisor.plan_file import read_plan
from kgops.supervisor.run_folder import RunFolder
from kgops.workloads.graphs.names import folded
from storage.runs import Run

_MOST_PREDICTIONS = 200  # read of a run


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """`has_more`: these are the first ones."""

    run: Run
    predictions: tuple[ExplainedPrediction, ...]
    verification: Verification | None = None
    has_more: bool = False

    def graph(self, one: ExplainedPrediction) -> ExplanationGraph:
        """With the strongest path through each of its first triples."""
        through = [
            next((path.steps for path in one.paths if fact.labels in path.triples), ())
            for fact in one.facts[:MOST_FACTS]
        ]
        return graph_of(one, through)


def read_explained_run(home: Home, run: Run, *, every: bool = False) -> ExplainedRun:
    """Its explanations, the first ones or `every` one; none before it has ended."""
    results = RunFolder(home.runs / run.folder).results
    read, has_more = read_explanations(results, predictions=None if every else _MOST_PREDICTIONS)
    return ExplainedRun(run, tuple(read), read_verification(results), has_more)


def title_of_prediction(one: ExplainedPrediction) -> str:
    return f"prediction {one_line(one.number)} · {prediction_of(one)}"


def prediction_of(one: ExplainedPrediction) -> str:
    """The triple. A predicted head is marked, since most predictions are tails."""
    triple = " · ".join(map(one_line, one.triple))
    return f"{triple} (its head)" if one.asked == "head" else triple


# A prediction that the model does not make, ranked below the first, cannot be lost.
_WORDS = ({True: "lost", False: "not lost"}, {True: "ranked lower", False: "not ranked lower"})


def verdict_of(one: ExplainedPrediction) -> str:
    """In a sentence: the prediction's rank, and what it is without its triples, where that is known."""
    if one.trouble:
        return f"not explained: {one_line(one.trouble)}"
    n, many = one.numbers, len(one.facts)
    if one.is_sufficient:
        return _carried(one)
    if not many:
        return "no training triple of head or tail lifts it above its rivals"
    of = f"of {amount(n['candidate_facts'])} triples of head and tail"
    if n["rank_after"] is None:
        rank, score = amount(n["rank_before"]), n["score_before"]
        shown = "n/a" if score is None else f"{score:+.4g}"
        return f"filtered rank {rank}, score {shown}; strongest triples, {of}; --verify retrains without them"
    verdict = _WORDS[(n["rank_before"] or 1) > 1][one.lost]
    ranks = f"rank {amount(n['rank_before'])} → {amount(n['rank_after'])}"
    if n.get("retrained_all") is not None:  # retraining itself changes ranks
        ranks += f" retrained ({amount(n['retrained_all'])} with all triples)"
    without = "this one" if many == 1 else f"these {many}"
    return f"{verdict} without {without} {of}: {ranks}{_smallest(one)}"


def _smallest(one: ExplainedPrediction) -> str:
    """How the set was chosen by retraining, where it was: that is not what verified it."""
    if one.smallest is None:
        return ""
    if one.smallest != one.lost:
        was = "enough" if one.smallest else "not enough"
        return f"; {was} when it was chosen, so one of both may be noise"
    if not one.smallest:
        return "; no beginning of the list was enough"
    fewer = len(one.facts) - 1
    if not fewer:
        return ""
    return f"; the first {fewer} were not enough" if fewer > 1 else "; the first alone was not enough"


def _carried(one: ExplainedPrediction) -> str:
    n, many = one.numbers, len(one.facts)
    answer, end = ("head", "tail") if one.asked == "head" else ("tail", "head")
    others = f"{amount(n['others'])} other {end}{'s' * (n['others'] != 1)}"
    if not many:
        return f"no triple of the {end} lifts the {answer} for {others}"
    of = f"of {amount(n['candidate_facts'])} triples of the {end}"
    if n["carried"] is None:
        return (
            f"triples that lift the {answer} most for {others}, {of}; --verify retrains with them added there"
        )
    with_these = "it" if many == 1 else f"these {many}"
    return (
        f"with {with_these} added to {others}: the {answer} ranks first for {amount(n['carried'])} of them, with "
        f"random triples of the {end} for {amount(n['carried_random'])}; {of}"
    )


def limits_of(one: ExplainedPrediction) -> str:
    """What effects are, and what they are not."""
    done = "added" if one.is_sufficient else "removed"
    return (
        f"EFFECT: estimated change of the answer's lead over its rivals, with this triple {done}. A path is as strong "
        "as its weakest triple."
    )


_MOST_BYTES = 64 << 20  # of a dictionary of names


@dataclass(frozen=True, slots=True)
class GraphNames:
    """What people type, in order: readable names where there are some, else labels."""

    entities: tuple[str, ...]
    relations: tuple[str, ...]


def read_graph_names(home: Home, run: Run) -> GraphNames:
    """Raises Unavailable where the training triples cannot be read."""
    entities, relations = set[str](), set[str]()
    for head, relation, tail in training_triples(home, run):
        entities |= {head, tail}
        relations.add(relation)
    names = node_names(home, run)
    shown = {names.get(label, label) for label in entities}
    return GraphNames(tuple(sorted(shown, key=str.casefold)), tuple(sorted(relations, key=str.casefold)))


def completions(text: str, names: Iterable[str]) -> list[str]:
    """In any case, `_` or a space: names that begin with the text, else those that contain it."""
    typed = folded(text)
    within = [name for name in names if typed in folded(name)]
    return [name for name in within if folded(name).startswith(typed)] or within


def as_written(text: str, names: Iterable[str]) -> str:
    """The name that was typed in another case; the text where there is none."""
    typed = folded(text)
    return next((name for name in names if folded(name) == typed), text)


def node_names(home: Home, run: Run) -> Mapping[str, str]:
    """Label → readable name, from the run's `node_name_dict`; none where it has none, or it cannot be read now."""
    settings = settings_of(home, run)
    if not settings.get("node_name_dict"):
        return {}
    path = Path(read_plan(RunFolder(home.runs / run.folder)).cwd, str(settings["node_name_dict"]))
    try:
        with os.fdopen(open_regular(path, follow=True), encoding="utf-8-sig") as file:
            lines = file.read(_MOST_BYTES).split("\n")
    except (OSError, UnicodeDecodeError):
        return {}  # labels are shown instead, as for an entity without a name
    pairs = (line.rstrip("\r").split("\t") for line in lines)
    return {parts[0]: parts[1].strip() for parts in pairs if len(parts) > 1 and parts[1].strip()}
