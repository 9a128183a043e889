"""No command writes its result over a file that it reads."""

import pytest

from quaere.cli.main import main

CLAIM = '{"question": "Who built it?", "answer": "Venn", "answers": ["Venn"], "evidence": "Venn built it."}\n'


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "mine.jsonl", "--model", "M", "--out", "mine.jsonl"],
        ["verify", "mine.jsonl", "--model", "M", "--out", "./link.jsonl"],
        ["eval", "--model", "M", "--closed-book", "--questions", "mine.jsonl", "--items", "mine.jsonl"],
        ["grade", "mine.jsonl", "--out", "mine.jsonl"],
        ["grade", "run", "--facts", "mine.jsonl", "--out", "mine.jsonl"],
    ],
)
def test_a_result_does_not_replace_what_was_read(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text(CLAIM)
    (tmp_path / "link.jsonl").symlink_to("mine.jsonl")
    assert main(words) == 2
    said, hint = capsys.readouterr().err.splitlines()
    assert said == f"quaere: {words[-2]} {words[-1].removeprefix('./')} is a file that is read"
    assert hint == "  try: name another file to write"
    assert (tmp_path / "mine.jsonl").read_text() == CLAIM
