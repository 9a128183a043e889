"""`quaere learn`: the plan first, lines of progress, the result, JSON, and a dry run."""

import json

import pytest
from msgspec import structs

from documented_json import check_printed
from learned import learned as make_learned
from learning_runs import SMALL, let_write, make_place, write_pages
from quaere.api.learned import Update
from quaere.cli import learn
from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval
from quaere.search.changed_documents import ChangedDocuments
from quaere.warmup.documents.stale_questions import Retired


@pytest.fixture(scope="module")
def words(weighing_paths, tmp_path_factory):
    """The words of a command that learns within a second."""
    folder = tmp_path_factory.mktemp("learn")
    given = make_place(weighing_paths, folder)
    settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    return [str(word) for word in ("learn", weighing_paths[0].parent / "corpus.jsonl", *options, *settings)], folder


def test_the_plan_comes_first_and_the_result_last(words, capsys):
    command, folder = words
    assert main(command) == 0
    said = capsys.readouterr()
    notes = "".join(said.err.split())
    places = [
        notes.index("".join(part.split())) for part in ("documents: ", "memory: ", "indexing", "reinforcing; watch")
    ]
    assert places == sorted(places)
    lines = said.out.splitlines()
    assert lines[0].startswith("exact match before ") and lines[1].startswith("gain ")
    assert "points on 8 questions held back" in lines[1]
    assert "not shown to be better: the agent is the model before reinforcement" in lines
    assert "steps: 2" in lines
    assert "questions: 32 single; searches: 32 need 1" in lines and "examples of the questions given:" in lines
    shares = ("rightly refused, of those whose answer was hidden from the search (8): ", "answered all the same, ")
    assert all(line.startswith(f"  {share}") for line, share in zip(lines[2:4], shares, strict=True))
    assert all(line.count(" [") == 2 for line in lines[2:5])
    assert f"--index {folder}/out/index --model {folder}/out/agent" in said.out
    assert lines[-1] == f"read about it:   {folder}/out/report.html"


def test_json_has_notes_and_the_result(words, capsys):
    command, folder = words
    (folder / "out" / "after.json").unlink()  # something is left to do, so the plan is told
    assert main([*command, "--json", "--anyway"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["event"] for line in lines[:-1]} == {"note"}
    assert lines[-1]["event"] == "done" and lines[-1]["agent"] == f"{folder}/out/agent" and lines[-1]["is_trained"]
    check_printed("learn", *lines)
    assert lines[-1]["index"] == f"{folder}/out/index"


def test_a_dry_run_shows_the_plan_and_questions_and_keeps_nothing(words, tmp_path, monkeypatch, capsys):
    let_write(monkeypatch)
    command = [word for word in words[0] if not word.endswith("questions.jsonl") and word != "--questions"]
    command[1] = str(write_pages(tmp_path / "pages"))
    command += ["--out", str(tmp_path / "other"), "--dry-run"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "reinforcement  search-r1, at most 2 steps of 4 questions x 8 attempts" in said
    assert "20 questions, as they would be practised on:" in said and said.count("Who built ") == 20
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"plan", "questions"}
    assert found["plan"]["steps"] == 2 and len(found["questions"]) == 20
    assert not (tmp_path / "other").exists()


def test_a_loss_is_called_one(tmp_path):
    lines = learn.describe_learned(make_learned(tmp_path, rights=(44, 20)))
    assert "worse: the agent is the model before reinforcement" in lines


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--set", "solver.batch"], "a setting must have the form KEY=VALUE"),
        (["--recipe", "search-r2"], "did you mean search-r1?"),
        (["--set", "solver.batch=0"], "solver.batch must be at least 1"),
        (["--minutes", "-1"], "minutes must be above 0"),
    ],
)
def test_bad_input_is_one_clear_line(words, tmp_path, capsys, more, said):
    try:
        code = main([*words[0], "--out", str(tmp_path / "out"), *more])
    except SystemExit as error:  # of the parser
        code = error.code
    printed = capsys.readouterr().err
    assert code == 2 and said in printed and printed.count("\n") <= 2 and not (tmp_path / "out").exists()


def test_settings_are_read_as_yaml():
    assert learn.read_assignments(["form.facts=[1, 1]", "engine.mode=fast"]) == {
        "form.facts": [1, 1],
        "engine.mode": "fast",
    }
    with pytest.raises(BadInput, match="KEY=VALUE"):
        learn.read_assignments(["=1"])


def test_an_update_is_printed_with_what_it_retired(words, tmp_path, capsys):
    command = [*words[0], "--out", str(tmp_path / "out"), "--update"]
    assert main(command) == 2 and "has nothing that was learned" in capsys.readouterr().err
    assert main([*command, "--dry-run"]) == 2 and "--update refreshes one" in capsys.readouterr().err
    retired = [Retired("halm#0:16", "Who built Halm?", "Venn", "halm.md", "its evidence is gone")]
    found = Update(
        documents=ChangedDocuments(("oss.md",), ("halm.md",), (), 20),
        num_checked=3,
        retired=retired,
        num_new=4,
        regression=Interval(-0.2, -0.3, -0.1, 40),
        gain=None,
        is_worse=True,
    )
    made = structs.replace(make_learned(tmp_path), update=found, is_trained=False)
    lines = learn.describe_learned(made)
    assert "documents: 1 added, 1 changed, 0 removed; 20 now" in lines
    assert "old questions held back (40): -20.0 [-30.0, -10.0] points" in lines
    assert "the old questions held back are answered worse: the agent is the old one" in lines
    assert "3 checked again, 1 retired, 4 new" in lines
    assert "  retired: Who built Halm? 'Venn' (halm.md: its evidence is gone)" in lines
    assert "examples of its own questions:" in lines
    assert not any("examples" in line for line in learn.describe_learned(structs.replace(made, examples=[])))
    lines = learn.describe_learned(structs.replace(made, is_trained=True))
    assert any(line.endswith("the agent is the new one all the same (--anyway)") for line in lines)
    fine = structs.replace(found, is_worse=False)
    assert "the agent is the new one" in learn.describe_learned(structs.replace(made, update=fine, is_trained=True))
