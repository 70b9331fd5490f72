"""Writes influences as one Parquet file: dictionary-encoded labels, one row group for each test triple."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kgops.errors import Usage
from kgops.tracin.finished_tests import FinishedTest
from kgops.tracin.influence_files import Add, Wrote
from kgops.tracin.results import Table
from kgops.tracin.test_triples import TestTriple

__all__ = ["must_have_parquet", "parquet_file"]


def must_have_parquet() -> Any:
    """Imports pyarrow before the work starts, or says how to install it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Usage(
            "Parquet needs pyarrow, which is not installed.",
            hint="`pip install 'kgops[parquet]'`, or leave out --parquet to get CSV.",
        ) from error
    return pyarrow


@contextmanager
def parquet_file(path: Path, table: Table, wrote: Wrote) -> Iterator[Add]:
    """No file if no test triple could be scored."""
    pa = must_have_parquet()
    draft = path.with_name(f".{path.name}.part")
    groups = _groups(pa, table)
    writer = None

    def add(test: TestTriple, influences: FinishedTest) -> None:
        nonlocal writer
        if test.ids is None:
            return
        group = groups(test, influences)
        writer = writer or pa.parquet.ParquetWriter(draft, group.schema)
        writer.write_table(group)
        wrote(len(influences.rows))

    try:
        yield add
    except BaseException:
        if writer is not None:
            writer.close()
        draft.unlink(missing_ok=True)
        raise
    if writer is not None:
        writer.close()
        draft.replace(path)


def _groups(pa: Any, table: Table) -> Callable[[TestTriple, FinishedTest], Any]:
    """Makes the row group of a test triple; the label dictionaries are built once."""
    graph, names = table.graph, table.names
    entities = pa.array(graph.entities.labels, pa.string())
    relations = pa.array(graph.relations.labels, pa.string())
    entity_names = pa.array([names.nodes.get(label, label) for label in graph.entities.labels], pa.string())
    relation_names = pa.array(
        [names.edges.get(label, label) for label in graph.relations.labels], pa.string()
    )

    def labelled(column_name: str, column: Sequence[int], of: Any, called: Any) -> dict[str, Any]:
        index = pa.array(column, pa.int32())
        return {
            column_name: pa.DictionaryArray.from_arrays(index, of),
            f"{column_name}_label": pa.DictionaryArray.from_arrays(index, called),
        }

    def group(test: TestTriple, influences: FinishedTest) -> Any:
        assert test.ids is not None
        many, rows = len(influences.rows), graph.train[influences.rows]
        columns: dict[str, Any] = {"Test": pa.array([test.number] * many, pa.int32())}
        for side, values in (("Test", [[i] * many for i in test.ids]), ("Train", rows.t().tolist())):
            for name, column in zip(("Head", "Rel", "Tail"), values, strict=True):
                of, called = (relations, relation_names) if name == "Rel" else (entities, entity_names)
                columns |= labelled(f"{side}{name}", column, of, called)
        columns["TracInScore"] = pa.array(influences.scores.numpy())
        return pa.table(columns)

    return group
