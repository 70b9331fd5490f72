"""Counts the training triples that filters leave each test triple: a job and filters on stdin, JSON lines on stdout.

For a plan: the console cannot import torch or numpy, so it runs this module. It ends after `cpu_s` seconds of
CPU time, and what was counted by then is written.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import torch

from kgops.errors import BadInput, KgopsError
from kgops.maths.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.maths.tracin.work import Work, load_graph
from kgops.maths.worker.entry import StopRequest
from kgops.maths.worker.report import Reporter
from kgops.workloads.job_files import read_job

MOST_TESTS = 64  # evenly spaced


def main() -> None:
    """The first line has the numbers of test and training triples, and how long reading took. Then follows a line for
    each test triple and filter: triples left, the union so far, and how long filtering took."""
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s"], request["cpu_s"]))
    job = read_job(request["job"], "the job to plan")
    filters = [NeighbourhoodFilter(**one) for one in request["filters"]]
    graph = load_graph(job.settings)
    work = Work(job, graph, Path(), Reporter(Path()), StopRequest())
    tests = [test.ids for test in work.tests if test.ids is not None]
    if not tests:
        raise BadInput("no test triple is in the graph")
    neighbourhood = Neighbourhood(graph.train, graph.num_entities)
    reading_s = time.monotonic() - request["begun"]
    _say({"tests": len(tests), "train": len(graph.train), "reading_s": reading_s})
    unions = [torch.zeros(len(graph.train), dtype=torch.bool) for _ in filters]
    for head, _, tail in tests[:: max(1, -(-len(tests) // MOST_TESTS))]:
        for at, one in enumerate(filters):
            begin = time.monotonic()
            rows = neighbourhood.select(head, tail, one)
            seconds = time.monotonic() - begin
            unions[at][rows] = True
            _say({"filter": at, "left": len(rows), "together": int(unions[at].sum()), "filtering_s": seconds})


def _say(line: dict[str, float]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KgopsError as error:
        sys.exit(error.message)
