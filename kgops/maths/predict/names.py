"""Finds entities and relations by what people type: label, readable name or id, in any case, `_` or a space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from kgops.errors import BadInput
from kgops.maths.graphs.vocabulary import Vocabulary, is_id, shown
from kgops.workloads.graphs.names import close_to, folded

_MOST_AMBIGUOUS = 5  # labels listed that have one name


def did_you_mean(offered: Iterable[str]) -> str:
    """The end of a sentence that says what is unknown."""
    named = " or ".join(map(shown, offered))
    return f": did you mean {named}?" if named else "."


class NamedVocabulary:
    """The `kind` is entity or relation; `names`: label → readable name, for those that have one."""

    def __init__(self, kind: str, vocabulary: Vocabulary, names: Mapping[str, str]) -> None:
        self.kind, self.vocabulary, self.names = kind, vocabulary, names

    def label(self, number: int) -> str:
        return self.vocabulary.labels[number]

    def name(self, number: int) -> str:
        """The readable name; the label where there is none."""
        label = self.label(number)
        return self.names.get(label, label)

    def find(self, text: str, *, suggests: bool = True) -> int:
        """The id of a label, else of a name, else of either in other case, else a number as an id; BadInput names
        what is near, unless searching for that takes too long: a second in 100,000 names."""
        exact = self.vocabulary.id_of(text)
        if exact is not None:
            return exact
        text = text.strip()  # of what is written in a table, or typed
        for spelled, numbers in ((text, self._by_name), (folded(text), self._by_folded)):
            if spelled in numbers:
                return self._only(text, numbers[spelled])
        vocabulary = self.vocabulary
        if is_id(text) and int(text) < len(vocabulary) and vocabulary.takes_ids:
            return int(text)
        names = "label, readable name or id" if vocabulary.takes_ids else "label or readable name"
        raise BadInput(
            f"no {self.kind} is named {shown(text)}{self._nearest(text) if suggests else '.'}",
            hint=f"the graph has {len(vocabulary):,} {self._plural}; names are {names}.",
        )

    def _only(self, text: str, numbers: list[int]) -> int:
        if len(numbers) == 1:
            return numbers[0]
        labels = [shown(self.label(number)) for number in numbers[:_MOST_AMBIGUOUS]]
        more = ", …" if len(numbers) > _MOST_AMBIGUOUS else ""
        raise BadInput(
            f"{len(numbers)} {self._plural} are named {shown(text)}: {', '.join(labels)}{more}.",
            hint="give the label of the one you mean.",
        )

    def _nearest(self, text: str) -> str:
        near = close_to(text, self._by_folded)
        offered = dict.fromkeys(self._as_written(name, self._by_folded[name][0]) for name in near)
        return did_you_mean(offered)

    def _as_written(self, name: str, number: int) -> str:
        label = self.label(number)
        return label if folded(label) == name else self.name(number)

    @property
    def _plural(self) -> str:
        return "entities" if self.kind == "entity" else f"{self.kind}s"

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for number, label in enumerate(self.vocabulary.labels):
            if label in self.names:
                numbers.setdefault(self.names[label], []).append(number)
        return numbers

    @cached_property
    def _by_folded(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for number, label in enumerate(self.vocabulary.labels):
            for spelled in {folded(label), folded(self.names.get(label, label))}:
                numbers.setdefault(spelled, []).append(number)
        return numbers
