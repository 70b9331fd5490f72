"""Fields of filtering in New run: hops, path length and strictness, with what they leave counted meanwhile."""

from __future__ import annotations

import pytest
from driving import Console
from screen_driving import Seen, look
from test_screens_new_run import go_to, opened, turn, write

from kgops.present.drafts import Draft, job_of

RUN = {"run": "1"}


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"n_hops": "3"}, {"n_hops": 3, "path_filtering": False}),
        ({"max_total_path_length": "4"}, {"n_hops": 2, "path_filtering": True, "max_total_path_length": 4}),
        ({"n_hops": "1", "strict": "ends"}, {"strict_hop_constraint": True, "strict_path_filtering": False}),
        (
            {"max_total_path_length": "3", "strict": "both"},
            {"strict_hop_constraint": True, "strict_path_filtering": True},
        ),
    ],
)
def test_a_field_of_filtering_turns_it_on(fields: dict[str, str], settings: dict[str, object]) -> None:
    traced = job_of(Draft("tracin", {**RUN, **fields}))
    assert traced.options["filtering"] is True
    assert {name: traced.settings[name] for name in settings} == settings
    pipeline = job_of(Draft("pipeline", {"data": "nations", **fields}))
    assert pipeline.options["filtering"] is True
    assert {**settings, **pipeline.settings["tracin"]} == pipeline.settings["tracin"] | settings


def test_counts_stand_beside_the_fields_and_the_command_has_their_flags(run_cli: Console) -> None:
    train = ("run", "train", "--dataset", "nations", "--num-epochs", "1", "--embedding-dim", "16")
    assert run_cli(*train, "--embedding-height", "4", "--embedding-width", "4").code == 0

    async def story(seen: Seen) -> None:
        await opened(seen)
        await turn(seen, "workload", "tracin")
        await write(seen, "test_triple", "usa, embassy, china")
        await seen.until_shows("1: ", " · 2: ", "of 1,592 left")
        await go_to(seen, "n_hops")
        await seen.press("right")
        await seen.until_shows("of 1,592 left, about", "filtering 1 hop (asked): ", "--n-hops 1")
        await go_to(seen, "max_total_path_length")
        await seen.press("right", "right")
        await seen.until_shows("1 hop, paths of up to 3 edges (asked): ", "--path-filtering")
        await turn(seen, "strict", "paths")
        await seen.until_shows("--strict-path-filtering")

    look(run_cli.home, story, (250, 40))  # wide, so that no sentence is wrapped
