"""Whether a model is asked about the triples that it was trained on."""

from __future__ import annotations

from collections.abc import Mapping

from kgops.errors import BadInput
from kgops.maths.graphs.triples import Graph
from kgops.maths.worker.entry import is_forced


def forced_difference(graph: Graph, trained: Mapping[str, str]) -> str | None:
    """A note if the graph has other training triples than a training with these digests. Raises BadInput unless the
    run was started with --force."""
    difference = graph.difference("train", trained)
    if difference is None:
        return None
    if not is_forced():
        raise BadInput(
            difference,
            hint="give the triples that the model was trained on; --force takes these, and the record says so.",
        )
    return f"{difference.removesuffix('.')}; --force takes them."
