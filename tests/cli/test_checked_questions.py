"""`quaere questions --checked`, with an endpoint that words questions from a table and answers what it is shown."""

import json
import re
from pathlib import Path

import pytest

from documented_json import check_printed
from quaere.api import checked_questions
from quaere.cli.main import main
from quaere.cli.questions import next_commands
from quaere.errors import BadInput
from quaere.policies.sampler import ChatReply
from quaere.rollout.policy import ChatPolicy
from quaere.rollout.question_files import read_questions
from quaere.search.index_build import build_index
from quaere.warmup.documents.checked_question import CheckedQuestion, WriterSettings, Written

TEXT = "Halm Bridge was built by Orsolya Venn for the old town."


class Reader:
    """Asks who built the bridge; `knows` it with the page, or by heart, or not at all."""

    name = "reader"

    def __init__(self, knows="with the page"):
        self.knows = knows

    async def reply(self, messages, params):
        asked = messages[-1]["content"]
        if messages[0]["content"].startswith("You check questions"):
            return ChatReply("yes", "end_of_turn", 1)
        if messages[0]["content"].startswith("You look for what a text leaves out"):
            return ChatReply("How long is Halm Bridge?", "end_of_turn", 5)
        if asked.endswith("How long is Halm Bridge?"):
            return ChatReply("unknown", "end_of_turn", 1)
        if not messages[0]["content"].startswith("You answer questions"):
            return ChatReply("Who built Halm Bridge?" if 'is "Orsolya Venn"' in asked else "Why?", "end_of_turn", 5)
        shown = asked.rpartition("Question: ")[0]
        is_right = self.knows == "by heart" or (shown and self.knows == "with the page")
        return ChatReply("Orsolya Venn" if is_right else "nobody", "end_of_turn", 2)

    async def stop(self):
        pass


@pytest.fixture
def index(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "halm", "title": "Halm Bridge", "text": TEXT}) + "\n")
    build_index(tmp_path / "corpus.jsonl", tmp_path / "index")
    return tmp_path / "index"


def run(monkeypatch, index, *more, knows="with the page"):
    monkeypatch.setattr("quaere.rollout.policy.open_policy", lambda *args, **options: ChatPolicy(Reader(knows)))
    out = index.parent / "own.jsonl"
    arguments = ["questions", "--checked", "--index", index, "--model", "reader", "--drafts", "40", "--out", out, *more]
    return main([str(argument) for argument in arguments]), out


@pytest.fixture
def index_of_two(tmp_path):
    """A second page, whose question is not written well."""
    rows = [("Halm Bridge", TEXT), ("Sall", "The port of Sall was ruled by Marta Oleen for long.")]
    lines = [json.dumps({"id": title, "title": title, "text": text}) + "\n" for title, text in rows]
    (tmp_path / "two.jsonl").write_text("".join(lines))
    build_index(tmp_path / "two.jsonl", tmp_path / "two-index")
    return tmp_path / "two-index"


def test_checked_questions_are_written_as_questions_to_learn_from(monkeypatch, index, capsys):
    code, out = run(monkeypatch, index)
    assert code == 0
    (question,) = read_questions(out)
    assert (question.text, question.answers, question.facts) == ("Who built Halm Bridge?", ("Orsolya Venn",), 1)
    assert question.evidence[0].text == TEXT
    said = capsys.readouterr().out
    assert re.search(r"1 question of 1 draft \(1 single\)", said) and "1 need 1" in said
    warmup, evolve = said.splitlines()[-2:]
    assert warmup == "quaere warmup search-r1 --style brief --model reader --lora-rank 32 --out own-warm"
    assert evolve.startswith(f"quaere evolve search-r1 --index {index} --questions {out} --model own-warm ")


