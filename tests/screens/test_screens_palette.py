"""The palette goes to whatever has a name, and does what it names."""

from driving import Console
from screen_driving import open_screens


async def test_the_palette_does_what_it_names(run_cli: Console) -> None:
    run_cli("run", "exec", "--label", "by name", "--", "true")
    async with open_screens(run_cli.home, (100, 40), shows="RECENT") as seen:
        await seen.press("ctrl+p", shows="Open what is under the cursor")
        await seen.press(*"open", gone="Write a note")
        await seen.press("enter", shows=("1 exec by name  ✓ succeeded", "Record"))


async def test_the_palette_goes_to_runs_gpus_tags_and_saved_filters(run_cli: Console) -> None:
    for label in ("the first", "the second"):
        run_cli("run", "exec", "--label", label, "--", "true")
    run_cli("tag", "1", "paper")
    async with open_screens(run_cli.home, (100, 40), shows=("RECENT", "the second")) as seen:
        await seen.press("colon", "1", shows="run 1 the first")
        await seen.press("enter", shows=("1 exec the first", "Record"))
        await seen.press("colon", *"tag pap", shows="runs with this tag")
        await seen.press("enter", shows=("1 of 2 runs", "the first"))
        assert "the second" not in seen.text
        await seen.press("F", shows='save tag:"paper" as')
        await seen.press(*"mine", "enter", shows="saved as mine")
        await seen.press("escape", "escape", shows="RECENT")
        await seen.press("colon", *"filter mi", shows="filter mine")
        await seen.press("enter", shows="1 of 2 runs")
    listed = run_cli("runs", "--saved", "mine", "--json").json()
    assert [run["label"] for run in listed] == ["the first"]
    unknown = run_cli("runs", "--saved", "mind")
    assert unknown.code == 2
    assert "did you mean 'mine'?" in unknown.err


async def test_the_palette_shows_words_of_people_as_they_are_and_searches_older_runs(
    run_cli: Console,
) -> None:
    run_cli("run", "exec", "--label", "[/red] half [b", "--", "true")
    async with open_screens(run_cli.home, (100, 40), shows=("RECENT", "[/red] half")) as seen:
        await seen.press("colon", *"half", shows=("run 1 [/red] half [b", "history half"))
        await seen.press("down", "enter", shows=("/ half", "[/red] half [b"))
        await seen.press("colon", *"777", shows="history run:777")
        await seen.press("enter", shows="/ run:777")
        await seen.until_gone("half")


async def test_four_keys_say_whether_a_run_fits_a_gpu_that_is_not_here(run_cli: Console) -> None:
    run_cli("run", "exec", "--label", "a t4 in a label", "--", "true")
    async with open_screens(run_cli.home, (120, 40), shows=("RECENT", "a t4 in")) as seen:
        await seen.press("colon", *"t4", shows="plan for t4")
        await seen.press("enter", shows=("what-if: cannot be started", "PLAN  fits an empty Tesla T4"))
