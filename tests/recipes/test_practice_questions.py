"""Where given questions come from: files, and runs that wrote their own, with what people said of them."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from quaere.errors import BadInput
from quaere.records import Candidate, Evidence, Question
from quaere.rollout.question_files import read_questions
from quaere.runs import Run, give_verdicts
from quaere.runs import judge as judge_one
from quaere.training.given import QUESTIONS, encode_questions, keep_known, read_source


def candidate(name, iteration=0, reason="", answer="Venn"):
    return Candidate(name, iteration, iteration, name, "Halm", 1, f"Who built {name}?", answer, reason=reason)


def judge(path, kinds):
    with Run.open(path) as run:
        give_verdicts(path, [judge_one(item, kinds[item.id]) for item in run.candidates() if item.id in kinds])


@pytest.fixture
def source(tmp_path):
    with Run.create(tmp_path / "first", "evolve", {"recipe": "drzero"}) as run:
        run.add_candidates([candidate("a"), candidate("b"), candidate("c", reason="never solved")])
        run.add_candidates([candidate("d", iteration=1)])
    return tmp_path / "first"


def test_a_run_gives_its_curriculum_over_all_iterations_as_people_left_it(source, tmp_path):
    assert [question.id for question in read_source(str(source))] == ["a", "b", "d"]
    assert read_source("first", tmp_path)[0] == Question("a", "Who built a?", ("Venn",), 1, facts=1, searches=1)
    judge(source, {"b": "rejected", "c": "accepted"})
    assert [question.id for question in read_source(str(source))] == ["a", "c", "d"]


def test_a_run_that_was_given_questions_gives_them_on(tmp_path):
    given = [Question("q", "Who?", ("Venn",), 2, (Evidence("Halm", 0, 4, "Venn"),), "popqa", ("Halm", "Oss"), 2, 1)]
    with Run.create(tmp_path / "run", "evolve", files={QUESTIONS: encode_questions(given)}):
        pass
    assert read_source(str(tmp_path / "run")) == given == read_questions(tmp_path / "run" / QUESTIONS)


def test_what_cannot_be_learned_from_is_refused(source, tmp_path):
    with pytest.raises(BadInput, match="no questions are given"):
        read_source("")
    with pytest.raises(BadInput, match="nowhere is neither a question file nor a run"):
        read_source("nowhere", tmp_path)
    with Run.create(tmp_path / "asked", "ask"):
        pass
    with pytest.raises(BadInput, match="is a run of `quaere ask`, which writes none"):
        read_source(str(tmp_path / "asked"))
    judge(source, {"a": "rejected", "b": "rejected", "d": "rejected"})
    with pytest.raises(BadInput, match="run first has no questions to train on: it kept none"):
        read_source(str(source))
    rows = [{"question": "Who?", "answers": ["Venn"]}, {"question": "Why?"}, {"question": "How?", "answers": [" "]}]
    (tmp_path / "open.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match="question q2 and 1 more cannot be trained on"):
        read_source(str(tmp_path / "open.jsonl"))
    (tmp_path / "open.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    with pytest.raises(BadInput, match="question q2 cannot be trained on") as caught:
        read_source(str(tmp_path / "open.jsonl"))
    assert "leave them out" in caught.value.hint and "--set solver.abstention.allowed=true" in caught.value.hint
    (tmp_path / "open.jsonl").write_text(json.dumps(rows[1]) + "\n")
    with pytest.raises(BadInput, match="question q1 cannot be trained on") as caught:
        read_source(str(tmp_path / "open.jsonl"))
    assert "each line needs" in caught.value.hint  # a file of questions alone


def test_rows_of_a_table_without_an_answer_are_left_out_of_training(tmp_path):
    rows = [{"question": "Who?", "answers": ["Venn"]}, {"question": "Why?", "answers": []}]
    for name, some in (("some", rows), ("none", rows[1:])):
        table = pyarrow.Table.from_pylist(
            some, pyarrow.schema({"question": pyarrow.string(), "answers": pyarrow.list_(pyarrow.string())})
        )
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    source = str(tmp_path / "some.parquet")
    assert [question.text for question in read_source(source)] == ["Who?"]
    assert [question.text for question in read_source(source, answered=False)] == ["Who?", "Why?"]
    with pytest.raises(BadInput, match="question q1 cannot be trained on") as caught:
        read_source(str(tmp_path / "none.parquet"))
    assert "a data set needs a column called" in caught.value.hint


def test_documents_are_kept_if_all_of_them_can_be_read():
    def read(doc_id):
        if doc_id == "Oss":
            raise BadInput("no document Oss")
        return "Venn built it."

    sentence = Evidence("Halm", 0, 4, "Venn")
    whole = Question("a", "Who?", ("Venn",), evidence=(sentence,), gold_ids=("Halm",))
    partly = Question("b", "Who?", ("Venn",), evidence=(sentence,), gold_ids=("Halm", "Oss"))
    elsewhere = Question("c", "Who?", ("Venn",), evidence=(Evidence("Oss", 0, 4, "Venn"),))
    plain = [Question(name, "Who?", ("Venn",)) for name in ("b", "c")]
    assert keep_known([whole, partly, elsewhere], read) == [whole, *plain]
    assert keep_known([whole, partly, elsewhere], None) == [whole, partly, elsewhere]  # a server's documents
