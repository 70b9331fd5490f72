"""Words of a run found again: label, command, tags and notes in one trigram index."""

from __future__ import annotations

import sqlite3

_WORDS = """
    SELECT run.label || ' ' || run.workload || ' ' || coalesce(run.profile, '')
        || ' ' || coalesce((SELECT group_concat(value, ' ') FROM json_each(run_spec.job, '$.exec.command')), '')
        || ' ' || coalesce((SELECT group_concat(tag, ' ') FROM tag WHERE tag.run = run.id), '')
        || ' ' || coalesce((SELECT group_concat(text, ' ') FROM note WHERE note.run = run.id), '')
    FROM run JOIN run_spec ON run_spec.run = run.id WHERE run.id = ?
"""


def index(conn: sqlite3.Connection, number: int) -> None:
    """Call in the transaction that changed any of the words."""
    forget(conn, number)
    words = conn.execute(_WORDS, (number,)).fetchone()[0]
    conn.execute("INSERT INTO run_text (rowid, words) VALUES (?, ?)", (number, words))


def forget(conn: sqlite3.Connection, number: int) -> None:
    conn.execute("DELETE FROM run_text WHERE rowid = ?", (number,))


def condition(words: str) -> tuple[str, list[str]]:
    """All words must occur, anywhere, in any order; a word under three letters needs a scan."""
    parts = words.split()
    long = [part for part in parts if len(part) >= 3]
    short = [part for part in parts if len(part) < 3]
    inner: list[str] = []
    values: list[str] = []
    if long:
        inner.append("words MATCH ?")
        values.append(" AND ".join('"' + part.replace('"', '""') + '"' for part in long))
    for part in short:
        inner.append("words LIKE ? ESCAPE '\\'")
        values.append("%" + part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%")
    return f"run.id IN (SELECT rowid FROM run_text WHERE {' AND '.join(inner) or '1'})", values
