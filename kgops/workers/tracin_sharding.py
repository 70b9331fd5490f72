"""Plans the shards of a TracIn run deterministically, so that processes need not communicate."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence

from kgops.tracin.attribution import tiles
from kgops.tracin.finished_tests import FinishedTests
from kgops.tracin.shards import Shards, Tile, shards_per_tile
from kgops.tracin.test_triples import TestTriple
from kgops.workers.tracin_options import filters, tests_at_once
from kgops.workers.tracin_work import Work

__all__ = ["plan_shards"]


def plan_shards(work: Work, tests: Sequence[TestTriple], finished: FinishedTests) -> Shards:
    """Shards for the tests that `finished` lacks, in a folder named by a digest of the plan."""
    trains = len(work.graph.train)
    top_k = None if filters(work.job) else work.top_k()
    missing = [
        Tile.of(index, tile)
        for index, tile in enumerate(tiles(tests, finished, trains, top_k, tests_at_once(work.job)))
        if any(test.ids is not None for test in tile)
    ]
    shares = shards_per_tile(trains, max((len(tile.numbers) for tile in missing), default=1))
    meaning = json.dumps([[tile.digest for tile in missing], shares, top_k, work.job.options], default=str)
    folder = work.folder / "pieces" / hashlib.sha256(meaning.encode()).hexdigest()[:16]
    # Shards of another plan or of other options are useless.
    for other in folder.parent.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return Shards.plan(folder, missing, shares, top_k)
