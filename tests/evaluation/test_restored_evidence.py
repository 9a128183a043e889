"""`benchmarks/restore_evidence.py`: the sentences that the ids of checked questions point to."""

import json
from pathlib import Path

import pytest

from quaere.records import Passage
from quaere.rollout.question_files import read_questions
from quaere.search.index import open_index
from quaere.search.index_build import build_index
from quaere.warmup.documents.askable_facts import find_facts

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TEXT = "The Halm bridge is a bridge over the river Oss. Orsolya Venn of Korrin built it in the spring of 1702."


@pytest.fixture
def restore(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import restore_evidence

    return restore_evidence


def test_the_sentence_of_every_fact_is_found_again(restore):
    passage = Passage("halm#1", "halm", "Halm bridge", TEXT, 40, 40 + len(TEXT))
    facts = list(find_facts(passage))
    assert len({fact.sentence for fact in facts}) == 2
    for fact in facts:
        assert restore.find_sentence(fact.id, {passage.id: passage}) == fact.evidence
    for unknown in ("sall#0:3", "halm#1:9999", "halm#1:", "halm"):
        assert restore.find_sentence(unknown, {passage.id: passage}) is None


def test_a_file_of_questions_gets_its_evidence_back(restore, tmp_path, monkeypatch, capsys):
    rows = [{"id": name, "title": name, "text": text} for name, text in (("Halm bridge", TEXT), ("Oss", "Oss. It is."))]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_index(tmp_path / "corpus.jsonl", tmp_path / "index")
    passage = next(one for one in open_index(tmp_path / "index").passages() if one.doc_id == "Halm bridge")
    first, *_, last = find_facts(passage)
    span = {"doc_id": "Halm bridge", "start": last.evidence.start, "end": last.evidence.end}
    asked = [
        {"id": f"{first.id}>{last.id}", "question": "Who built it?", "answers": ["Venn"], "kind": "chain", "facts": 2},
        {"id": "renamed", "question": "Who?", "answers": ["Venn"], "facts": 1, "evidence": [span]},
        {"id": "moved", "question": "Who?", "answers": ["Venn"], "facts": 1, "evidence": [span | {"end": 999}]},
        {"id": "gone#0:3", "question": "Who?", "answers": ["Venn"], "kind": "single", "facts": 1},
    ]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    out = tmp_path / "whole.jsonl"
    where = [str(tmp_path / "asked.jsonl"), "--index", str(tmp_path / "index"), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["restore_evidence.py", *where])
    restore.main()
    assert "2 questions with evidence, 2 left out" in capsys.readouterr().out
    question, renamed = read_questions(out)
    assert question.evidence == (first.evidence, last.evidence) and question.facts == 2
    assert renamed.evidence == (last.evidence,)
