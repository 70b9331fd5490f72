"""Graph counts of a job's data: entities, relations, triples, and distinct queries with their answers.

Counted without torch, from the files of PyKEEN's bundled graphs or a job's files, and cached by path, size and
modification time. PyKEEN's other graphs have published sizes; None where a download is needed.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from kgops.jobs.bundled import bundled_folder
from kgops.jobs.files import open_regular, read_json, write_json
from kgops.workloads.graphs.block_counts import Groups
from kgops.workloads.shared_options import LARGEST_GROUP

Triple = tuple[int, int, int]

_SPLITS = ("train", "valid", "test")
_HEADERS = ((b"head", b"relation", b"tail"), (b"subject", b"predicate", b"object"), (b"h", b"r", b"t"))
_VOCABULARY_HEADERS = {b"id", b"label", b"entity", b"relation", b"index", b"name"}
_REMEMBERED = 64  # data sets in the cache; the oldest is dropped first
_LONGEST = 64 << 20  # bytes of a line, as `kgops.maths.graphs.vocabulary` reads them
_FORMAT = 4  # of the cache


@dataclass(frozen=True, slots=True)
class Answers:
    """Distinct queries of one direction, the answers they have in all, Σ of their squares, and the most.

    `groups`: queries where each has at most `LARGEST_GROUP` of these answers.
    """

    queries: int = 0
    answers: int = 0
    squares: int = 0
    most: int = 0
    groups: int = 0

    @classmethod
    def of(cls, counts: Iterable[int]) -> Answers:
        counted = list(counts)
        squares = sum(count * count for count in counted)
        groups = sum(-(-count // LARGEST_GROUP) for count in counted)
        return cls(len(counted), sum(counted), squares, max(counted, default=0), groups)


@dataclass(frozen=True, slots=True)
class Counts:
    """Triples are counted once per file, as training reads them; relations without their inverses.

    `tails`: answers of (head, relation) in the training triples. `heads`: answers of (tail, relation) there.
    `test_queries`: the distinct queries of both kinds among the test triples. `groups` counts how many of these queries
    meet in one block of the training triples. It is empty where not counted. `published`: the triples are not on this
    machine. `assumed`: only their numbers are known, and every training triple counts as a distinct query.
    """

    entities: int
    relations: int
    train: int
    valid: int = 0
    test: int = 0
    tails: Answers = field(default_factory=Answers)
    heads: Answers = field(default_factory=Answers)
    groups: Groups = field(default_factory=Groups)
    test_queries: tuple[int, int] = (0, 0)
    published: bool = False
    assumed: bool = False

    def as_table(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Counts:
        nested: dict[str, Any] = {"tails": Answers(**table["tails"]), "heads": Answers(**table["heads"])}
        nested |= {"groups": Groups.from_table(table["groups"]), "test_queries": tuple(table["test_queries"])}
        return cls(**{**table, **nested})


def counts_of(
    settings: Mapping[str, Any], remembered: Path | None = None, *, most_bytes: int | None = None
) -> Counts | None:
    """Counts of the data that a job's settings name (`dataset`, or `train`, `valid`, `test` and vocabularies).

    `remembered` is the cache file; it may not exist yet. Files of more than `most_bytes` in all are only looked up in
    the cache.
    """
    files = files_of(settings)
    if files is None:
        return _published(settings.get("dataset"))
    try:
        key = "|".join([str(_FORMAT), *(_identity(role, path) for role, path in files.items())])
        cache = read_json(remembered) if remembered is not None else None
        entries = cache if isinstance(cache, dict) else {}
        recalled = _recalled(entries.get(key))
        if recalled is not None:
            return recalled
        if most_bytes is not None and sum(path.stat().st_size for path in files.values()) > most_bytes:
            return None
        counts = _count(files)
    except (OSError, EOFError, zlib.error, ValueError):
        return None  # unreadable, or no triples: the run reports the line
    if remembered is not None:
        newest = [*entries.items()][1 - _REMEMBERED :]
        remembered.parent.mkdir(parents=True, exist_ok=True)
        write_json(remembered, {**dict(newest), key: counts.as_table()})
    return counts


def _published(name: str | None) -> Counts | None:
    """Published counts of a PyKEEN graph."""
    table = counted_table(name or "")
    if table is not None:
        return replace(Counts.from_table(table), published=True)
    sizes = sizes_of(name or "")
    if sizes is None:
        return None
    each = Answers(sizes.train, sizes.train, sizes.train, 1, sizes.train)
    return Counts(*sizes, tails=each, heads=each, published=True, assumed=True)


def _recalled(table: Any) -> Counts | None:
    """Counts from the cache; None where another version wrote them or a person changed them."""
    try:
        return None if table is None else Counts.from_table(table)
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def count_triples(
    train: Collection[Triple],
    valid: Collection[Triple],
    test: Collection[Triple],
    entities: int,
    relations: int,
) -> Counts:
    """Counts of triples of ids, each once in its split."""
    tails = Counter((head, relation) for head, relation, _ in train)
    heads = Counter((tail, relation) for _, relation, tail in train)
    return Counts(
        entities,
        relations,
        len(train),
        len(valid),
        len(test),
        Answers.of(tails.values()),
        Answers.of(heads.values()),
        Groups.of(sorted(train)),
        (len({(h, r) for h, r, _ in test}), len({(t, r) for _, r, t in test})),
    )


def files_of(settings: Mapping[str, Any]) -> dict[str, Path] | None:
    """By role; None where the data are not on this machine."""
    name = settings.get("dataset")
    if name:
        folder = bundled_folder(name)
        return None if folder is None else {split: folder / f"{split}.txt" for split in _SPLITS}
    roles = (*_SPLITS, "entity_to_id", "relation_to_id")
    named = {role: Path(settings[role]) for role in roles if settings.get(role)}
    return named if "train" in named else None


def _identity(role: str, path: Path) -> str:
    stat = path.stat()
    return f"{role}:{path.absolute()}:{stat.st_size}:{stat.st_mtime_ns}"


def _count(files: Mapping[str, Path]) -> Counts:
    entities: dict[bytes, int] = {}
    relations: dict[bytes, int] = {}
    split = {role: _triples(files[role], entities, relations) for role in _SPLITS if role in files}
    totals = [
        _entries(files[role]) if role in files else len(numbers)
        for role, numbers in (("entity_to_id", entities), ("relation_to_id", relations))
    ]
    ranks = _ranks(entities), _ranks(relations)
    train, valid, test = (
        [(ranks[0][h], ranks[1][r], ranks[0][t]) for h, r, t in split.get(role, ())] for role in _SPLITS
    )
    return count_triples(train, valid, test, totals[0], totals[1])


def _triples(path: Path, entities: dict[bytes, int], relations: dict[bytes, int]) -> set[Triple]:
    triples: set[Triple] = set()
    entity_number, relation_number = entities.setdefault, relations.setdefault
    for line in text_lines(path):
        head, relation, tail = line.split(b"\t")  # ValueError where there are not three
        if not triples and (head.lower(), relation.lower(), tail.lower()) in _HEADERS:
            continue
        h = entity_number(head, len(entities))
        triples.add((h, relation_number(relation, len(relations)), entity_number(tail, len(entities))))
    if not triples:
        raise ValueError(f"{path} has no triples")
    return triples


def _entries(path: Path) -> int:
    """Of a vocabulary: its lines without a first one that is their number, or a header."""
    lines = list(text_lines(path))
    if len(lines) > 1 and lines[0].strip().isdigit():
        lines.pop(0)
    header = {word.lower() for word in lines[0].split()} if len(lines) > 1 else set()
    return len(lines) - (len(header) == 2 and header <= _VOCABULARY_HEADERS)


def _ranks(labels: dict[bytes, int]) -> list[int]:
    """By number of first meeting, the id that training gives: numbers by value, otherwise by text."""
    numeric = all(label.isdigit() for label in labels)
    ordered = sorted(labels, key=lambda label: (int(label), label)) if numeric else sorted(labels)
    ranks = [0] * len(ordered)
    for rank, label in enumerate(ordered):
        ranks[labels[label]] = rank
    return ranks


def text_lines(path: Path) -> Iterator[bytes]:
    """Lines of a text file, packed or not, that are not blank."""
    with os.fdopen(open_regular(path, follow=True), "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.open(raw) if packed else raw as file:
            lines = iter(lambda: file.readline(_LONGEST + 1), b"") if packed else file
            for number, line in enumerate(lines):
                if len(line) > _LONGEST:  # packed text may be a thousand times as large as its file
                    raise ValueError(f"{path} has a line without end")
                text = line.rstrip(b"\r\n")
                if text.strip():
                    yield text.removeprefix(b"\xef\xbb\xbf") if number == 0 else text


class _Sizes(NamedTuple):
    """Relations without their inverses; triples by split."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int


