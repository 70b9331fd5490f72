"""Whether a question has anything to go by: triples of its relation with ends like the entity that it names."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kgops.maths.graphs.vocabulary import shown
from kgops.maths.predict.candidates import NodeTypes
from kgops.maths.predict.known import KnownTriples
from kgops.maths.predict.names import NamedVocabulary

_ASK = "`kgops predict --best 20` with that relation lists what it does relate"


@dataclass(frozen=True)
class Evidence:
    """Types of entities decide where they are given, else the relations that entities have."""

    train: torch.Tensor
    known: KnownTriples
    entities: NamedVocabulary
    relations: NamedVocabulary
    types: NodeTypes | None = None

    def missing(self, entity: int, relation: int, *, is_head: bool) -> str | None:
        """Why the model can only guess, with what to do; None where some such entity has that relation."""
        ends = self.known.ends(relation, heads=is_head)
        named = shown(self.relations.name(relation))
        if not len(ends):
            return f"no triple has the relation {named}, so the model learnt nothing of it; ask with another"
        if bool((ends == entity).any()):
            return None
        side, name = "head" if is_head else "tail", shown(self.entities.name(entity))
        if self.types is not None:
            own = self.types.of_entity.get(entity, ())
            if own and not set(own) & set(self.types.counts(ends.tolist())):
                return (
                    f"no {side} of {named} has a type of {name} ({', '.join(own)}); its {side}s have: "
                    f"{self.types.listed(ends.tolist())}; {_ASK}"
                )
            return None
        if not self._roles(torch.tensor([entity])) & self._roles(ends):
            return f"no {side} of {named} has any relation in common with {name}; {_ASK}"
        return None

    def _roles(self, entities: torch.Tensor) -> set[tuple[int, int]]:
        """Which relations they have in training, as head (0) or as tail (1)."""
        train = self.train.cpu()
        found: set[tuple[int, int]] = set()
        for column, side in ((0, 0), (2, 1)):
            relations: list[int] = train[torch.isin(train[:, column], entities), 1].tolist()
            found |= {(relation, side) for relation in relations}
        return found
