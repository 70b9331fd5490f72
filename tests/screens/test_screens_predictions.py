"""From a question by name to its ranked answers and an explanation, on the screens, with recorded runs behind them."""

import asyncio
import csv
import json
import shutil
import time
from pathlib import Path

import pytest
from driving import Console
from records import add
from screen_driving import Seen, open_screens
from small_graph import put_graph
from test_screens_new_run import opened, turn, write
from textual.app import App, ComposeResult

from kgops.present.explained_run import as_written, completions
from kgops.present.rows import Piece, Row
from screens.symbols import tones_of
from screens.widgets.lines import Lines
from storage import runs
from storage.database import Connection


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a trained model of the smallest graph; its folder has the graph."""
    console = Console(tmp_path_factory.mktemp("template") / "kgops", tmp_path_factory.mktemp("graph"))
    put_graph(console.cwd)
    small = ("--embedding-dim", "16", "--output-channels", "2", "--num-epochs", "4", "--device", "cpu")
    files = [word for name in ("train", "valid", "test") for word in (f"--{name}", f"{name}.txt")]
    console.must("run", "train", *files, *small)
    return console.home


@pytest.fixture
def trained_home(home: Path, template: Path) -> Path:
    shutil.copytree(template, home, dirs_exist_ok=True)
    return home


async def asks(seen: Seen, entity: str, relation: str, *, is_known: bool = True) -> None:
    """From the dashboard's first run. Behind a known entity the relation is asked for at once."""
    await seen.until_shows("RECENT", "train")
    await seen.press("P", shows=("QUESTION", "predictions of 1"))
    await seen.press("enter")
    await types(seen, "entity", entity)
    if not is_known:
        await seen.until_typed()
        await seen.press("down", "enter")
    await types(seen, "relation", relation)
    await seen.until_typed()


async def types(seen: Seen, field: str, text: str) -> None:
    await seen.until_typing(field)
    await seen.press(*text, "tab", "enter")


async def test_a_finished_training_leads_on(trained_home: Path, run_cli: Console) -> None:
    """New run begins with its job, influences with a TracIn run of it, and evaluating is one key."""
    async with open_screens(trained_home, shows=("RECENT", "train")) as seen:
        await seen.press("enter")
        await seen.until_shows("n change and start", "i trace a prediction", "P ask the model", "E evaluate")
        await seen.press("n", shows="output_channels=")
        assert seen.row_of("epochs").split()[1] == "4"
        assert seen.row_of("dimensions").split()[1] == "16"
        await seen.press("escape", shows="Record")
        await seen.press("i", shows="a training run with checkpoints")
        assert seen.row_of("run ").split()[1] == "1"
        await seen.press("escape", shows="Record")
        await seen.press("E", shows=("2 evaluate model of run 1  ✓ succeeded", "QUALITY"))
    assert runs_of(run_cli) == ["evaluate", "train"]


async def test_data_of_earlier_runs_come_first_and_runs_can_be_traced(
    trained_home: Path, run_cli: Console
) -> None:
    train = Path(run_cli.show(1)["job"]["train"]["train"])
    left = f"of {len(train.read_text().splitlines())} left"
    async with open_screens(trained_home, (250, 40)) as seen:  # wide, so that no sentence is wrapped
        await opened(seen)
        assert str(train.parent) in seen.row_of("data")
        await seen.until_shows("time: ", "from 1 run here")
        await turn(seen, "workload", "tracin")
        await seen.until_shows("kgops tracin --run 1")
        await write(seen, "test_triple", "MONDO:8, treats, MONDO:2")
        await seen.until_shows("1: ", " · 2: ", left)
        await seen.go_to("n_hops")
        await seen.press("right", shows=(f"{left}, about", "filtering 1 hop (asked): ", "--n-hops 1"))
        await seen.go_to("max_total_path_length")
        await seen.press("right", "right")
        await seen.until_shows("1 hop, paths of up to 3 edges (asked): ", "--path-filtering")
        await turn(seen, "strict", "paths")
        await seen.until_shows("--strict-path-filtering")


