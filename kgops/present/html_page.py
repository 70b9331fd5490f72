"""Parts of a self-contained HTML page: its style, dark and light, tables, folds and numbers. It escapes every text."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kgops import __version__
from kgops.jobs.text import clock, lines
from kgops.present.rows import Fact, Section

HUES = 8
_LIGHT = ("#0b63b0", "#c25700", "#00785a", "#a63c82", "#8a6d00", "#2a8fbd", "#c0262d", "#6a5acd")
_DARK = ("#6cb2ff", "#ff9e4a", "#3ecf9d", "#e58cc7", "#e3c14a", "#7fd4f5", "#ff7b7b", "#b3a5ff")
_INKS = {
    "ink": ("#111", "#eee"),
    "dim": ("#555", "#aaa"),
    "grid": ("#e2e2e2", "#3a3a3a"),
    "paper": ("#fff", "#16181c"),
}


def _colours(dark: bool) -> str:
    """Of the page and its charts, as custom properties."""
    hues = {f"hue{i}": one for i, one in enumerate(_DARK if dark else _LIGHT)}
    named = {name: pair[dark] for name, pair in _INKS.items()} | hues
    good_and_bad = {"good": "#3ecf9d", "bad": "#ff7b7b"} if dark else {"good": "#00705a", "bad": "#b3151c"}
    shade = {"shade": "#22252b" if dark else "#f4f5f7"}
    return "".join(f"--{name}:{value};" for name, value in (named | good_and_bad | shade).items())


# A closed fold is not printed: what leads fits on two pages. Colours of the screen's dark mode are not printed either.
_STYLE = f"""
:root {{ {_colours(False)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {_colours(True)} }} }}
body {{ font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); }}
body {{ max-width: 62rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }}
h1 {{ font-size: 1.5rem; margin: 0; }} h2 {{ font-size: 1.05rem; margin: 1.8rem 0 .5rem; font-weight: 600; }}
p {{ margin: .3rem 0; }} .dim, figcaption, th, dt {{ color: var(--dim); }} .note {{ white-space: pre-line; }}
.state {{ font-weight: 600; }} .good {{ color: var(--good); }} .bad {{ color: var(--bad); }}
dl.numbers {{ display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }}
dl.numbers div {{ flex: 1 1 8.5rem; background: var(--shade); border-radius: .4rem; padding: .5rem .8rem; }}
dt {{ font-size: .85rem; }} dd {{ margin: 0; }} dd.value {{ font-size: 1.9rem; line-height: 1.2; font-weight: 600; }}
dd.value.missing {{ font-size: 1.1rem; line-height: 2.07; font-weight: 400; color: var(--dim); }}
dd {{ font-variant-numeric: tabular-nums; }} dd.beside {{ font-size: .8rem; color: var(--dim); }}
table {{ border-collapse: collapse; width: 100%; font-size: .9rem; }} .wide {{ overflow-x: auto; }}
th {{ text-align: left; font-weight: 500; border-bottom: 1px solid var(--dim); }}
td, th {{ padding: .15rem .8rem .15rem 0; vertical-align: top; }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums; }} tr.differs td, td.best {{ font-weight: 600; }}
td.best {{ color: var(--good); }}
pre {{ font-size: .8rem; overflow-x: auto; background: var(--shade); padding: .6rem; }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); gap: .8rem 1.5rem; }}
figure {{ margin: 0; break-inside: avoid; }} figcaption {{ font-size: .85rem; }} figcaption b {{ color: var(--ink); }}
.beside-picture {{ display: flex; flex-wrap: wrap; align-items: center; gap: .3rem 1.5rem; margin-bottom: 1.2rem; }}
.beside-picture {{ break-inside: avoid; }} .beside-picture > div {{ flex: 1 1 19rem; max-width: 58rem; }}
svg {{ display: block; width: 100%; }} svg text {{ font-family: system-ui, sans-serif; }}
ul.key {{ list-style: none; padding: 0; }} .key svg {{ display: inline-block; width: 2.7rem; margin-right: .6rem; }}
{" ".join(f".{name} {{ color: var(--{name}); }}" for name in (*_INKS, *(f"hue{i}" for i in range(HUES))))}
details {{ border-top: 1px solid var(--grid); padding: .4rem 0; }} summary {{ cursor: pointer; }}
summary span {{ color: var(--dim); font-size: .85rem; }} .folded {{ margin-top: 2rem; }}
@page {{ size: A4; margin: 13mm; }}
@media print {{
 body {{ font-size: 11px; margin: 0; max-width: none; padding: 0; }}
 body {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
 details:not([open]), .folded:not(:has([open])) {{ display: none; }} pre {{ white-space: pre-wrap; }}
 .charts {{ grid-template-columns: repeat(3, 1fr); }} tr, dl.numbers {{ break-inside: avoid; }}
 h2 {{ break-after: avoid; }}
}}
"""


class Number(NamedTuple):
    """A large number. `value` None: not measured."""

    name: str
    value: str | None
    beside: str = ""


def document(title: str, parts: Sequence[str], foot: str) -> str:
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n"
        f'<p class="dim">{text(f"Written by kgops {__version__}, {moment(time.time())}. {foot}")}</p>\n</body></html>\n'
    )


def text(value: str) -> str:
    """Escapes labels, reasons and log lines, which may hold anything."""
    return html.escape(lines(value))


def section(title: str, body: str) -> str:
    return f"<section><h2>{text(title)}</h2>\n{body}</section>" if body else ""


def fold(title: str, body: str, beside: str = "") -> str:
    """A section that a click opens; none without a body."""
    hint = f" <span>{text(beside)}</span>" if beside else ""
    return f"<details><summary>{text(title)}{hint}</summary>\n{body}</details>" if body else ""


def grid(charts: Sequence[str]) -> str:
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def numbers(shown: Sequence[Number]) -> str:
    tiles = []
    for one in shown:
        missing = " missing" if one.value is None else ""
        beside = f'<dd class="beside">{text(one.beside)}</dd>' if one.beside else ""
        value = "not measured" if one.value is None else one.value
        tiles.append(
            f'<div><dt>{text(one.name)}</dt><dd class="value{missing}">{text(value)}</dd>{beside}</div>'
        )
    return f'<dl class="numbers">{"".join(tiles)}</dl>' if tiles else ""


def chart(name: str, caption: str, svg: str) -> str:
    return f"<figure><figcaption><b>{text(name)}</b> {text(caption)}</figcaption>{svg}</figure>"


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    *,
    right: Sequence[int] = (),
    marked: Sequence[bool] = (),
    best: Sequence[tuple[int, int]] = (),
) -> str:
    """`marked` rows stand out, and so do cells that are `best` of their row, by row and column."""
    if not rows:
        return ""
    sides = [' class="n"' if i in right else "" for i in range(len(heads))]
    top = "".join(f"<th{n}>{text(head)}</th>" for head, n in zip(heads, sides, strict=True))
    out = [f"<table><thead><tr>{top}</tr></thead><tbody>"] if any(heads) else ["<table><tbody>"]
    for i, row in enumerate(rows):
        cells = [text("n/a" if cell is None else cell) for cell in row]
        classes = [' class="n best"' if (i, j) in best else side for j, side in enumerate(sides)]
        drawn = "".join(f"<td{of}>{cell}</td>" for of, cell in zip(classes, cells, strict=True))
        out.append(f"<tr{' class=differs' if marked and marked[i] else ''}>{drawn}</tr>")
    return f'<div class="wide">{chr(10).join([*out, "</tbody></table>"])}</div>'


def section_table(shown: Section) -> str:
    """The table of a section and the sentences below it; nothing without lines."""
    rows = [[piece.text for piece in line.cells] for line in shown.lines]
    marked = [any(piece.tone in ("warn", "bad") for piece in line.cells) for line in shown.lines]
    heads = [shown.columns[0].head.lower(), *(column.head for column in shown.columns[1:])]
    below = "".join(f'<p class="dim">{text(one)}</p>' for one in shown.below)
    return table(heads, rows, right=shown.right, marked=marked) + (below if rows else "")


def facts_line(facts: Iterable[Fact]) -> str:
    """Facts joined by `·`."""
    said = " · ".join(f"{one.name} {one.text}" for one in facts)
    return f'<p class="dim">{text(said)}</p>' if said else ""


def mib(value: float | None) -> str:
    """With one digit; of less than 0.05 MiB it says so."""
    if value is None:
        return "not measured"
    return "under 0.1" if 0 < value < 0.05 else f"{value:,.1f}"


def moment(at: float | None) -> str:
    return "n/a" if at is None else clock(at, "%Y-%m-%d %H:%M:%S")
