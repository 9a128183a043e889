"""`benchmarks/hold_back.py`: questions on two sides by their documents."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def split(monkeypatch, tmp_path):
    """The ids to practise on and those held back, of questions with these rows; and what was printed."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hold_back

    def run(rows):
        files = [tmp_path / name for name in ("all.jsonl", "practice.jsonl", "held.jsonl")]
        files[0].write_text("".join(json.dumps(row) + "\n" for row in rows))
        monkeypatch.setattr(
            sys, "argv", ["", *map(str, files[:1]), "--practice", str(files[1]), "--held", str(files[2])]
        )
        hold_back.main()
        return [[json.loads(line)["id"] for line in file.read_text().splitlines()] for file in files[1:]]

    return run


def row(name, *documents, **more):
    return {"id": name, "evidence": [{"doc_id": document} for document in documents], **more}


def test_a_question_is_on_the_side_of_its_documents(split, capsys):
    # The SHA-256 of "e.md" begins with a, of "c#.md" with 9, of "a/one.md" with 0 and of "c" with 2.
    rows = [
        row("a/one.md#0:4", "a/one.md"),
        row("e.md#2:7", "e.md"),
        row("both", "a/one.md", "e.md"),
        row("a/one.md#0:4-unanswerable", kind="unanswerable"),
        row("e.md#3:1-unanswerable", kind="unanswerable"),
        row("c#.md#3:1-unanswerable", kind="unanswerable"),  # its second # begins the passage's number
        row("q7", kind="unanswerable"),  # an id of another program
        row("q8"),
    ]
    practice, held = split(rows)
    assert practice == ["e.md#2:7", "e.md#3:1-unanswerable", "c#.md#3:1-unanswerable"]
    assert held == ["a/one.md#0:4", "a/one.md#0:4-unanswerable"]
    assert capsys.readouterr().out == "3 to practise on, 2 held back, 3 left out\n"


def test_questions_without_evidence_are_refused(split, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        split([row("q7"), row("q8")])
    assert ended.value.code == 2 and [path.name for path in tmp_path.iterdir()] == ["all.jsonl"]
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith("all.jsonl: no question is about documents of one side only, or none has evidence")
