"""docs/SECURITY.md says nothing that no test holds: each line of its tables names one, and all of those exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "SECURITY.md").read_text()
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def test_each_line_names_a_test() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "held by" not in line]
    assert len(lines) > 20
    for line in lines:
        assert NAMED.search(line.rpartition(" | ")[2]), line


def test_every_test_that_is_named_exists_and_is_not_left_out() -> None:
    for file, name in NAMED.findall(PAGE):
        text = next(TESTS.rglob(file)).read_text()
        found = re.search(rf"((?:^@.*\n|^[ )].*\n)*)^(?:async )?def {name}\(", text, re.M)
        assert found, f"{file} has no {name}"
        assert "mark.skip" not in found[1], f"{name} is never run"
