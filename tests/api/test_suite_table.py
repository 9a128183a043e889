"""The tables of a suite, on rows made by hand."""

import csv
import json

import pytest
from msgspec import structs

from quaere.api.suite_table import Row, make_row, make_tables, print_tables, write_tables
from quaere.evaluation.intervals import Interval
from quaere.evaluation.qa.abstaining import AbstentionScore
from quaere.evaluation.qa.scores import Evaluation, QuestionScore, score_answering


def row(set, method, em, f1=0.5, model="base", differs=(), num_failed=0, **settings):
    means = (Interval(em, em - 0.1, em + 0.1, 100), Interval(f1, f1 - 0.1, f1 + 0.1, 100))
    settings = {"device": "2 CPU cores", "limits": {"topk": 3}, **settings}
    return Row(set, model, method, 100, *means, 1.5, 40.2, 0.98, 90.0, settings, differs, num_failed)


ROWS = [
    row("dev", "rag", 0.3),
    row("test", "rag", 0.4, 0.7),
    row("dev", "cot", 0.2),
    row("test", "cot", 0.1, differs=("index", "questions")),
    row("dev", "ours", 0.9, model="evolved", device="an H200"),
]


def test_a_table_for_each_set_and_their_mean():
    dev, test, mean = make_tables(ROWS)
    assert [dev.title, test.title, mean.title] == ["dev", "test", "mean of 2 sets"]
    assert dev.rows[0] == ("base", "rag", "100", "30.0 [20.0, 40.0]", "50.0 [40.0, 60.0]", "1.50", "40", "98.0", "1.5")
    assert [line[:2] for line in dev.rows] == [("base", "rag"), ("base", "cot"), ("evolved", "ours")]
    assert dev.notes == ["minutes on 2 CPU cores, an H200"]
    # Only what was evaluated on both, on the same footing: EM (30 + 40) / 2, F1 (50 + 70) / 2; sqrt(2) 10 / 2 = 7.1.
    assert list(mean.rows) == [("base", "rag", "35.0 [27.9, 42.1]", "60.0 [52.9, 67.1]")]


def test_a_row_with_another_index_is_never_without_its_mark(tmp_path, capsys):
    said = "* base, cot: with another index and other questions, not comparable with the others"
    print_tables(ROWS)
    write_tables(ROWS, tmp_path)
    for text in (capsys.readouterr().out, (tmp_path / "table.md").read_text()):
        assert said in text and text.count("cot *") == 1
    with (tmp_path / "table.csv").open() as file:
        assert [line["differs"] for line in csv.DictReader(file)] == ["", "", "", "index questions", ""]
    assert json.loads((tmp_path / "table.json").read_text())[3]["differs"] == ["index", "questions"]


def test_abstention_has_a_table_of_its_own_where_it_is_known():
    share = Interval(0.5, 0.4, 0.6, 100)
    found = AbstentionScore(share, None, share, 0.25, ((0.8, 0.25), (1.0, 0.4)))
    tables = make_tables([*ROWS, structs.replace(row("dev", "ours", 0.3), abstention=found)])
    assert [table.title for table in tables] == ["dev", "dev: abstention", "test", "mean of 2 sets"]
    assert tables[1].rows == [("base", "ours", "50.0 [40.0, 60.0]", "", "50.0 [40.0, 60.0]", "25.0")]


def test_failures_are_named():
    (table,) = make_tables([row("dev", "rag", 0.3, num_failed=2)])
    assert table.notes[0] == "* base, rag: the model or a search failed in 2 episodes; each counts as wrong"


def test_questions_without_an_answer_are_named():
    some = structs.replace(row("dev", "rag", 0.3), num_questions=120)  # EM is of 100
    (table,) = make_tables([some])
    assert table.rows[0][2] == "120"  # as in the other forms, and as searches, tokens and answered are of
    assert table.notes == ["20 questions without an answer left out of EM and F1", "minutes on 2 CPU cores"]


def test_the_same_table_in_every_form(tmp_path):
    write_tables(ROWS[:1], tmp_path)
    assert (tmp_path / "table.md").read_text() == (
        "### dev\n\n"
        "| model | method | questions | EM % | F1 % | searches | tokens | answered % | minutes |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| base | rag | 100 | 30.0 [20.0, 40.0] | 50.0 [40.0, 60.0] | 1.50 | 40 | 98.0 | 1.5 |\n"
        "\nminutes on 2 CPU cores\n"
    )
    with (tmp_path / "table.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert (line["exact_match.mean"], line["f1.num"], line["settings.limits.topk"]) == ("0.3", "100", "3")
    (found,) = json.loads((tmp_path / "table.json").read_text())
    assert found["exact_match"]["mean"] == 0.3 and found["settings"]["limits"] == {"topk": 3}


def test_what_only_some_rows_have_leaves_no_empty_columns(tmp_path):
    found = AbstentionScore(Interval(0.5, 0.4, 0.6, 100), None, Interval(0.2, 0.1, 0.3, 100), 0.25, ())
    lacking = structs.replace(found, refused=None)
    rows = [structs.replace(ROWS[0], abstention=one) for one in (None, found, lacking)]
    write_tables(rows, tmp_path)
    with (tmp_path / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["abstention.refused.mean"] for line in lines] == ["", "0.5", ""]
    assert [line["abstention.wrong_at_80"] for line in lines] == ["", "0.25", "0.25"]
    assert not {"abstention", "abstention.refused", "abstention.wrong"} & set(lines[0])


def test_a_row_is_that_of_its_evaluation():
    usual = {"facts": 1, "f1": 0.5, "num_turns": 2, "num_malformed": 0}
    fine, bad = {"end": "answered", "search_failed": False}, {"end": "failed", "search_failed": True}
    scores = [
        QuestionScore(
            id="a", question="?", answer="Venn", exact_match=1.0, num_searches=1, num_tokens=10, **usual, **fine
        ),
        QuestionScore(
            id="b", question="?", answer="Brod", exact_match=0.0, num_searches=2, num_tokens=30, **usual, **bad
        ),
    ]
    found = Evaluation("x", "m", {"weights": "5f", "seconds": 12.5}, score_answering(scores), tuple(scores))
    made = make_row("dev", "base", "rag", found, ())
    assert (made.num_questions, made.exact_match.mean, made.f1.mean) == (2, 0.5, 0.5)
    assert (made.mean_searches, made.mean_tokens, made.answered) == pytest.approx((1.5, 20.0, 0.5))
    assert made.num_failed == 1  # in two ways
    assert made.seconds == 12.5 and made.settings == {"weights": "5f"}