async def test_an_explanation_is_verified_by_one_key_and_a_yes(trained_home: Path, run_cli: Console) -> None:
    assert run_cli("explain", "1", "MONDO:8", "treats", "MONDO:2").code == 0
    async with open_screens(trained_home, shows=("RECENT", "explain")) as seen:
        await seen.press("i", shows=("explanation 2", "--verify retrains without them"))
        await seen.press("V", shows=("to verify the explanations of run 2?", "y yes"))
        await seen.press("y", shows=("explanation 3", "RETRAINED"))
    assert runs_of(run_cli) == ["explain", "explain", "train"]


def runs_of(run_cli: Console) -> list[str]:
    return [run["workload"] for run in json.loads(run_cli("runs", "--json").out)]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_question_by_name_is_answered_and_its_first_answer_explained(
    trained_home: Path, run_cli: Console, size: tuple[int, int]
) -> None:
    async with open_screens(trained_home, size) as seen:
        await asks(seen, "mondo:2", "tre")
        await seen.until_shows("MONDO:2 · treats · ?", "x asks the model")
        await seen.press("x", shows=("ANSWERS", "probability"))
        assert any(" new " in line for line in seen.lines()) and any(
            " train " in line for line in seen.lines()
        )
        await seen.press("enter", shows=("explanation 3", "PREDICTIONS"))
        await seen.until_shows("strongest triples", "EFFECT")
        await seen.press("escape", shows="QUESTION")
        await seen.press("enter")  # it is there already
        await seen.until_shows("explanation 3", "strongest triples")
    assert sorted(runs_of(run_cli)) == ["explain", "predict", "train"]


async def test_a_question_that_was_answered_before_shows_at_once(
    trained_home: Path, run_cli: Console
) -> None:
    question = ("--tail", "MONDO:2", "--relation", "treats")
    assert run_cli("run", "predict", "--run", "1", *question, "--device", "cpu").code == 0
    async with open_screens(trained_home, shows="RECENT") as seen:
        await seen.press("down", "P")  # the training run is below
        await seen.until_shows("predictions of 1")
        await seen.press("right", shows="? · … · …")
        await seen.press("enter")
        await types(seen, "entity", "mondo:2")
        await types(seen, "relation", "treats")
        await seen.until_shows("? · treats · MONDO:2", "ANSWERS")
    assert len(runs_of(run_cli)) == 2


async def test_a_predict_run_opens_with_its_own_answers_and_a_head_is_explained_as_one(
    trained_home: Path, run_cli: Console
) -> None:
    question = ("--tail", "MONDO:2", "--relation", "treats", "--new", "--top-k", "2")
    assert run_cli("run", "predict", "--run", "1", *question, "--device", "cpu").code == 0
    (answers,) = Path(run_cli.show(2)["path"]).glob("results/predictions.csv")
    with answers.open(newline="") as file:
        score = float(next(csv.DictReader(file))["score"])
    async with open_screens(trained_home, shows="RECENT") as seen:
        await seen.press("P", shows=("predictions of 2", "? · treats · MONDO:2", "ANSWERS"))
        assert "answers: new ones alone, the first 2" in seen.text
        await seen.press("enter", shows=("explanation 3", "MONDO:2 (its head)", f"score {score:+.4g}"))


async def test_an_unknown_name_says_what_is_near(trained_home: Path) -> None:
    async with open_screens(trained_home) as seen:
        await asks(seen, "MONDO:22", "treats", is_known=False)
        await seen.press("enter")
        await seen.until_typing()
        await seen.press("x", "enter", shows="no name is 'treatsx'")
        await seen.press("x", shows="no entity is named 'MONDO:22': did you mean")