# From the documentation of PyKEEN 1.11.1. Graphs whose parts do not add up to their whole there are left out: CN3l,
# CSKG, OGBBioKG, PharMeBINet, PrimeKG and WK3l-120k.
PUBLISHED = {
    "aristov4": (42_016, 1593, 242_567, 18_444, 18_414),
    "biokg": (105_524, 17, 1_654_397, 206_800, 206_800),
    "ckg": (7_617_419, 11, 21_353_220, 2_669_153, 2_669_152),
    "codexlarge": (77_951, 69, 551_193, 30_622, 30_622),
    "codexmedium": (17_050, 51, 185_584, 10_310, 10_311),
    "codexsmall": (2034, 42, 32_888, 1827, 1828),
    "conceptnet": (28_370_083, 50, 27_259_933, 3_407_492, 3_407_492),
    "countries": (271, 2, 1110, 24, 24),
    "db100k": (99_604, 470, 597_482, 49_997, 50_000),
    "dbpedia50": (24_624, 351, 32_203, 123, 2095),
    "drkg": (97_238, 107, 4_699_405, 587_426, 587_426),
    "fb15k": (14_951, 1345, 483_142, 50_000, 59_071),
    "fb15k237": (14_505, 237, 272_115, 17_526, 20_438),
    "globi": (404_207, 39, 1_573_108, 196_639, 196_638),
    "hetionet": (45_158, 24, 1_800_157, 225_020, 225_020),
    "kinships": (104, 25, 8544, 1068, 1074),
    "nations": (14, 55, 1592, 199, 201),
    "ogbwikikg2": (2_500_604, 535, 16_109_182, 429_456, 598_543),
    "openbiolink": (180_992, 28, 4_192_002, 188_394, 183_011),
    "openbiolinklq": (480_876, 32, 25_508_954, 1_132_001, 679_934),
    "openea": (15_000, 248, 30_612, 3827, 3826),
    "pharmkg": (188_296, 39, 874_588, 109_324, 109_324),
    "pharmkg8k": (7247, 28, 386_768, 49_255, 49_764),
    "umls": (135, 46, 5216, 652, 661),
    "wd50kt": (40_107, 473, 164_631, 22_429, 45_284),
    "wikidata5m": (4_594_149, 822, 20_614_279, 4983, 4977),
    "wk3l15k": (15_126, 1841, 167_232, 20_905, 20_904),
    "wn18": (40_943, 18, 141_442, 5000, 5000),
    "wn18rr": (40_559, 11, 86_835, 2824, 2924),
    "yago310": (123_143, 37, 1_079_040, 4978, 4982),
}
# `counted/` has all that `count_triples` counts of these, made once from their triples as PyKEEN reads them. PyKEEN
# leaves out validation and test triples whose entities or relations training does not have.
_COUNTED = ("codexsmall", "fb15k237", "wn18rr")


def sizes_of(name: str) -> _Sizes | None:
    sizes = PUBLISHED.get(_plain_name(name))
    return None if sizes is None else _Sizes(*sizes)


def counted_table(name: str) -> dict[str, Any] | None:
    """What `Counts.as_table` wrote of that graph."""
    plain = _plain_name(name)
    if plain not in _COUNTED:
        return None
    table: dict[str, Any] = json.loads(
        (resources.files("kgops.workloads.graphs") / "counted" / f"{plain}.json").read_text("utf-8")
    )
    return table


def _plain_name(name: str) -> str:
    """As PyKEEN compares names: FB15k-237 is fb15k237."""
    return "".join(char for char in name.lower() if char.isalnum())


def lines_of(path: str | None, word: str = "") -> int:
    """Of a file of questions, triples or types, those with the word; 1 without a file."""
    if not path:
        return 1
    wanted = word.casefold().encode()
    try:
        with os.fdopen(open_regular(Path(path), follow=True), "rb") as file:
            return max(1, sum(1 for line in file if line.strip() and wanted in line.lower()))
    except OSError:
        return 1  # the worker says what is wrong with the file
