"""Per-question results in files: what is kept, the same bytes again, and files that are none."""

import gzip
import hashlib
import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.errors import BadInput
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.items import Item, items_name, read_items, write_items
from quaere.evaluation.qa.scores import (
    Evaluation,
    ItemEvaluation,
    QuestionScore,
    read_scored,
    score_answering,
    write_evaluation,
)
from quaere.records import Evidence


def score(name, right=1.0, **more):
    found = dict(answer="Venn", f1=right, end="answered", num_turns=2, num_malformed=0, num_searches=1, num_tokens=40)
    return QuestionScore(name, f"Who built {name}?", 1, exact_match=right, search_failed=False, **(found | more))


def test_a_line_has_what_is_needed_and_no_words_of_the_question(tmp_path):
    path = tmp_path / "warm.items.jsonl.gz"
    write_items([score("q1", set="popqa").item, score("q2", 0.0, answer=None, end="turn_limit").item], path)
    first, second = (json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines())
    assert first == {
        "id": "q1",
        "text_hash": hashlib.sha256(b"Who built q1?").hexdigest()[:8],
        "answer": "Venn",
        "exact_match": 1.0,
        "f1": 1.0,
        "end": "answered",
        "num_turns": 2,
        "num_searches": 1,
        "num_tokens": 40,
        "set": "popqa",
        "hops": 1,
    }
    assert (second["answer"], second["end"]) == (None, "turn_limit") and "set" not in second
    assert [file.name for file in tmp_path.iterdir()] == ["warm.items.jsonl.gz"]


texts = st.text(max_size=12)
flags = st.none() | st.booleans()
rates = st.floats(0, 1)
items = st.builds(
    Item,
    exact_match=rates,
    f1=rates,
    id=texts,
    text_hash=texts,
    answer=st.none() | texts,
    set=texts,
    present=flags,
    verbatim=flags,
    supported=flags,
    gold=flags,
    kind=texts,
    right_option=texts,
    option=texts,
    confidence=st.none() | st.floats(0, 1),
)


@settings(max_examples=examples(50))
@given(
    st.lists(items, min_size=1, max_size=6, unique_by=lambda item: item.id), st.sampled_from(["a.jsonl", "a.jsonl.gz"])
)
def test_what_is_written_is_read_again(tmp_path_factory, found, name):
    path = tmp_path_factory.mktemp("items") / name
    write_items(found, path)
    assert read_items(path) == found


def test_the_same_items_give_the_same_bytes_at_any_time_under_any_name(tmp_path, monkeypatch):
    found = [score(f"q{number}").item for number in range(5)]
    write_items(found, tmp_path / "a.jsonl.gz")
    monkeypatch.setattr("gzip.time", SimpleNamespace(time=lambda: 4e9))  # the clock of the process is pytest's too
    write_items(found, tmp_path / "b.jsonl.gz")
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_thousands_of_questions_take_little_room(tmp_path):
    found = [score(f"q{number}", number % 3 == 0, set="popqa", num_tokens=number % 97).item for number in range(3000)]
    write_items(found, tmp_path / "a.jsonl.gz")
    assert (tmp_path / "a.jsonl.gz").stat().st_size < 20 * len(found)


def evaluation(name, *scores):
    return Evaluation(name, "m", {}, score_answering(scores), scores)


def test_kinds_are_stored_and_a_file_without_them_is_compared_by_the_others(tmp_path):
    """Files from before have no kinds; those of the other side are of the same questions."""
    closed = {"kind": "yes/no", "right_option": "yes", "option": "no", "answer": "no"}
    new = [score("a", 0.0, **closed), score("b", 1.0, kind="name"), score("c", 0.0, kind="name")]
    write_items([one.item for one in new], tmp_path / "new.jsonl")
    first, second, _ = (json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines())
    assert {name: first[name] for name in closed} == closed
    assert second["kind"] == "name" and "option" not in second
    write_items([score("a", 1.0).item, score("b", 0.0).item, score("c", 0.0).item], tmp_path / "old.jsonl")
    ours, theirs = (read_scored(tmp_path / f"{name}.jsonl") for name in ("new", "old"))
    assert [(group.name, group.exact_match.num) for group in ours.score.by_kind] == [("yes/no", 1), ("name", 2)]
    assert theirs.score.by_kind == () and theirs.score.constants == ()
    for found, sign in ((compare(ours, theirs), 1), (compare(theirs, ours), -1)):
        assert found.exact_match.mean == 0 and found.open_exact_match.mean == sign * 0.5
        assert {kind: gain.mean for kind, gain in found.by_kind.items()} == {"yes/no": -sign, "name": sign * 0.5}
        assert found.smallest["open_exact_match"] > 0
    assert compare(theirs, theirs).open_exact_match is None and compare(theirs, theirs).by_kind == {}


def test_an_items_file_compares_like_the_evaluation_it_comes_from(tmp_path):
    span = {"span": "Venn built it.", "evidence": Evidence("d", 0, 14, "Venn built it.")}
    ours = evaluation("ours", *(score(f"q{number}", float(number < 3), **span) for number in range(4)))
    base = evaluation("base", *(score(f"q{number}", float(number < 1), **span) for number in range(4)))
    write_items(base.items, tmp_path / "base.items.jsonl.gz")
    write_evaluation(base, tmp_path / "base.json")
    told, whole = read_scored(tmp_path / "base.items.jsonl.gz"), read_scored(tmp_path / "base.json")
    assert isinstance(told, ItemEvaluation) and whole == base
    assert (told.name, told.score) == ("base", base.score)
    assert compare(ours, told) == compare(ours, whole)
    assert compare(ours, told).exact_match.mean == 0.5
    assert compare(told, ours).exact_match.mean == -0.5


def test_questions_of_the_same_id_and_other_words_are_not_paired(tmp_path):
    ours = evaluation("ours", score("q1"))
    other = QuestionScore("q1", "Who else?", 1, "x", 0.0, 0.0, "answered", 1, 0, 0, 3, False)
    write_items([other.item], tmp_path / "other.jsonl")
    assert compare(ours, read_scored(tmp_path / "other.jsonl")) is None


def test_names():
    from pathlib import Path

    assert [items_name(Path(name)) for name in ("r/warm.items.jsonl.gz", "a.b.jsonl", "c.items.jsonl")] == [
        "warm",
        "a.b",
        "c",
    ]


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(BadInput, match=r"must end in .jsonl or .jsonl.gz, not a.csv"):
        write_items([], tmp_path / "a.csv")
    with pytest.raises(BadInput, match="cannot be read"):
        read_items(tmp_path / "none.jsonl.gz")
    line = json.dumps({"id": "q1", "exact_match": 1}) + "\n"
    for text, said in (("", "contains no per-question"), (line, "line 1: not a per-question result"), ("no", "line 1")):
        (tmp_path / "bad.jsonl").write_text(text)
        with pytest.raises(BadInput, match=said):
            read_items(tmp_path / "bad.jsonl")
    (tmp_path / "bad.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(BadInput, match="damaged"):
        read_items(tmp_path / "bad.jsonl.gz")
    write_items([score("q1").item, score("q1").item], tmp_path / "twice.jsonl")
    with pytest.raises(BadInput, match="two results with the same question id"):
        read_items(tmp_path / "twice.jsonl")
