"""The map of learning, and two runs compared question by question."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.evaluation.intervals import paired_difference
from quaere.rewards.abstention import ABSTENTION
from quaere.runs import Run
from quaere.runs.rows import Outcome
from quaere.viewer.learning_map import MAX_COLUMNS, MAX_STACK, NEVER, Cell, cut_panels, find_learned, lay_out
from viewing import add_scored, open_client, twin, write_eval, write_learning, write_run

RIGHT = "Orsolya Venn"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_learning(folder / "first")
    write_run(folder / "unscored")
    return open_client(folder)


def test_questions_are_sorted_by_when_they_were_learned(client):
    shown = twin(client, "map?of=practised", run="first")
    assert [column["label"] for column in shown["columns"]] == ["1", "2", "3", "4"]
    rows = shown["page"]["items"]
    assert [(row["task"], row["learned"]) for row in rows] == [("q2", 0), ("q1", 1), ("q4", NEVER), ("q3", NEVER)]
    assert [cell["num_right"] for cell in rows[1]["cells"]] == [1, 3, 3, 3] and (
        shown["num_right"],
        shown["num_learned"],
    ) == (2, 1)
    assert not shown["stacks"]


def test_held_back_questions_come_first_and_begin_before_the_first_step(client):
    shown = twin(client, "map", run="first")
    assert (shown["of"], shown["has_both"]) == ("held", True)
    assert [column["label"] for column in shown["columns"]] == ["start", "4"]
    assert [row["task"] for row in shown["page"]["items"]] == ["h2", "h1"]


def test_every_cell_opens_its_attempts(client):
    page = client.get("/run/first/map?of=practised").text
    cells = re.findall(r'<a class="cell (\w+)" href="([^"]*)" title="([^"]*)"', page)
    assert len(cells) == 16 and {state for state, *_ in cells} == {"mixed", "wrong"}
    for _, address, title in cells:
        assert client.get(address.replace("&amp;", "&")).status_code == 200
        assert re.match(r"first, step \d, \d of 4 right: Who built q\d\?", title)
    assert 'href="/run/first/map"' in client.get("/run/first").text


def test_a_run_without_scored_answers_has_no_map(client):
    reply = client.get("/json/run/unscored/map")
    assert reply.status_code == 404 and "no scored answers" in reply.json()["error"]


def test_questions_that_are_practised_once_are_stacked_by_step(tmp_path):
    with Run.create(tmp_path / "run", "evolve") as run:
        for step in (1, 2):
            answers = {f"s{step}-{number}": [RIGHT if number < 40 * step else "x"] for number in range(120)}
            add_scored(run, step, answers | {f"s{step}-a": [ABSTENTION]})
    shown = twin(open_client(tmp_path), "map", run="run")
    assert [len(stack) for stack in shown["stacks"]] == [MAX_STACK, MAX_STACK] and shown["num_left_out"] == 42
    assert not shown["page"]["items"]
    rights = [[row["cells"][0]["num_right"] for row in stack] for stack in shown["stacks"]]
    assert all(sorted(of, reverse=True) == of for of in rights) and sum(rights[0]) < sum(rights[1])
    assert "Few questions were practised twice" in open_client(tmp_path).get("/run/run/map").text


def test_many_steps_are_drawn_in_few_columns_and_many_questions_on_pages(tmp_path):
    outcomes = [
        Outcome(f"e{step}-{task}", f"q{task}", "Who?", "x", step, "solver", int(step > 50), 0)
        for step in range(1, 101)
        for task in range(3)
    ]
    columns, rows = lay_out(outcomes)
    assert len(columns) <= MAX_COLUMNS and columns[0].label == "1–3" and columns[-1].last_step == 100
    assert [cell.num for cell in rows[0].cells] == [3] * 33 + [1]
    assert rows[0].learned == 17  # of the steps 52 to 54: of those from 49 to 51, one is right


@pytest.mark.parametrize(
    ("num_rows", "num_columns", "sizes"),
    [(100, 2, [100]), (304, 2, [25] * 12 + [4]), (2000, 2, [91] * 21 + [89]), (2000, 40, [100] * 20), (0, 2, [])],
)
def test_panels_fill_the_width_of_a_page(num_rows, num_columns, sizes):
    assert [len(panel) for panel in cut_panels(range(num_rows), num_columns)] == sizes


def make_cell(state):
    return None if state is None else Cell(int(state), 0, 1, 1)


@given(st.lists(st.sampled_from([None, True, False]), max_size=12))
def test_a_question_is_learned_from_the_column_on_that_is_right_ever_after(states):
    cells = [make_cell(state) for state in states]
    naive = [at for at, state in enumerate(states) if state and all(other is not False for other in states[at:])]
    assert find_learned(cells) == min(naive, default=NEVER)


@pytest.mark.parametrize(
    ("cell", "state"),
    [
        (Cell(8, 0, 8, 1), "right"),
        (Cell(5, 3, 8, 1), "mixed"),
        (Cell(4, 4, 8, 1), "abstained"),
        (Cell(4, 3, 8, 1), "wrong"),
        (Cell(8, 8, 8, 1), "right"),  # refused rightly
    ],
)
def test_a_cell_is_right_mixed_abstained_or_wrong(cell, state):
    assert cell.state == state


# ----------------------------------------------------------------------------------------------------------- two runs


def write_scored(path, answers, text=""):
    with Run.create(path, "evolve") as run:
        run.log_metrics(1, {"answer/exact_match": 0.5})
        add_scored(run, 1, answers, title=text)


def test_two_runs_differ_by_the_questions_that_only_one_has_right(tmp_path):
    write_scored(tmp_path / "a", {"q1": ["x"], "q2": [RIGHT], "q3": [RIGHT], "q4": ["x"], "q5": ["x"], "q6": ["x"]})
    write_scored(tmp_path / "b", {"q1": [RIGHT], "q2": ["x"], "q3": [RIGHT], "q4": ["x"], "q5": [RIGHT], "q7": ["x"]})
    client = open_client(tmp_path)
    found = twin(client, "/compare?run=a&run=b")["difference"]
    assert found["counts"] == {"gained": 2, "lost": 1, "both": 1, "neither": 1}
    assert [row["tasks"][0] for row in found["rows"]] == ["q1", "q5", "q2", "q3", "q4"]
    expected = paired_difference([1, 0, 1, 0, 1], [0, 1, 1, 0, 0])
    assert (found["difference"]["mean"], found["difference"]["low"]) == (expected.mean, expected.low)
    assert found["rows"][0]["answers"] == ["x", RIGHT]
    page = client.get("/compare?run=a&run=b").text
    assert "5 practised questions" in page and f">{RIGHT}</a>" in page
    assert "Only b" in page and "/run/a/group?task=q1&amp;step=1" in page and "+20.0" in page
    assert twin(client, "/compare?run=b&run=a") == twin(client, "/compare?run=a&run=b")  # the later minus the earlier


def test_questions_of_evaluations_were_not_practised(tmp_path):
    for name, answers in (("a", ["x", RIGHT]), ("b", [RIGHT, RIGHT])):
        write_eval(tmp_path / name, answers)
    page = open_client(tmp_path).get("/compare?run=a&run=b").text
    assert "Of 2 questions that both attempted" in page and "practised" not in page and "different steps" not in page


def test_one_id_for_two_questions_is_no_common_question(tmp_path):
    for name, text in (("a", "now"), ("b", "then")):
        write_scored(tmp_path / name, {"q1": ["x"]}, text)
    client = open_client(tmp_path)
    assert twin(client, "/compare?run=a&run=b")["difference"] is None
    assert "no question in common" in client.get("/compare?run=a&run=b").text
    write_scored(tmp_path / "c", {"q1": ["x"]})
    assert twin(client, "/compare?run=a&run=b&run=c")["difference"] is None


def test_held_back_questions_are_compared_before_practised_ones(tmp_path):
    for name in ("a", "b"):
        write_learning(tmp_path / name)
    found = twin(open_client(tmp_path), "/compare?run=a&run=b")["difference"]
    assert found["is_held_back"] and found["counts"]["both"] == 2