async def test_an_explain_run_opens_its_explanation_with_picture_and_paths(
    trained_home: Path, run_cli: Console
) -> None:
    triple = ("--triple", "CHEBI:1", "treats", "MONDO:2")
    verified = ("--verify", "--max-facts", "2", "--device", "cpu")
    assert run_cli("run", "explain", "--run", "1", *triple, *verified).code == 0
    async with open_screens(trained_home, (120, 50), shows=("RECENT", "explain")) as seen:
        await seen.press("i")
        await seen.until_shows(
            "CHEBI:1 ╌", "╌▶ MONDO:2", "PATHS", "EFFECT", "RETRAINED", "mean rank of this answer"
        )
        await seen.until_shows("retrained from the start (1 seed)")
    async with open_screens(trained_home, (80, 24), unicode=False, shows=("RECENT", "explain")) as seen:
        await seen.press("i", shows=("without ", "CHEBI:1", "MONDO:2", "EFFECT"))
        assert all(len(line) <= 80 for line in seen.lines())


def test_names_are_completed_in_any_case_from_their_beginning_or_within() -> None:
    names = ("Disease_or_Syndrome", "disaster", "Mental disease", "virus")
    assert completions("DIS", names) == ["Disease_or_Syndrome", "disaster"]
    assert completions("disease or", names) == ["Disease_or_Syndrome"]
    assert completions("sease", names) == ["Disease_or_Syndrome", "Mental disease"]
    assert as_written("mental_DISEASE", names) == "Mental disease" and as_written("x", names) == "x"


class _Table(App[None]):
    """One list that is too high, and too wide for a sign beside its text."""

    tones = tones_of("kgops-dark")

    def __init__(self, rows: list[str]) -> None:
        super().__init__()
        self._rows = rows

    def compose(self) -> ComposeResult:
        yield Lines(id="body", cursor=True)
        yield Lines(id="other", cursor=True)

    def on_mount(self) -> None:
        rows = [Row((Piece(text),), key=text) for text in self._rows]
        for lines in self.query(Lines):
            lines.styles.height = 4
            lines.show(rows)


@pytest.mark.parametrize(
    ("text", "ends"), [("0.4567", " ↓ 6 more"), ("a" * 32 + "0.4567", " ↓"), ("a" * 34 + "0.4567", "… ↓")]
)
def test_no_arrow_makes_a_number_look_like_another(text: str, ends: str) -> None:
    async def story() -> None:
        app = _Table([f"{i}{text[1:]}" for i in range(10)])
        async with app.run_test(size=(40, 10)):
            last = app.query_one("#body", Lines).render_line(3).text
            assert last.endswith(ends)
            assert last.removesuffix(ends).rstrip() == f"3{text[1:]}"[: 40 - len(ends)].rstrip()

    asyncio.run(story())


async def test_only_a_run_that_has_a_model_can_be_asked(home: Path, conn: Connection) -> None:
    made = {1: ("out_of_memory", None), 2: ("failed", "mrr"), 3: ("succeeded", None)}
    for number, (state, metric) in made.items():
        add(conn, number, workload="train")
        conn.execute("UPDATE run SET metric = ? WHERE id = ?", (metric, number))
        runs.end(conn, number, state=state, reason=None, exit_code=1, ended_at=time.time())
    async with open_screens(home, (120, 90), shows=("RECENT", "run 1", "run 3")) as seen:
        for number in made:
            seen.app.screen.query_one("#body", Lines).point_at(number)
            await seen.press("question_mark", shows="KEYS HERE")
            rows = [
                "".join(p.text for p in row.pieces) for row in seen.app.screen.query_one("#body", Lines).rows
            ]
            others = rows.index("KEYS FOR OTHER RUNS")
            asks = next(i for i, row in enumerate(rows) if "Ask the model of this run" in row)
            assert (asks < others) is (number > 1)
            await seen.press("escape", gone="KEYS HERE")
