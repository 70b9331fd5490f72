"""Published sizes of PyKEEN's graphs, known without a download.

Source of the sizes: the documentation of PyKEEN 1.11.1, which says of each data set how large it is. Those are left
out whose parts do not add up to their whole there: CN3l, CSKG, OGBBioKG, PharMeBINet, PrimeKG and WK3l-120k. For the
graphs of the recipes `counted/` has all that `graph_counts` counts, made once from their triples as PyKEEN reads
them: it leaves out validation and test triples whose entities or relations training does not have.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple

__all__ = ["Sizes", "counted_table", "sizes_of"]


class Sizes(NamedTuple):
    """Relations without their inverses; triples by split."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int


_SIZES = {
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
_COUNTED = ("codexsmall", "fb15k237", "wn18rr")


def sizes_of(name: str) -> Sizes | None:
    sizes = _SIZES.get(_plain(name))
    return None if sizes is None else Sizes(*sizes)


def counted_table(name: str) -> dict[str, Any] | None:
    """What `Counts.as_table` wrote of that graph."""
    plain = _plain(name)
    if plain not in _COUNTED:
        return None
    table: dict[str, Any] = json.loads(
        (files("kgops.planning") / "counted" / f"{plain}.json").read_text("utf-8")
    )
    return table


def _plain(name: str) -> str:
    """As PyKEEN compares names: FB15k-237 is fb15k237."""
    return "".join(char for char in name.lower() if char.isalnum())
