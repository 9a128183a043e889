"""Question files: what is kept of a line."""

import json

import msgspec
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import quaere
from quaere.errors import BadInput
from quaere.records import Question, SolveTask, searches_needed
from quaere.rollout.question_files import read_questions


def read(tmp_path, *rows):
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_questions(tmp_path / "questions.jsonl")


def test_the_set_and_the_gold_documents_are_kept(tmp_path):
    row = {"id": "7", "question": "Who?", "answers": ["Venn"], "set": "popqa", "gold_ids": ["Halm", "Oss"]}
    assert read(tmp_path, row) == [Question("7", "Who?", ("Venn",), set="popqa", gold_ids=("Halm", "Oss"))]


def test_questions_in_the_form_of_flashrag(tmp_path):
    row = {"id": "test_0", "question": "Who?", "golden_answers": ["Venn", "O. Venn"], "metadata": {"type": None}}
    assert read(tmp_path, row) == [Question("test_0", "Who?", ("Venn", "O. Venn"))]
    # Where a file has both, `answers` are Quaere's own.
    assert read(tmp_path, row | {"answers": ["Hask"]})[0].answers == ("Hask",)
    with pytest.raises(BadInput, match=r"line 1: .*golden_answers"):
        read(tmp_path, row | {"golden_answers": "Venn"})


def test_an_answer_alone_is_read_as_from_a_table(tmp_path):
    row = {"id": "7", "question": "Who?", "answer": "Venn", "answer_aliases": ["O. Venn", "Venn"]}  # MuSiQue's form
    assert read(tmp_path, row) == [Question("7", "Who?", ("Venn", "O. Venn"))]
    assert read(tmp_path, {"question": "Who?", "answer": ["Venn", "Hask"]})[0].answers == ("Venn", "Hask")
    # Answers may be empty on purpose: the documents do not say.
    assert read(tmp_path, row | {"answers": []})[0].answers == ()


def test_a_question_to_score_has_answers_if_only_none(tmp_path):
    path = tmp_path / "questions.jsonl"
    for named in ({"answers": []}, {"golden_answers": []}, {"answer": None}, {"answer": "Venn"}):
        read(tmp_path, {"question": "Who?", **named})
        assert len(read_questions(path, to_score=True)) == 1
    assert read(tmp_path, {"question": "Why?", "answers": []}, {"question": "Who?", "anwsers": ["Venn"]})
    with pytest.raises(BadInput, match="the question q2 has no field `answers`"):
        read_questions(path, to_score=True)
    assert read_questions(path, limit=1, to_score=True)
    table = tmp_path / "bare.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"question": "Who?"}]), table)
    assert read_questions(table)[0].answers == ()
    with pytest.raises(BadInput, match="the question q1 has no field `answers`"):
        read_questions(table, to_score=True)


def test_questions_in_the_form_of_browsecomp_plus(tmp_path):
    documents = [{"docid": "12", "url": "https://x", "text": "Venn built it."}, {"docid": 7, "text": ""}]
    row = {"query_id": "769", "query": "Who?", "answer": "Venn", "gold_docs": documents, "negative_docs": documents}
    gold = {"set": "browsecomp-plus", "gold_ids": ("12", "7")}
    assert read(tmp_path, row, row | {"query_id": 8, "gold_docs": []}) == [
        Question("769", "Who?", ("Venn",), **gold),
        Question("8", "Who?", ("Venn",), set="browsecomp-plus"),
    ]
    with pytest.raises(BadInput, match="line 1: Object missing required field `question`"):
        read(tmp_path, {"query_id": "769", "query": "Who?"})


def test_questions_in_the_form_of_search_r1s_parquet(tmp_path):
    """Its test sets are joined, each with ids of its own."""
    accepted = ["Venn", "O. Venn"]
    row = {"id": "test_0", "question": "Who?", "golden_answers": accepted, "data_source": "nq", "metadata": None}
    row |= {"prompt": [{"role": "user", "content": "Answer the given question. Who?"}], "ability": "fact-reasoning"}
    row |= {"reward_model": {"ground_truth": {"target": accepted}, "style": "rule"}, "extra_info": {"index": 0}}
    path = tmp_path / "test.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row, row | {"data_source": "popqa"}]), path)
    first, second = read_questions(path)
    assert first == Question("test_0", "Who?", ("Venn", "O. Venn"), set="nq")
    assert second == structs.replace(first, id="test_0-2", set="popqa")
    assert read_questions(path, limit=1) == [first]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: .*No such file"), (b"{}", "is not a valid Parquet file"), ({"text": "Who?"}, "only text")],
)
def test_parquet_without_questions_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "test.parquet"
    if isinstance(content, dict):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([content]), path)
    elif content:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=said) as refused:
        read_questions(path)
    assert "\n" not in str(refused.value)


