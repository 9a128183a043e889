"""`benchmarks/split_chains.py`: no fact is both in a lesson and left over."""

from pathlib import Path

from quaere.api.checked_questions import read_checked, write_lines
from quaere.warmup.documents.checked_question import CheckedQuestion

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def question(name, kind):
    num = 2 if kind == "chain" else 1
    return CheckedQuestion(name, f"Who is {name}?", ("Venn",), kind, num, num, num, ())


def test_facts_that_end_a_chain_are_lessons(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import split_chains

    asked = [question("a#0:1", "single"), question("b#0:2", "single"), question("c#0:3-9>b#0:2", "chain")]
    asked += [
        question("a#0:1|b#0:2", "comparison"),
        question("d#0:4-6>e#0:5", "chain"),
        question("a#0:1:choice", "choice"),
    ]
    write_lines(tmp_path / "asked.jsonl", asked)
    lessons, facts = tmp_path / "lessons.jsonl", tmp_path / "facts.jsonl"
    passed = [question("i0g-1>a#0:1", "chain"), question("a#0:1", "single")]
    write_lines(tmp_path / "passed.jsonl", passed)
    words = ["split_chains.py", str(tmp_path / "asked.jsonl"), "--lessons", str(lessons), "--facts", str(facts)]
    monkeypatch.setattr("sys.argv", words)
    split_chains.main()
    assert [one.id for one in read_checked(lessons)] == ["c#0:3-9>b#0:2", "d#0:4-6>e#0:5", "b#0:2"]
    assert [one.id for one in read_checked(facts)] == ["a#0:1"]
    assert "2 chains, 1 facts" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", [*words[:2], str(tmp_path / "passed.jsonl"), *words[2:]])
    split_chains.main()
    assert {one.id for one in read_checked(lessons)} == {*(one.id for one in (asked[1], asked[2], asked[4], *passed))}
    assert read_checked(facts) == []
