"""Explanations of a report: the triples that carry each prediction, beside their picture."""

from __future__ import annotations

from kgops.jobs.text import one_line
from kgops.views.explained_run import ExplainedRun, title_of, verdict_of
from kgops.views.explanation_pictures import picture_of
from kgops.views.explanations import ExplainedPrediction
from kgops.views.html_page import table, text
from kgops.views.pictures import as_inline_svg

__all__ = ["explanations"]

_MOST = 20
_SMALLEST = 0.8  # of a picture's size, for its letters
_HEADS = ("effect alone", "head", "relation", "tail")


def explanations(explained: ExplainedRun) -> str:
    """HTML; empty where there are none."""
    if not explained.predictions:
        return ""
    out = [_one(explained, one) for one in explained.predictions[:_MOST]]
    if explained.verification is not None:
        out.insert(0, f"<p>{text(one_line(explained.verification.sentence))}</p>")
    if explained.without_paths is not None:
        out.insert(0, f'<p class="dim">no paths: {text(one_line(explained.without_paths))}</p>')
    left = len(explained.predictions) - _MOST
    if left > 0:
        out.append(f'<p class="dim">and {left:,} more: kgops export {explained.run.id} --to svg</p>')
    return "\n".join(out)


def _one(explained: ExplainedRun, one: ExplainedPrediction) -> str:
    said = f"<p><strong>{text(title_of(one))}</strong></p>\n<p>{text(verdict_of(one))}</p>"
    if not one.facts:
        return said
    rows = [
        (None if fact.effect is None else f"{fact.effect:+.4g}", *map(one_line, fact.triple))
        for fact in one.facts
    ]
    picture = picture_of(explained.graph(one), title_of(one))
    # A picture too wide to be read beside the list goes below it.
    drawn = f'<div style="flex-basis: {round(picture.width * _SMALLEST)}px">{as_inline_svg(picture)}</div>'
    return f'{said}\n<div class="beside-picture"><div>{table(_HEADS, rows, right=(0,))}</div>{drawn}</div>'
