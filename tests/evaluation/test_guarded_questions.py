"""`benchmarks/guarded_questions.py`: questions that no proposer wrote, asked about by the guards on texts."""

import json
from pathlib import Path

import pytest

from quaere.search.index_build import build_index

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HALM = "The Halm bridge was built by Orsolya Venn in 1702, and it stands in Sall."
SALL = "The Sall mill was built in 1650 and burned down twice."


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import guarded_questions

    return guarded_questions


def make(id, question, answer, span, *, kept=True):
    row = {"id": id, "question": question, "answer": answer, "answers": [answer], "span": span, "hops": 1, "kept": kept}
    return row | {"document_id": "halm.md"}


def test_each_kind_is_counted_by_guard_and_both_sides_are_written(script, tmp_path, capsys):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "halm.md").write_text(f"{HALM}\n\n{SALL}\n")
    build_index(docs, tmp_path / "index")
    rows = [
        make("given-halm#0:4", "Who built the Halm bridge?", "Orsolya Venn", HALM),
        make("given-halm#0:4>sall#0:2", "Who built the bridge in Sall?", "Orsolya Venn", HALM),
        # The sentence is about the other side, and so does not hold the answer.
        make("given-halm#0:4|sall#0:2", "Which is older, the Halm bridge or the Sall mill?", "the Sall mill", HALM),
        # Words that are nowhere in the document.
        make("given-halm#0:5", "Who did erect yonder crossing?", "Orsolya Venn", HALM),
        make("given-halm#0:6", "Who?", "", "", kept=False),
    ]
    (tmp_path / "kept.json").write_text(json.dumps(rows))
    script.main([str(tmp_path / "kept.json"), "--index", str(tmp_path / "index"), "--out", str(tmp_path / "out")])
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    assert table[0] == ["", "questions", "refused", "grounded", "holds_answer"]
    assert table[2:] == [
        ["chain", "1", "0", "0", "0"],
        ["comparison", "1", "1", "0", "1"],
        ["one fact", "2", "1", "1", "0"],
        ["all", "4", "2", "1", "1"],
    ]
    written = [
        [json.loads(line)["id"] for line in (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("passed", "refused")
    ]
    assert written == [[rows[0]["id"], rows[1]["id"]], [rows[2]["id"], rows[3]["id"]]]
