"""Graphs of PyKEEN's are planned before a download, by sizes that are those of the real thing."""

from __future__ import annotations

import json

import pytest
from driving import Console

from kgops.jobs.bundled import BUNDLED
from kgops.workloads.graphs.counts import PUBLISHED, Counts, counts_of, sizes_of

RECIPES = ("codex-s", "fb15k-237", "fb15k-237-complex", "wn18rr", "kinships", "umls")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_planned_without_a_download(recipe: str, run_cli: Console) -> None:
    done = run_cli.must("suggest", "train", "--recipe", recipe, "--gpu", "t4", "--json")
    (found,) = done.json()
    assert found["unknown"] is None
    assert found["need_mib"] > 400
    assert found["fits"] is True


@pytest.mark.parametrize("name", BUNDLED)
def test_the_published_size_of_a_bundled_graph_is_its_real_one(name: str) -> None:
    real = counts_of({"dataset": name})
    assert real is not None and not real.published
    published = sizes_of(name)
    assert published == (real.entities, real.relations, real.train, real.valid, real.test)


def test_every_size_is_what_pykeen_says_of_it() -> None:
    from docdata import get_docdata
    from pykeen.datasets import dataset_resolver

    for name in PUBLISHED:
        told = get_docdata(dataset_resolver.lookup(name))["statistics"]
        parts = ("entities", "relations", "training", "validation", "testing")
        assert sizes_of(name) == tuple(told[part] for part in parts), name


@pytest.mark.parametrize("name", ["codexsmall", "fb15k237", "wn18rr"])
def test_what_was_counted_of_a_recipes_graph_has_its_published_size(name: str) -> None:
    found = counts_of({"dataset": name})
    assert found is not None and found.published and not found.assumed
    assert sizes_of(name) == (*(found.entities, found.relations, found.train, found.valid, found.test),)
    assert found.tails.answers == found.heads.answers == found.train
    assert 0 < found.heads.queries < found.tails.queries < found.train
    assert Counts.from_table(json.loads(json.dumps(found.as_table()))) == found


def test_a_plan_says_that_a_graph_is_not_here_and_what_is_assumed_of_it(run_cli: Console) -> None:
    counted = run_cli("suggest", "train", "--dataset", "codexsmall", "--gpu", "t4").out
    assert (
        "2,034 entities, 42 relations, 32,888 training triples: as published, not downloaded yet" in counted
    )
    assumed = run_cli("suggest", "train", "--dataset", "yago310", "--gpu", "t4").out
    assert "123,143 entities" in assumed
    assert "planned as one query per training triple" in assumed
    assert "as published" not in run_cli("suggest", "train", "--dataset", "nations", "--gpu", "t4").out