def test_the_next_commands_are_those_of_the_readme():
    """There with some questions held back, to measure the gain with."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").replace("\\\n", "")
    shown = {" ".join(line.split()) for line in readme.splitlines()}
    for line in next_commands(Path("notes.jsonl"), Path("notes-index"), "Qwen/Qwen2.5-3B-Instruct"):
        assert line.replace("notes-warm", "warm").replace("notes.jsonl", "practice.jsonl") in shown


def test_a_model_at_a_url_is_not_proposed_for_training():
    warmup, _ = next_commands(Path("own.jsonl"), Path("my index"), "openai:m@http://h/v1")
    assert "--model MODEL " in warmup


def test_a_share_of_the_questions_is_not_answered_by_the_documents(monkeypatch, index, capsys):
    code, out = run(monkeypatch, index, "--unanswerable", "0.5")
    assert code == 0
    answered, without = read_questions(out)
    assert answered.answers and (without.text, without.answers, without.evidence) == (
        "How long is Halm Bridge?",
        (),
        (),
    )
    assert without.id.startswith("halm#0:") and without.id.endswith("-unanswerable")
    assert json.loads(out.read_text().splitlines()[1])["kind"] == "unanswerable"
    said = capsys.readouterr().out
    assert "2 questions of 2 drafts (1 single, 1 unanswerable)" in said
    assert said.splitlines()[-2].startswith("quaere warmup search-r1 --style brief --abstention 0.5 --model reader ")


def test_counts_as_json(monkeypatch, index, tmp_path, capsys):
    run(monkeypatch, index, "--json")
    counted = json.loads(capsys.readouterr().out)
    assert (counted["questions"], counted["kinds"], counted["searches"]) == (1, {"single": 1}, {"1": 1})
    assert (counted["drafts"], counted["dropped"]) == (1, {})
    open_questions = ["questions", "--index", str(index), "--num", "1", "--out", str(tmp_path / "open.jsonl"), "--json"]
    assert main(open_questions) == 0
    check_printed("questions", counted, json.loads(capsys.readouterr().out))


def test_what_was_dropped_is_written_where_it_is_asked_for(monkeypatch, index_of_two, tmp_path, capsys):
    dropped = tmp_path / "dropped.jsonl"
    code, out = run(monkeypatch, index_of_two, "--dropped", dropped, "--json")
    assert code == 0 and len(read_questions(out)) == 1
    (record,) = [json.loads(line) for line in dropped.read_text().splitlines()]
    assert record.pop("id").startswith("Sall#0:")
    assert record == {"question": "Why?", "answer": "Marta Oleen", "reason": "single: is not one question"}
    counted = json.loads(capsys.readouterr().out)
    assert (counted["drafts"], counted["dropped"]) == (2, {"single: is not one question": 1})


def test_what_was_dropped_is_written_before_the_questions(monkeypatch, index_of_two, tmp_path):
    """So that a kill between the two files loses neither: with OUT there, the command would not be repeated."""
    dropped, real = tmp_path / "dropped.jsonl", checked_questions.write_lines

    def write(path, rows):
        if path != dropped:
            raise KeyboardInterrupt
        real(path, rows)

    monkeypatch.setattr(checked_questions, "write_lines", write)
    assert run(monkeypatch, index_of_two, "--dropped", dropped)[0] == 130
    assert len(dropped.read_text().splitlines()) == 1


def test_nothing_more_is_written_where_it_is_not_asked_for(monkeypatch, index_of_two, tmp_path):
    before = {path.name for path in tmp_path.iterdir()}
    assert run(monkeypatch, index_of_two)[0] == 0
    assert {path.name for path in tmp_path.iterdir()} - before == {"own.jsonl"}


@pytest.mark.parametrize(("more", "topk"), [([], 10), (["--topk", "3"], 3)])
def test_a_search_returns_ten_passages_unless_set_otherwise_and_the_first_two_count(monkeypatch, index, more, topk):
    given = []

    def write(model, index, settings, **options):
        given.append(settings)
        return Written([CheckedQuestion("q", "Who?", ("Venn",), "single", 1, 1, 1, ())], [], 1)

    monkeypatch.setattr("quaere.cli.questions.write_checked", write)
    assert run(monkeypatch, index, *more)[0] == 0
    assert [(settings.topk, settings.max_rank) for settings in given] == [(topk, 2)]
    assert given[0].temperature == WriterSettings().temperature  # questions are worded as those of `quaere learn` are


def test_counts_of_searches_begin_with_the_fewest(monkeypatch, index, capsys):
    asked = [CheckedQuestion(f"q{num}", "Who?", ("Venn",), "chain", 2, num, 2, ()) for num in (3, 1, 2, 1)]
    monkeypatch.setattr("quaere.cli.questions.write_checked", lambda *args, **options: Written(asked, [], 9))
    run(monkeypatch, index, "--json")
    assert list(json.loads(capsys.readouterr().out)["searches"].items()) == [("1", 2), ("2", 1), ("3", 1)]


@pytest.mark.parametrize("knows", ["by heart", "not at all"])
def test_where_nothing_is_proven_nothing_is_written(monkeypatch, index, capsys, knows):
    code, out = run(monkeypatch, index, knows=knows)
    assert code == 2 and not out.exists()
    assert "drafts became a question that passed every check" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--unanswerable", "1"], "unanswerable must be at least 0 and below 1, not 1"),
        (["--unanswerable", "-0.1"], "unanswerable must be at least 0 and below 1, not -0.1"),
        (["--unanswerable", "0.2", "--tries", "1", "--min-right", "1"], "unanswerable needs at least 2 tries"),
    ],
)
def test_an_impossible_share_is_refused(monkeypatch, index, capsys, more, said):
    code, out = run(monkeypatch, index, *more)
    assert code == 2 and not out.exists() and said in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["--model", "--index"])
def test_a_model_and_an_index_are_needed(index, tmp_path, capsys, missing):
    given = {"--model": "reader", "--index": str(index)}
    del given[missing]
    source = [] if missing == "--model" else ["--world", str(tmp_path)]
    rest = [text for pair in given.items() for text in pair]
    assert main(["questions", "--checked", *source, *rest, "--out", str(tmp_path / "own.jsonl")]) == 2
    assert "--checked needs --index and --model" in capsys.readouterr().err


def test_impossible_checks_are_refused_before_anything_is_loaded(monkeypatch, index, capsys):
    code, _ = run(monkeypatch, index, "--tries", "2", "--min-right", "3")
    assert code == 2 and "min_right must be at most tries (2), not 3" in capsys.readouterr().err


def test_what_was_finished_before_a_kill_is_not_asked_again(monkeypatch, index, capsys):
    def fail(*args, **options):
        raise BadInput("the card is gone")

    with monkeypatch.context() as patch:
        patch.setattr("quaere.warmup.documents.chains.find_bridges", fail)  # after the batches
        assert run(patch, index)[0] == 2
    journal = index.parent / "own.jsonl.unfinished"
    assert journal.read_bytes().count(b"\n") == 2  # what it was begun with, and one batch
    code, out = run(monkeypatch, index)
    assert code == 0 and len(read_questions(out)) == 1 and not journal.exists()
    assert "going on after 1 finished batches" in capsys.readouterr().err
    assert run(monkeypatch, index, "--force", "--seed", "1")[0] == 0 and not journal.exists()
