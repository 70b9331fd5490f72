"""Millions of scores in one Parquet file: ids, labels as dictionaries, a row group for each test triple."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kgops.errors import Usage
from kgops.tracin.finished_tests import Part
from kgops.tracin.influence_files import Add, Wrote
from kgops.tracin.results import Table
from kgops.tracin.test_triples import TestTriple

__all__ = ["must_have_parquet", "parquet_file"]


def must_have_parquet() -> Any:
    """pyarrow, or what to do without it; before the work, not after it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Usage(
            "Parquet needs pyarrow, which is not installed.",
            hint="`pip install 'kgops[parquet]'`, or leave --parquet away for CSV.",
        ) from error
    return pyarrow


@contextmanager
def parquet_file(path: Path, table: Table, wrote: Wrote) -> Iterator[Add]:
    """No file where no test triple could be traced."""
    pa = must_have_parquet()
    half = path.with_name(f".{path.name}.part")
    groups = _groups(pa, table)
    writer = None

    def add(test: TestTriple, part: Part) -> None:
        nonlocal writer
        if test.ids is None:
            return
        group = groups(test, part)
        writer = writer or pa.parquet.ParquetWriter(half, group.schema)
        writer.write_table(group)
        wrote(len(part.rows))

    try:
        yield add
    except BaseException:
        if writer is not None:
            writer.close()
        half.unlink(missing_ok=True)
        raise
    if writer is not None:
        writer.close()
        half.replace(path)


def _groups(pa: Any, table: Table) -> Callable[[TestTriple, Part], Any]:
    """Makes the row group of a test triple; the labels are laid out once for all of them."""
    graph, names = table.graph, table.names
    entities = pa.array(graph.entities.labels, pa.string())
    relations = pa.array(graph.relations.labels, pa.string())
    entity_names = pa.array([names.nodes.get(label, label) for label in graph.entities.labels], pa.string())
    relation_names = pa.array(
        [names.edges.get(label, label) for label in graph.relations.labels], pa.string()
    )

    def labelled(part: str, column: Sequence[int], of: Any, called: Any) -> dict[str, Any]:
        index = pa.array(column, pa.int32())
        return {
            part: pa.DictionaryArray.from_arrays(index, of),
            f"{part}_label": pa.DictionaryArray.from_arrays(index, called),
        }

    def group(test: TestTriple, part: Part) -> Any:
        assert test.ids is not None
        many, rows = len(part.rows), graph.train[part.rows]
        columns: dict[str, Any] = {"Test": pa.array([test.number] * many, pa.int32())}
        for side, values in (("Test", [[i] * many for i in test.ids]), ("Train", rows.t().tolist())):
            for name, column in zip(("Head", "Rel", "Tail"), values, strict=True):
                of, called = (relations, relation_names) if name == "Rel" else (entities, entity_names)
                columns |= labelled(f"{side}{name}", column, of, called)
        columns["TracInScore"] = pa.array(part.scores.numpy())
        return pa.table(columns)

    return group
