"""Question files: what is kept of a line."""

import json

import msgspec
import pytest

from quaere.errors import BadInput
from quaere.records import Question, SolveTask
from quaere.rollout.questions import read_questions


def read(tmp_path, *rows):
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_questions(tmp_path / "questions.jsonl")


def test_the_set_and_the_gold_documents_are_kept(tmp_path):
    row = {"id": "7", "question": "Who?", "answers": ["Venn"], "set": "popqa", "gold_ids": ["Halm", "Oss"]}
    assert read(tmp_path, row) == [Question("7", "Who?", ("Venn",), set="popqa", gold_ids=("Halm", "Oss"))]


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


def test_a_question_stored_before_there_were_sets_still_reads():
    task = SolveTask(Question("q", "Who?", ("Venn",), 1))
    stored = msgspec.to_builtins(task)
    del stored["question"]["set"], stored["question"]["gold_ids"]
    assert msgspec.convert(stored, SolveTask) == task
