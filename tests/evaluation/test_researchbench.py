"""DeepResearch Bench: a made-up folder of its format is read, and a broken one refused in one line."""

import pytest

from quaere.errors import BadInput
from quaere.evaluation.reports.criteria import DIMENSIONS, read_bench
from quaere.rollout.question_files import read_questions
from reported import QUERIES, write_bench
from reported import bench_criteria as criteria


def test_prompts_with_their_criteria(tmp_path):
    bench = read_bench(write_bench(tmp_path / "bench"))
    assert [(item.question.id, item.language, item.topic) for item in bench.questions] == [
        ("1", "en", "Bridges"),
        ("2", "zh", "Rivers"),
        ("3", "en", "Rivers"),
    ]
    found = bench.criteria.find("", "奥斯河从哪里发源？")
    assert found is bench.criteria.find("2", "?")
    assert found.names == ("comprehensiveness", "insight", "instruction_following", "readability")
    assert [one.weight for one in found.dimensions] == [0.3, 0.4, 0.2, 0.1]
    assert [(one.text, one.explanation, one.weight) for one in found.dimensions[0].criteria] == [
        ("Names", "Names all.", 0.7),
        ("Dates", "", 0.3),
    ]


def test_language_limit_and_question_file(tmp_path):
    folder = write_bench(tmp_path / "bench")
    english = read_bench(folder, "en")
    assert [item.question.id for item in english.questions] == ["1", "3"]
    assert english.criteria.find("2", "奥斯河从哪里发源？") is None
    english.write_questions(tmp_path / "prompts.jsonl")
    assert [(one.id, one.text) for one in read_questions(tmp_path / "prompts.jsonl")] == [
        ("1", QUERIES[0]["prompt"]),
        ("3", QUERIES[2]["prompt"]),
    ]


@pytest.mark.parametrize(
    ("queries", "rows", "said"),
    [
        ([], None, "contains no prompt"),
        ([{"id": 1}], [], "line 1: Object missing required field `prompt`"),
        ([QUERIES[0], QUERIES[0]], None, "line 2: the id 1 occurs twice"),
        ([QUERIES[0]], [], "no criteria for prompt 1"),
        ([QUERIES[1]], None, "no prompt in the language en; its languages are zh"),
        ([QUERIES[0]], [criteria(QUERIES[0], dimension_weight={"insight": 1})], "must name the same dimensions"),
        ([QUERIES[0]], [criteria(QUERIES[0], dimension_weight=dict.fromkeys(DIMENSIONS, -1))], "weights must be"),
    ],
)
def test_a_broken_bench_is_refused_in_one_line(tmp_path, queries, rows, said):
    with pytest.raises(BadInput, match=said):
        read_bench(write_bench(tmp_path / "bench", queries, rows), "en")


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(BadInput, match=r"is not a DeepResearch Bench folder: it has no query.jsonl"):
        read_bench(tmp_path)
