"""Full-text search of runs: label, command, tags and notes in one trigram index."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

_FREQUENT = 5000  # runs
_WORDS = """
    SELECT run.label || ' ' || run.workload || ' ' || coalesce(run.profile, '')
        || ' ' || coalesce((SELECT group_concat(value, ' ') FROM json_each(job, '$.exec.command')), '')
        || ' ' || coalesce((SELECT group_concat(tag, ' ') FROM tag WHERE tag.run = run.id), '')
        || ' ' || coalesce((SELECT group_concat(text, ' ') FROM note WHERE note.run = run.id), '')
    FROM run LEFT JOIN (SELECT run, job FROM run_spec WHERE json_valid(job)) AS spec ON spec.run = run.id
    WHERE run.id = ?
"""


def index(conn: sqlite3.Connection, number: int) -> None:
    """Indexes a run's text. Call in the transaction that changed it."""
    forget(conn, number)
    words = conn.execute(_WORDS, (number,)).fetchone()[0]
    conn.execute("INSERT INTO run_text (rowid, words) VALUES (?, ?)", (number, words))


def forget(conn: sqlite3.Connection, number: int) -> None:
    conn.execute("DELETE FROM run_text WHERE rowid = ?", (number,))


class Condition(NamedTuple):
    """A condition on runs: `clause` over `source`, whose column `number` is the run's number.

    The source is `run` itself, or a table or SELECT with rows for some of the runs."""

    source: str
    number: str
    clause: str
    values: tuple[Any, ...]
    negated: bool = False

    def where(self) -> str:
        """The condition as a WHERE clause of a query over `run`."""
        if self.source == "run":
            return f"({self.clause}) IS {'NOT ' * self.negated}TRUE"
        inner = f"SELECT {self.number} FROM {self.source} WHERE {self.clause}"
        return f"run.id {'NOT ' * self.negated}IN ({inner})"


def condition(conn: sqlite3.Connection, phrase: str, *, negated: bool = False) -> Condition:
    """Runs whose text contains `phrase`, ignoring case."""
    if len(phrase) >= 3:
        quoted = '"' + phrase.replace('"', '""') + '"'
        if not phrase.isascii() or not _is_frequent(conn, quoted):
            return Condition("run_text", "rowid", "run_text MATCH ?", (quoted,), negated)
    # FTS5's content table instead of the virtual table: a third of the time.
    like = "c0 LIKE ? ESCAPE '\\'"
    return Condition("run_text_content", "id", like, (f"%{escaped(phrase)}%",), negated)


def escaped(text: str) -> str:
    """The text escaped for LIKE … ESCAPE '\\'."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _is_frequent(conn: sqlite3.Connection, quoted: str) -> bool:
    """Whether the phrase is so frequent that scanning all texts is faster than the index."""
    probe = "SELECT rowid FROM run_text WHERE run_text MATCH ? LIMIT 1 OFFSET ?"
    return conn.execute(probe, (quoted, _FREQUENT)).fetchone() is not None
