"""Printed commands work when they are pasted, whatever the names of files and the width of the terminal."""

import shlex

import pytest

from quaere.cli.main import main
from quaere.records import Candidate, Episode, Question, SolveTask
from quaere.runs import Run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "30")
    notes = tmp_path / "my notes"
    notes.mkdir()
    (notes / "halm.md").write_text("# Halm bridge\n\nOrsolya Venn built the Halm bridge in 1702.\n")
    return tmp_path


def pasted(said):
    """The words of the last command in what was said, without the program's name."""
    (line,) = [line for line in said.splitlines() if "quaere " in line][-1:]
    return shlex.split(line[line.rindex("quaere ") :])[1:]


def test_the_commands_that_follow_an_index(folder, capsys):
    assert main(["index", "my notes", "--out", "my index"]) == 0
    assert main(pasted(capsys.readouterr().out)) == 0
    assert main(["search", "Halm", "--index", "my notes"]) == 2
    assert pasted(capsys.readouterr().err) == ["index", "my notes", "--out", "INDEX"]
    assert main(["search", "Halm", "--index", "no index"]) == 2
    assert pasted(capsys.readouterr().err) == ["index", "FOLDER", "--out", "no index"]
    assert main(["index", "my notes", "--update", "my index"]) == 2
    assert "quaere index --update 'my index', or quaere index SOURCE --out 'my index'" in capsys.readouterr().err


def test_the_commands_that_follow_questions_and_reports(folder, capsys):
    assert main(["index", "my notes", "--out", "my index"]) == 0
    assert main(["questions", "--index", "my index", "--num", "1", "--out", "my questions.jsonl"]) == 0
    report = pasted(capsys.readouterr().out)
    assert report == ["report", "--questions", "my questions.jsonl", "--index", "my index"]
    assert main([*report, "--runs", "my runs of reports"]) == 0
    run = pasted(capsys.readouterr().out)
    assert main(run) == 0
    words = pasted(capsys.readouterr().out)
    assert words[:2] == ["runs", "show"] and words[-1] == "EPISODE"
    assert main([*words[:-1], "--metrics", "*"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("quaere: run report-") and said.splitlines()[0].endswith(" has no metrics")
    assert main(pasted(said)) == 0
    capsys.readouterr()
    assert main(["runs", "show", run[-1], "--chart"]) == 2
    assert pasted(capsys.readouterr().err)[2] == run[-1]


def test_a_folder_without_a_world_is_not_named_as_the_place_of_one(folder, capsys):
    assert main(["questions", "--world", "my notes", "--out", "q.jsonl"]) == 2
    assert "try: quaere world --out WORLD\n" in capsys.readouterr().err
    assert main(["questions", "--world", "my world", "--out", "q.jsonl"]) == 2
    assert pasted(capsys.readouterr().err) == ["world", "--out", "my world"]


def test_commands_among_other_lines_are_whole(folder, capsys):
    (folder / "my \x1b[2J notes").mkdir()
    assert main(["doctor", "--index", "my \x1b[2J notes"]) == 2
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert pasted(printed) == ["index", "my ␛[2J notes", "--out", "INDEX"]
    with Run.create(folder / "my runs of today" / "first", "evolve"):
        pass
    assert main(["runs", "show", "my runs of today/first"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "take the model out with" in line]
    assert pasted(lines[0]) == ["export", "my runs of today/first", "--merge", "--out", "DIR"]


MADE = "my other runs/it's-1"
ASKED = ["runs show it's-1", "runs show it's-1 --episodes", "runs show it's-1 --chart"]
ASKED += ["runs show it's-1 --metrics nosuch", "runs show nosuch"]
ASKED += ["curriculum it's-1", "curriculum it's-1 show nosuch", "curriculum it's-1 clear nosuch"]
ASKED += ["export nosuch --out DIR", "view nosuch", "curriculum it's-1 show q-1"]


@pytest.mark.parametrize("line", ASKED)
def test_commands_about_runs_of_another_folder_name_it(folder, capsys, line):
    """Also in a narrow terminal, and whether they are printed after a result or as the hint of an error."""
    with Run.create(folder / MADE, "evolve") as run:
        run.log_metrics(1, {"reward/mean": 0.5})
        task = SolveTask(Question("e-1", "Who built it?"))
        run.add_episode(Episode("e-1", task, "tags", "tiny", 7, (), (), None, "turn_limit"))
        run.add_candidates([Candidate("q-1", 1, 0, "e-1", "halm", 1, "Who built it?", "Venn", 1, 2)])
    code = main([*line.split(), "--runs", "my other runs"])
    captured = capsys.readouterr()
    words = pasted(captured.err if code else captured.out)
    assert MADE in words or words == ["runs", "list", "--runs", "my other runs"]
    stand_ins = {"EPISODE": "e-1", "ID": "q-1"}
    assert main([stand_ins.get(word, word) for word in words]) == 0


def test_a_run_that_is_the_working_directory_has_a_name(folder, monkeypatch, capsys):
    with Run.create(folder / "first", "evolve"):
        pass
    monkeypatch.chdir(folder / "first")
    assert main(["curriculum", ".", "show", "nosuch"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("quaere: run first has no candidate nosuch\n")
    assert main(pasted(said)) == 0
