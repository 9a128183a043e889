"""A world on disk: the promised files, the same bytes everywhere, never a half-written folder."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quaere.cli.main import build_parser
from quaere.errors import BadInput
from quaere.worlds import generate_world, write_world
from quaere.worlds.world import check_destination

PRINT_HASHES = """
from pathlib import Path
from quaere.worlds import generate_world, write_world
for family in ("evaluation", "warmup"):
    manifest = write_world(generate_world(7, 240, family), Path(FOLDER) / family, num_questions=60)
    print(manifest.corpus_sha256, manifest.questions_sha256)
"""
# What seed 7 gives, on every machine and Python version. If it has to change, raise GENERATOR_VERSION.
EXPECTED_HASHES = """
d6c8a3db993228a6c10a08f61de65fe0971803b24bfb6e1da402886ae7d1d30d
719a7959993e84cb4771f8d9254bc26e5e2ec0898e4b0f0199f2d1d9bb112fac
0981cc4cc41bcaaf32263a9391f4fb74b20ec8583fba4b7e694a7e0c04ccbc6b
8c401c0d7e8fca45c55ed8bc052833cafd4131bdd7fc490dfa6072e5e6a3ce85
"""


def run(*arguments: str) -> None:
    args = build_parser("world").parse_args(["world", *arguments])
    args.run(args)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_bytes_are_those_of_the_seed(tmp_path: Path) -> None:
    found = []
    for family in ("evaluation", "warmup"):
        manifest = write_world(generate_world(7, 240, family), tmp_path / family, num_questions=60)
        found += [manifest.corpus_sha256, manifest.questions_sha256]
    assert found == EXPECTED_HASHES.split()


def test_bytes_are_the_same_in_every_process(tmp_path: Path) -> None:
    script = PRINT_HASHES.replace("FOLDER", repr(str(tmp_path)))
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == EXPECTED_HASHES.split()


def test_files_hold_what_the_world_holds(tmp_path: Path) -> None:
    world = generate_world(9, 210)
    manifest = write_world(world, tmp_path / "deep" / "out", num_questions=40)
    out = tmp_path / "deep" / "out"
    assert sorted(path.name for path in out.iterdir()) == ["corpus.jsonl", "questions.jsonl", "world.json"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]  # nothing is left lying about
    corpus = lines(out / "corpus.jsonl")
    assert corpus == [{"id": a.id, "title": a.title, "text": a.text} for a in world.articles()]
    texts = {line["id"]: line["text"] for line in corpus}
    questions = lines(out / "questions.jsonl")
    keys = {"id", "question", "answers", "facts", "searches", "hops", "gold_ids", "evidence", "chain", "set"}
    for line, question in zip(questions, world.questions(40), strict=True):
        assert set(line) == keys
        assert line["question"] == question.text
        assert line["gold_ids"] == [span["doc_id"] for span in line["evidence"]]
        assert line["facts"] == line["searches"] == line["hops"] == len(line["chain"]) == len(line["evidence"])
        assert line["set"] == "evaluation"
        for span in line["evidence"]:
            assert texts[span["doc_id"]][span["start"] : span["end"]] == span["text"]
    described = json.loads((out / "world.json").read_text())
    assert described["seed"] == 9
    assert described["num_articles"] == len(corpus) == sum(described["num_entities"].values())
    assert described["num_facts"] == sum(1 for _ in world.facts())
    assert (
        described["num_questions_by_hops"]
        == described["num_questions_by_facts"]
        == {"1": 10, "2": 10, "3": 10, "4": 10}
    )
    for name in ("corpus", "questions"):
        digest = hashlib.sha256((out / f"{name}.jsonl").read_bytes()).hexdigest()
        assert digest == described[f"{name}_sha256"] == getattr(manifest, f"{name}_sha256")


def test_a_folder_that_is_not_empty_is_refused_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    world = generate_world(1, 200, "warmup")
    with pytest.raises(BadInput, match="is not empty") as refusal:
        write_world(world, tmp_path)
    assert "--force" in refusal.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]
    write_world(world, tmp_path, num_questions=4, force=True)
    first = (tmp_path / "world.json").read_text()
    write_world(generate_world(2, 200, "warmup"), tmp_path, num_questions=4, force=True)
    assert (tmp_path / "world.json").read_text() != first
    assert (tmp_path / "note.txt").read_text() == "mine"
    with pytest.raises(BadInput, match="is a file"):
        write_world(world, tmp_path / "note.txt")


def test_the_place_of_a_world_is_checked_before_it_is_made(tmp_path: Path) -> None:
    full, empty = tmp_path / "full", tmp_path / "empty"
    for folder in (full, empty):
        folder.mkdir()
    (full / "note.txt").write_text("mine")
    check_destination(tmp_path / "new", force=False)
    check_destination(empty, force=False)
    check_destination(full, force=True)
    with pytest.raises(BadInput, match="is not empty"):
        check_destination(full, force=False)
    for force in (False, True):
        with pytest.raises(BadInput, match="is a file"):
            check_destination(full / "note.txt", force)


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    write_world(generate_world(1, 200), tmp_path, num_questions=0)
    assert (tmp_path / "questions.jsonl").read_bytes() == b""


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(what: str, num: int) -> None:
        if num == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_world(generate_world(1, 200), tmp_path / "out", progress=fail)
    assert list(tmp_path.iterdir()) == []


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "world"
    run("--seed", "3", "--articles", "200", "--out", str(out), "--questions", "8", "--family", "warmup")
    assert "200 articles" in capsys.readouterr().out
    run("--seed", "3", "--articles", "200", "--out", str(tmp_path / "again"), "--json", "--family", "warmup")
    captured = capsys.readouterr()
    described = json.loads(captured.out)
    assert described == json.loads((tmp_path / "again" / "world.json").read_text())
    assert described["num_questions"] == 200  # one per article by default
    assert described["corpus_sha256"] == json.loads((out / "world.json").read_text())["corpus_sha256"]
    assert captured.err == ""  # no progress where nobody watches


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--articles", "199"), "200 to 100000 articles, not 199"),
        (("--articles", "100001"), "200 to 100000 articles, not 100001"),
        (("--seed", "-1"), "seed must be 0 or more"),
        (("--questions", "-5"), "questions must be 0 or more"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(arguments: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=complaint) as refusal:
        run("--out", str(tmp_path / "out"), *arguments)
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_unknown_family_is_refused() -> None:
    with pytest.raises(BadInput, match="no family 'nonsense'"):
        generate_world(1, 200, "nonsense")


def test_the_documentation_shows_what_the_generator_writes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text(encoding="utf-8")
    world = generate_world(7, 500)
    article = world.article(world.entities[26])
    assert article.id in page
    quoted = [line[2:] for line in page.splitlines() if line.startswith("> ")]
    for paragraph, shown in zip(article.text.split("\n\n"), quoted, strict=True):
        assert shown == paragraph or (shown.endswith(" ...") and paragraph.startswith(shown[:-4]))
    questions = list(world.questions(40))
    for number in (12, 37, 26, 3):
        assert f"| {questions[number].facts} | {questions[number].text} |" in page
    for hop in questions[26].chain:
        assert hop.evidence.text in page
