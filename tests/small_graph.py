"""The smallest graph that everything works on, in the files that the documents name."""

import json
import random
from collections.abc import Iterable
from pathlib import Path

RELATIONS = ("treats", "affects", "causes")
# The one that the documents trace.
TRACED = ("CHEBI:1", "treats", "MONDO:2")


def put_graph(folder: Path) -> dict[str, int]:
    """train.txt, valid.txt, test.txt, batch.txt and what goes with them; how many triples each holds."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    entities = [f"CHEBI:{n}" for n in range(1, 13)] + [f"MONDO:{n}" for n in range(1, 9)]
    # In a ring, so that each is known to training; the rest anywhere.
    ring = [(one, RELATIONS[n % 3], entities[n - 1]) for n, one in enumerate(entities)]
    drawn = {(*draw.sample(entities, 2), draw.choice(RELATIONS)) for _ in range(120)}
    others = sorted({(head, relation, tail) for head, tail, relation in drawn} - {*ring, TRACED})
    parts = {"test": [TRACED, *others[:9]], "valid": others[9:17], "train": [*ring, *others[17:]]}
    parts["batch"] = parts["test"][:3]
    for name, rows in parts.items():
        _put(folder / f"{name}.txt", rows)
    # Numbered otherwise than by their order, as dictionaries of a larger graph are.
    _put(folder / "node_dict.txt", [(one, str(n)) for n, one in enumerate(reversed(entities))])
    _put(folder / "rel_dict.txt", [(one, str(n)) for n, one in enumerate(RELATIONS)])
    _put(folder / "node_names.txt", [(one, f"name of {one}") for one in entities])
    (folder / "edge_map.json").write_text(json.dumps({"treats": "treats (as a drug)"}))
    return {name: len(rows) for name, rows in parts.items()}


def write_graph(folder: Path, seed: int, entities: int, relations: int, **triples: int) -> list[str]:
    """Random triples in NAME.txt for each name; the flags that give them to a training."""
    draw = random.Random(seed)
    flags = []
    for name, many in triples.items():
        rows = {
            (draw.randrange(entities), draw.randrange(relations), draw.randrange(entities))
            for _ in range(many)
        }
        _put(folder / f"{name}.txt", ((f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(rows)))
        flags += [f"--{name}", str(folder / f"{name}.txt")]
    return flags


def write_wide_graph(folder: Path, entities: int, *, train: int, **others: int) -> list[str]:
    """Many entities and few triples, of which `others` are spread over those of training; the flags of a training."""
    triples = [(f"e{i}", f"r{i % 3}", f"e{(i * 7 + 1) % entities}") for i in range(train)]
    files: dict[str, Iterable[tuple[str, ...]]] = {"train": triples}
    files |= {name: triples[:: train // many] for name, many in others.items()}
    files["entity-to-id"] = ((f"e{i}", str(i)) for i in range(entities))
    files["relation-to-id"] = ((f"r{i}", str(i)) for i in range(3))
    for name, rows in files.items():
        _put(folder / f"{name}.txt", rows)
    return [part for name in files for part in (f"--{name}", str(folder / f"{name}.txt"))]


def _put(path: Path, rows: Iterable[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
