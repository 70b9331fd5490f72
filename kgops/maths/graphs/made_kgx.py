"""Writes a small graph in KGX in which it is known why a drug treats a disease: it inhibits a gene that causes it.

    python -m kgops.maths.graphs.made_kgx OUT --drugs 200 --diseases 100 --genes 60 --seed 0

`mechanisms.tsv` has the genes of each pair. Other edges are drawn at random and mean nothing: a drug also affects many
genes, and many genes are associated with a disease.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

_TARGETS, _CAUSES = 2, 2  # genes of a drug, and of a disease
_OTHERS = 4  # edges without a meaning, for each node
_MEANINGLESS = 20  # genes that a drug affects, and that a disease is associated with
_KNOWN = 0.9  # share of what follows from the mechanisms that the graph has


def write(out: Path, drugs: int, diseases: int, genes: int, seed: int) -> None:
    draw = random.Random(seed)
    ids = {
        kind: [f"{prefix}:{n}" for n in range(many)]
        for kind, prefix, many in (
            ("Drug", "CHEBI", drugs),
            ("Disease", "MONDO", diseases),
            ("Gene", "HGNC", genes),
        )
    }
    inhibits = {drug: draw.sample(ids["Gene"], _TARGETS) for drug in ids["Drug"]}
    causes = {disease: draw.sample(ids["Gene"], _CAUSES) for disease in ids["Disease"]}
    edges = [(drug, "inhibits", gene) for drug, targets in inhibits.items() for gene in targets]
    edges += [(gene, "causes", disease) for disease, own in causes.items() for gene in own]
    mechanisms = []
    for drug, targets in inhibits.items():
        for disease, own in causes.items():
            shared = [gene for gene in targets if gene in own]
            if shared:
                mechanisms.append((drug, disease, "|".join(shared)))
                edges += [(drug, "treats", disease)] if draw.random() < _KNOWN else []
    kinds = [
        ("Gene", "interacts_with", "Gene"),
        ("Gene", "expressed_with", "Gene"),
        ("Drug", "resembles", "Drug"),
    ]
    kinds += [("Disease", "resembles", "Disease"), ("Drug", "has_side_effect", "Disease")]
    for subject, predicate, other in kinds:
        for node in ids[subject]:
            edges += [(node, predicate, draw.choice(ids[other])) for _ in range(_OTHERS)]
    many = min(_MEANINGLESS, genes)
    for drug in ids["Drug"]:
        edges += [(drug, "affects", gene) for gene in draw.sample(ids["Gene"], many)]
    for disease in ids["Disease"]:
        edges += [(gene, "associated_with", disease) for gene in draw.sample(ids["Gene"], many)]
    draw.shuffle(edges)
    with (out / "nodes.tsv").open("w") as file:
        file.write("id\tname\tcategory\n")
        for kind, own in ids.items():
            file.writelines(f"{one}\t{kind.lower()} {n}\tbiolink:{kind}\n" for n, one in enumerate(own))
    with (out / "edges.jsonl").open("w") as file:
        for subject, predicate, other in edges:
            edge = {"subject": subject, "predicate": f"biolink:{predicate}", "object": other}
            file.write(json.dumps({**edge, "primary_knowledge_source": "infores:made"}) + "\n")
    with (out / "mechanisms.tsv").open("w") as file:
        file.write("drug\tdisease\tgenes\n")
        file.writelines("\t".join(one) + "\n" for one in mechanisms)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kgops.maths.graphs.made_kgx")
    parser.add_argument("out", type=Path)
    for name in ("drugs", "diseases", "genes", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    write(args.out, args.drugs, args.diseases, args.genes, args.seed)


if __name__ == "__main__":
    main()
