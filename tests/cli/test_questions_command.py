"""`quaere questions` from documents, or a world, to a file that others read."""

import json

import pytest

import tiny
from quaere.cli.main import main
from quaere.rollout.question_files import read_questions


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    assert main(["world", "--seed", "3", "--articles", "200", "--questions", "0", "--out", str(root / "world")]) == 0
    assert main(["index", str(root / "world" / "corpus.jsonl"), "--out", str(root / "index")]) == 0
    (root / "halm.md").write_text("# Halm\n\nOrsolya Venn built the Halm bridge in 1702.")
    assert main(["index", str(root / "halm.md"), "--out", str(root / "few")]) == 0
    tiny.model().save_pretrained(root / "model")
    tiny.tokenizer().save_pretrained(root / "model")
    return root


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_from_an_index(place, capsys):
    out = place / "deep" / "open.jsonl"
    words = ["questions", "--index", str(place / "index"), "--num", "25", "--seed", "4", "--out", str(out)]
    assert main(words) == 0
    assert "25 questions" in capsys.readouterr().out
    questions = read_questions(out)
    assert len(questions) == 25 and all(question.text.endswith("?") for question in questions)
    first = out.read_bytes()
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*words, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"] == 25
    assert out.read_bytes() == first
    assert [path.name for path in out.parent.iterdir()] == ["open.jsonl"]


def test_from_a_world_with_what_is_known(place):
    out = place / "gold.jsonl"
    assert main(["questions", "--world", str(place / "world"), "--num", "10", "--out", str(out)]) == 0
    for question, row in zip(read_questions(out), rows(out), strict=True):
        assert question.evidence == () and question.answers == ()  # what is known is not for whoever answers
        assert row["set"] == "evaluation" and row["facts"] and row["id"] == question.id
        assert {"entity", "title", "statement", "evidence"} < set(row["facts"][0])


def test_a_model_that_writes_nonsense_falls_back(place, capsys):
    out = place / "model.jsonl"
    words = ["--index", str(place / "index"), "--num", "4", "--model", str(place / "model"), "--out", str(out)]
    assert main(["questions", *words]) == 0
    shown = capsys.readouterr()
    assert "0 worded by" in shown.out and "4 by forms (the model's: 4 " in shown.out
    assert {row["writer"] for row in rows(out)} == {"template"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num", "0"], "--num must be at least 1"),
        (["--topk", "0"], "--topk must be at least 1"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--temperature", "-1"], "--temperature must be at least 0"),
        (["--num", "1000", "--index", "FEW"], "allow only"),
        (["--minutes", "5"], "--minutes needs --checked"),
        (["--min-right", "2"], "--min-right needs --checked"),
        (["--dropped", "d.jsonl"], "--dropped needs --checked"),
        (["--checked", "--model", "m", "--num", "5"], "--num counts open questions"),
        (["--checked", "--model", "m", "--dropped", "d.xz"], "d.xz: plain text is written, not .xz"),
    ],
)
def test_bad_input_is_one_line(place, tmp_path, capsys, words, said):
    words = [str(place / "few") if word == "FEW" else word for word in words]
    where = ["questions", "--index", str(place / "index"), "--out", str(tmp_path / "q.jsonl")]
    assert main([*where, *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_world_takes_no_model(place, tmp_path, capsys):
    words = ["questions", "--world", str(place / "world"), "--model", "m", "--out", str(tmp_path / "q.jsonl")]
    assert main(words) == 2
    assert "--model works with --index only" in capsys.readouterr().err
    assert main(["questions", "--world", str(tmp_path), "--out", str(tmp_path / "q.jsonl")]) == 2
    assert main(["questions", "--index", str(place / "index"), "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