def test_browsecomp_plus_is_evaluated_with_its_gold_documents(tmp_path):
    rows = [
        {"docid": "12", "text": "Venn built the Halm bridge.", "url": "https://x"},
        {"docid": 7, "text": "The Oss."},
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = quaere.Index.build(tmp_path / "corpus.jsonl", tmp_path / "index")
    (hit,) = index.search("Halm bridge", 1)
    (question,) = read(tmp_path, {"query_id": 1, "query": "Who?", "answer": "Venn", "gold_docs": [{"docid": "12"}]})
    assert question.gold_ids == (hit.passage.doc_id,)


def test_numbers_and_null_are_taken_as_other_people_write_them(tmp_path):
    numbered, bare = read(
        tmp_path,
        {"question": "Who?", "set": 3, "gold_ids": [12, "x"]},
        {"question": "Why?", "set": None, "gold_ids": None},
    )
    assert (numbered.set, numbered.gold_ids) == ("3", ("12", "x"))
    assert (bare.set, bare.gold_ids) == ("", ())
    with pytest.raises(BadInput, match="line 1"):
        read(tmp_path, {"question": "Who?", "gold_ids": [["x"]]})


def test_a_file_without_questions_and_an_id_that_occurs_twice_are_refused(tmp_path):
    with pytest.raises(BadInput, match=r"contains no question\n"):
        read(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(BadInput, match="contains no question\ntry: each line of a text file is a question"):
        read_questions(tmp_path / "empty.txt")
    with pytest.raises(BadInput, match="line 2: the id 7 occurs twice"):
        read(tmp_path, {"id": "7", "question": "Who?"}, {"id": "7", "question": "Why?"})
    with pytest.raises(BadInput, match="line 2: the id q2 occurs twice"):
        read(tmp_path, {"id": "q2", "question": "Who?"}, {"question": "Why?"})
    with pytest.raises(BadInput, match="line 1: the question is empty"):
        read(tmp_path, {"question": " \t"})


def test_a_question_stored_before_there_were_sets_still_reads():
    task = SolveTask(Question("q", "Who?", ("Venn",), 1))
    stored = msgspec.to_builtins(task)
    for later in ("set", "gold_ids", "facts", "searches"):
        del stored["question"][later]
    assert msgspec.convert(stored, SolveTask) == task


@pytest.mark.parametrize(
    ("row", "facts", "searches"),
    [
        ({"facts": 2, "searches": 1, "hops": 3}, 2, 1),
        ({"facts": 2, "searches": 0}, 2, 0),
        ({"facts": 3}, 3, 3),
        ({"hops": 2}, 2, 2),
        ({"hops": 3, "facts": 2}, 2, 2),
        ({}, 0, 0),
        ({"facts": [{"fact": "The Oss rises at Korrin."}], "searches": None}, 0, 0),
        ({"facts": "The Oss rises at Korrin.", "searches": {"web": 2}}, 0, 0),
        ({"facts": 2.0, "searches": 1.0}, 2, 1),
        ({"facts": 1.5, "searches": True, "hops": 2}, 2, 2),
    ],
)
def test_facts_and_searches_are_read_and_hops_where_a_file_has_nothing_else(row, facts, searches, tmp_path):
    (question,) = read(tmp_path, {"question": "Who?", **row})
    assert (question.facts, question.searches) == (facts, searches)
    assert question.hops == row.get("hops", facts)


@pytest.mark.parametrize("field", ["facts", "searches"])
def test_a_number_in_words_is_refused(field, tmp_path):
    with pytest.raises(BadInput, match=rf"line 1: `{field}` must be a number, not 'two'"):
        read(tmp_path, {"question": "Who?", "answers": ["Venn"], field: "two"})


def test_questions_are_chosen_by_their_facts(tmp_path):
    read(tmp_path, {"question": "Who?", "hops": 3, "facts": 2}, {"question": "Why?", "hops": 2}, {"question": "How?"})
    path = tmp_path / "questions.jsonl"
    assert [question.text for question in read_questions(path, facts=(2,))] == ["Who?", "Why?"]
    with pytest.raises(BadInput, match="no question of 3 or 4 facts"):
        read_questions(path, facts=(3, 4))


@given(st.integers(1, 50))
def test_hops_of_a_proposer_count_the_starting_point_that_its_question_names(hops):
    assert [searches_needed(number) for number in range(5)] == [0, 1, 1, 2, 3]
    assert searches_needed(hops + 1) == hops  # one link more than facts
    assert 1 <= searches_needed(hops) <= hops


def test_a_line_of_lists_in_lists_is_named(tmp_path):
    path = tmp_path / "deep.jsonl"
    path.write_text('{"question": "Who?", "facts": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(BadInput, match="line 1: the JSON is nested too deeply"):
        read_questions(path)


def test_a_text_file_has_a_question_per_line(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(
        '\ufeffWho built it?\n\n  Why?  \n{"id": "7", "question": "When?", "answers": ["1702"]}\n', encoding="utf-8"
    )
    assert read_questions(path) == [
        Question("q1", "Who built it?"),
        Question("q3", "Why?"),
        Question("7", "When?", ("1702",)),
    ]
    path.write_bytes("Où?".encode("cp1252"))
    with pytest.raises(BadInput, match="line 1: not UTF-8"):
        read_questions(path)


def test_bare_questions_in_another_file_are_refused_with_what_to_write(tmp_path):
    (tmp_path / "questions.jsonl").write_text("Who built it?\n")
    with pytest.raises(BadInput, match="line 1") as caught:
        read_questions(tmp_path / "questions.jsonl")
    assert '{"question": "...", "answers": ["..."]}' in caught.value.hint and ".txt" in caught.value.hint
