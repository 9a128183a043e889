"""Columns of data sets: how authors name and nest questions and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.rollout.question_files import find_columns


def read(row: dict[str, Any]) -> Any:
    columns = find_columns(list(row))
    assert columns is not None
    return columns.read(row)


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        pytest.param(
            {"id": "test_0", "question": "Who?", "golden_answers": ["Venn", "O. Venn"]}, "Venn|O. Venn", id="FlashRAG"
        ),
        pytest.param({"question": "Who?", "answer": ["Venn", "O. Venn"]}, "Venn|O. Venn", id="NQ open"),
        pytest.param(
            {"_id": "5a", "question": "Who?", "answer": "Venn", "supporting_facts": {"title": ["Halm"]}},
            "Venn",
            id="HotpotQA",
        ),
        pytest.param(
            {"id": "1", "question": "Who?", "answers": {"text": ["Venn", "Venn"], "answer_start": [3, 9]}},
            "Venn",
            id="SQuAD",
        ),
        pytest.param(
            {"question": "Who?", "answer": {"value": "Venn", "aliases": ["O. Venn"], "normalized_value": "venn"}},
            "Venn|O. Venn",
            id="TriviaQA",
        ),
        pytest.param(
            {"question": "Who?", "possible_answers": '["Venn", "O. Venn"]', "obj": "Venn"}, "Venn|O. Venn", id="PopQA"
        ),
        pytest.param(
            {"question": "Who?", "answer": "Venn", "answer_aliases": ["O. Venn"]}, "Venn|O. Venn", id="MuSiQue"
        ),
        pytest.param(
            {
                "question": {"text": "Who?", "tokens": ["Who"]},
                "annotations": {"short_answers": [{"text": []}, {"text": ["Venn"]}]},
            },
            "Venn",
            id="Natural Questions",
        ),
        pytest.param(
            {"input": "Who?", "output": [{"answer": "Venn", "provenance": []}, {"answer": ""}]}, "Venn", id="KILT"
        ),
        pytest.param({"Question": "Who?", "Answer": "Venn"}, "Venn", id="Bamboogle"),
        pytest.param({"problem": "Who?", "answer": "Venn", "metadata": "{}"}, "Venn", id="SimpleQA"),
        pytest.param({"question": "Who?", "answer": True}, "yes", id="BoolQ"),
        pytest.param({"question": "Who?", "answer": 1889}, "1889", id="a number"),
        pytest.param({"question": "Who?", "answer": "[Venn] and more"}, "[Venn] and more", id="brackets"),
        pytest.param({"question": "Who?", "answer": '["Venn", 3]'}, '["Venn", 3]', id="a list of other things"),
    ],
)
def test_questions_and_answers_are_found_in_the_shapes_of_known_sets(row: dict[str, Any], answers: str) -> None:
    found = read(row)
    assert (found.question, found.answers) == ("Who?", tuple(answers.split("|")))


def test_ids_and_sets_are_kept_and_columns_of_another_meaning_ignored() -> None:
    found = read({"id": 7, "question": "Who?", "answers": ["V"], "data_source": "nq", "evidence": "a text", "hops": 2})
    assert (found.id, found.set, found.evidence, found.hops) == ("7", "nq", (), 2)
    own = {"doc_id": "Halm", "start": 0, "end": 4, "text": "Venn"}
    assert read({"question": "Who?", "answers": ["V"], "evidence": [own]}).evidence[0].doc_id == "Halm"


@pytest.mark.parametrize("empty", [[], {"text": [], "answer_start": []}])
def test_an_empty_list_of_answers_says_that_there_is_none(empty: object) -> None:
    found = read({"question": "Who?", "answers": empty})
    assert found.names_answers and found.answers == found.to_question("q").answers == ()


@pytest.mark.parametrize("empty", [None, {"value": "", "aliases": []}, {"value": None}, {}, "", [""], " "])
def test_a_row_without_an_answer_is_left_out_where_others_have_one(empty: object) -> None:
    assert read({"question": "Who?", "answers": empty}) is None
    assert read({"question": "Who?", "answer": empty, "answer_aliases": []}) is None
    assert read({"question": " ", "answers": ["Venn"]}) is None
    assert not read({"question": "Who?"}).names_answers  # open questions have no column of answers


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"answer": inner}], ids=["lists", "objects"])
def test_answers_are_found_six_levels_deep_and_no_deeper(wrap: Callable[[object], object]) -> None:
    value: object = "Venn"
    for _ in range(6):
        value = wrap(value)
    assert read({"question": "Who?", "answers": value}).answers == ("Venn",)
    assert read({"question": "Who?", "answers": wrap(value)}) is None


def test_without_a_column_of_questions_there_are_no_columns() -> None:
    assert find_columns(["text", "label"]) is None


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["text", "value", "aliases", "x"]), inner),
)


@given(nested)
def test_any_value_is_read_to_texts_or_left_out(value: object) -> None:
    found = read({"question": "Who?", "answers": value})
    assert found is None or all(answer.strip() == answer != "" for answer in found.answers)
