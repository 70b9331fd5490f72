"""Splits triples into train, valid and test so that no test triple is given away by its inverse or a repetition.

    python -m kgops.maths.graphs.splitting FOLDER < options as JSON

All triples between two entities stay together, whatever their direction. Of a pair that is held out, only triples of
the relations asked for are tested; its others are left out.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kgops.errors import BadInput, KgopsError
from kgops.jobs.option_reading import nearest

TRIPLES, PARTS = "triples.txt", ("train", "valid", "test")
_LEFT_OUT = 3
_Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Request:
    """What to hold out: random pairs, all triples of random tails, or the latest dates. Only triples of `relations` are
    tested; empty: all."""

    by: str = "pair"
    relations: tuple[str, ...] = ()
    valid: float = 0.05
    test: float = 0.1
    seed: int = 0


def split(folder: Path, asked: Request) -> dict[str, Any]:
    """Writes `train.txt`, `valid.txt` and `test.txt` next to `triples.txt`; returns the counts and cautions."""
    lines, ids, names, dates = _read(folder / TRIPLES)
    unknown = [name for name in asked.relations if name not in names]
    if unknown:
        raise BadInput(
            f"no triple has the relation {unknown[0]!r}{nearest(unknown[0], dict.fromkeys(names))}"
        )
    wanted = np.isin(ids[:, 1], [names.index(name) for name in asked.relations or names])
    pairs = _pairs(ids)
    if asked.by == "date":
        groups, order = pairs, _by_date(pairs, wanted, dates)
    else:
        groups = pairs if asked.by == "pair" else ids[:, 2]
        order = np.random.default_rng(asked.seed).permutation(np.unique(groups[wanted]))
    part = _parts(groups, order, wanted, pairs, (asked.test, asked.valid))
    for number, name in enumerate(PARTS):
        chosen = np.flatnonzero(part == number)
        (folder / f"{name}.txt").write_text("".join(lines[at] for at in chosen))
    counts = {name: int((part == number).sum()) for number, name in enumerate(PARTS)}
    counts["left out, between pairs that are held out"] = int((part == _LEFT_OUT).sum())
    if not counts["train"] or not counts["test"]:
        raise BadInput(
            f"{counts['train']:,} triples are left to train and {counts['test']:,} to test",
            hint="choose other shares with --valid and --test",
        )
    return {"counts": counts, "cautions": _cautions(ids, part, names)}


def _read(path: Path) -> tuple[list[str], _Ids, list[str], list[str]]:
    """The lines without dates, their numbers, the relations in the order of their numbers, and the dates."""
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    lines, dates, numbers = [], [], array("q")
    try:
        with path.open(newline="\n") as file:
            for number, line in enumerate(file, 1):
                values = line.rstrip("\r\n").split("\t")
                if len(values) not in (3, 4):
                    raise BadInput(
                        f"{path}:{number} has {len(values)} columns; a triple has 3, or 4 with a date"
                    )
                h, r, t = values[:3]
                numbers.append(entities.setdefault(h, len(entities)))
                numbers.append(relations.setdefault(r, len(relations)))
                numbers.append(entities.setdefault(t, len(entities)))
                lines.append(f"{h}\t{r}\t{t}\n")
                dates.append(values[3] if len(values) == 4 else "")
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}", hint="`kgops data kgx` writes it"
        ) from error
    if not lines:
        raise BadInput(f"{path} has no triple")
    return lines, np.frombuffer(numbers, dtype=np.int64).reshape(-1, 3), list(relations), dates


def _pairs(ids: _Ids) -> _Ids:
    """A number for each two entities, whatever their order."""
    low, high = np.minimum(ids[:, 0], ids[:, 2]), np.maximum(ids[:, 0], ids[:, 2])
    _, number = np.unique(low * (int(ids[:, [0, 2]].max()) + 1) + high, return_inverse=True)
    return np.asarray(number, dtype=np.int64)


def _by_date(pairs: _Ids, wanted: npt.NDArray[np.bool_], dates: Sequence[str]) -> _Ids:
    """Pairs, the latest first: a pair is as old as its first triple. Those without a date come last."""
    first: dict[int, str] = {}
    for at in np.flatnonzero(wanted).tolist():
        pair, date = int(pairs[at]), dates[at]
        first[pair] = min(first.get(pair, date), date)
    if not any(first.values()):
        raise BadInput(
            "the triples have no dates", hint="`kgops data kgx --date COLUMN` keeps a column of dates"
        )
    return np.array(sorted(first, key=lambda pair: (first[pair], pair), reverse=True), dtype=np.int64)


def _parts(
    groups: _Ids,
    order: _Ids,
    wanted: npt.NDArray[np.bool_],
    pairs: _Ids,
    shares: tuple[float, float],
) -> npt.NDArray[np.int8]:
    """The part of each triple: whole groups from the beginning of the order, until a share is reached."""
    sizes = np.bincount(groups[wanted], minlength=int(groups.max()) + 1)[order].cumsum()
    total = int(wanted.sum())
    of_group = np.zeros(int(groups.max()) + 1, dtype=np.int8)
    test, valid = (
        int(np.searchsorted(sizes, share * total)) + (share > 0) for share in (shares[0], sum(shares))
    )
    of_group[order[:test]], of_group[order[test:valid]] = 2, 1
    part = np.where(wanted, of_group[groups], 0).astype(np.int8)
    held = np.zeros(int(pairs.max()) + 1, dtype=np.int8)
    np.maximum.at(held, pairs, part)
    # A pair that is held out has nothing left in train; what is not asked for there is in no part.
    other = (part != held[pairs]) & (held[pairs] > 0)
    part[other & wanted] = held[pairs][other & wanted]
    part[other & ~wanted] = _LEFT_OUT
    return part


def _cautions(ids: _Ids, part: npt.NDArray[np.int8], names: Sequence[str]) -> list[str]:
    """Relations and entities that nothing is left to learn of."""
    train, held = ids[part == 0], ids[(part == 1) | (part == 2)]
    cautions = [
        f"relation {names[r]}: no triple is left to train on, {int((held[:, 1] == r).sum()):,} are held out; "
        "lower --test, or take it out"
        for r in np.setdiff1d(held[:, 1], train[:, 1]).tolist()
    ]
    unseen = len(np.setdiff1d(held[:, [0, 2]], train[:, [0, 2]]))
    if unseen:
        cautions.append(f"{unseen:,} entities are only in valid or test: a model knows nothing of them")
    return cautions


def main() -> None:
    told: Mapping[str, Any] = json.load(sys.stdin)
    try:
        found = split(Path(sys.argv[1]), Request(**{**told, "relations": tuple(told.get("relations", ()))}))
    except KgopsError as error:
        sys.exit(json.dumps({"error": error.message, "hint": error.hint}))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
