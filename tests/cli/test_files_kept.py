"""No command writes its result over a file that it reads, or under a name that says it is compressed."""

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


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "mine.jsonl", "--model", "M", "--out", "x.json.gz"],
        ["eval", "--model", "M", "--closed-book", "--questions", "mine.jsonl", "--out", "x.json.gz"],
        ["grade", "mine.jsonl", "--out", "x.json.XZ"],
        ["grade", "--bench", "bench", "--questions-out", "x.jsonl.zst"],
        ["questions", "--index", "index", "--out", "x.jsonl.gz"],
        ["questions", "--index", "index", "--out", "x.parquet"],
    ],
)
def test_no_file_is_named_as_if_it_were_compressed(words, tmp_path, monkeypatch, capsys):
    """Whoever reads it would go by its name, and find it damaged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text(CLAIM)
    assert main(words) == 2
    said, hint = capsys.readouterr().err.splitlines()
    ending = f".{words[-1].rpartition('.')[2]}"
    assert said == f"quaere: {words[-1]}: plain text is written, not {ending}"
    assert hint == f"  try: name it without {ending}"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.jsonl"]
