"""How a TracIn run is cut into pieces: the same whoever cuts it, so that many can begin without asking each other."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence

from kgops.tracin.attribution import tiles
from kgops.tracin.finished_tests import Parts
from kgops.tracin.shards import Pieces, Tile, shares_for
from kgops.tracin.test_triples import TestTriple
from kgops.workers.tracin_options import filters, tests_at_once
from kgops.workers.tracin_work import Work

__all__ = ["planned_pieces"]


def planned_pieces(work: Work, tests: Sequence[TestTriple], parts: Parts) -> Pieces:
    """Of what `parts` lacks, in a folder of the run that is named for what they mean."""
    trains = len(work.graph.train)
    top_k = None if filters(work.job) else work.top_k()
    told = [
        Tile.of(place, tile)
        for place, tile in enumerate(tiles(tests, parts, trains, top_k, tests_at_once(work.job)))
        if any(test.ids is not None for test in tile)
    ]
    shares = shares_for(trains, max((len(tile.numbers) for tile in told), default=1))
    meaning = json.dumps([[tile.digest for tile in told], shares, top_k, work.job.options], default=str)
    folder = work.folder / "pieces" / hashlib.sha256(meaning.encode()).hexdigest()[:16]
    # What was cut otherwise, or under other options, is of no use any more.
    for other in folder.parent.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return Pieces.plan(folder, told, shares, top_k)
