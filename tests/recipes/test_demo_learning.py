"""The second part of `make demo`, by the commands of the Makefile: a model made from nothing learns to search.

It is shown how to search in a hamlet, where a house's name finds its only record, and asks itself questions about a
village, where a query must also say which of four records is meant.
"""

import json
import shutil

import pytest

from documented import ROOT, read_document, split_commands
from quaere.cli.main import main

COMMANDS = ["world", "world", "index", "index", "warmup", "ask", "eval", "evolve", "export", "ask", "runs", "eval"]
SHUFFLED = ["--set", "solver.shuffle_advantages=true"]


def demo_commands():
    """The words of every command of `make demo-learn`; its paths begin with `demo/seed-0/`."""
    shown = read_document("Makefile", (ROOT / "Makefile").read_text(encoding="utf-8"))
    commands = [words for line in shown for words in split_commands(line.text, {})]
    return [words for words in commands if any("demo/seed-0/" in word for word in words)]


def run(words):
    """Run a command; an `ask` may find nothing, which is 3."""
    assert main(words) in ((0, None, 3) if words[0] == "ask" else (0, None)), words


def compare(capsys, before, after):
    """Exact match of `before`, and the interval of the paired difference."""
    capsys.readouterr()
    assert main(["eval", "--compare", str(before), str(after), "--json"]) in (0, None)
    [other] = json.loads(capsys.readouterr().out)["compare"]
    return other["score"]["exact_match"]["mean"], other["difference"]["exact_match"]


def test_the_demo_asks_and_evaluates_before_and_after():
    assert [words[0] for words in demo_commands()] == COMMANDS


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_it_learns_to_search_from_questions_of_its_own(tmp_path, monkeypatch, capsys):
    """By reward, and not by being trained at all: the control has the same advantages, each at another episode.

    Six seeds gained 62 to 71 points from 27 to 30, every interval from 52 or above; their controls changed by -7 to +8.
    """
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = demo_commands()
    for words in commands:
        run(words)
    made = tmp_path / "demo" / "seed-0"
    start, gain = compare(capsys, made / "before.json", made / "after.json")
    assert 0.2 < start < 0.4
    assert gain["low"] > 0.4 and gain["mean"] > 0.5

    def control(words):
        return [word.replace("seed-0/run", "seed-0/shuffled").replace("after.json", "control.json") for word in words]

    run([*control(commands[COMMANDS.index("evolve")]), *SHUFFLED])
    run(control(commands[-1]))
    _, shuffled = compare(capsys, made / "before.json", made / "control.json")
    assert shuffled["mean"] < 0.2
