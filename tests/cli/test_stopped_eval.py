"""`quaere eval --resume`: what a stopped evaluation has answered is kept, and only the rest is asked."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec import structs
from test_export_command import make_base

from quaere.cli.main import main
from quaere.records import Failure
from quaere.runs import Run, describe_state
from quaere.runs.rows import RunState

QUESTIONS = [
    {"id": "q1", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"]},
    {"id": "q2", "question": "Where does the Oss rise?", "answers": ["Korrin hills", "Korrin"]},
    {"id": "q3", "question": "When was it built?", "answers": ["1702"]},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("stopped")
    (root / "docs").mkdir()
    (root / "docs" / "halm.md").write_text("# Halm bridge\n\nOrsolya Venn built the Halm bridge in 1702.\n")
    assert main(["index", str(root / "docs"), "--out", str(root / "index")]) == 0
    (root / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    make_base(root)
    return root


def evaluate(place, *more):
    where = ["--questions", str(place / "questions.jsonl"), "--index", str(place / "index"), "--guided"]
    model = ["--model", str(place / "base"), "--runs", str(place / "runs"), "--device", "cpu", "--max-turns", "2"]
    return main(["eval", *where, *model, "--turn-tokens", "8", "--json", *more])


def episodes(path):
    with Run.open(path) as run:
        return {episode.id: episode for episode in run.episodes()}


@pytest.fixture
def whole(place, capsys):
    """An evaluation that was not stopped."""
    assert evaluate(place, "--items", str(place / "whole.items.jsonl")) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def stopped(place, whole, tmp_path):
    """A run of the same settings that has answered the second question only."""
    path = tmp_path / "stopped"
    with Run.create(path, "eval", whole["settings"]) as run:
        run.add_episode(episodes(whole["run"])["q2"])
        run.note_end(RunState("stopped"))
    return path


def test_a_stopped_evaluation_ends_like_one_that_was_not(place, whole, stopped, capsys):
    first = episodes(stopped)["q2"]
    out = place / "again.items.jsonl"
    # A question that was asked again could not be stored: the run has its episode.
    assert evaluate(place, "--resume", str(stopped), "--items", str(out), "--max-rows", "1") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["score"] == whole["score"] and again["run"] == str(stopped)
    assert out.read_bytes() == (place / "whole.items.jsonl").read_bytes()
    kept = episodes(stopped)
    assert set(kept) == {"q1", "q2", "q3"} and kept["q2"] == first
    with Run.open(stopped) as run:
        assert describe_state(run.state()) == "done"


def test_ctrl_c_says_the_command_that_goes_on_with_the_name_of_the_run(place, capsys, monkeypatch):
    said = []

    def interruptible(kept):
        said.append(kept)
        return nullcontext()

    monkeypatch.setattr("quaere.cli.eval.interruptible", interruptible)
    monkeypatch.setattr("sys.argv", ["quaere", "eval", "--model", "my model"])
    for more, added in (((), "--resume NAME"), (("--deterministic",), "")):
        assert evaluate(place, *more) == 0
        name = Path(json.loads(capsys.readouterr().out)["run"]).name
        typed = " ".join(["quaere eval --model 'my model'", added.replace("NAME", name)]).strip()
        assert f"`{typed}` goes on" in said.pop()()


def test_answers_of_another_index_are_not_continued(place, whole, tmp_path, capsys):
    assert len(whole["settings"]["index_fingerprint"]) == 64
    other = whole["settings"] | {"index_fingerprint": "5f"}
    with Run.create(tmp_path / "other", "eval", other):
        pass
    assert evaluate(place, "--resume", str(tmp_path / "other")) == 2
    assert "index_fingerprint was 5f and is " in capsys.readouterr().err
    del other["index_fingerprint"]  # as earlier versions stored it
    with Run.create(tmp_path / "earlier", "eval", other):
        pass
    assert evaluate(place, "--resume", str(tmp_path / "earlier")) == 0


@pytest.mark.parametrize("boundary", ["model", "search"])
def test_failures_are_asked_again_and_answers_are_not(place, whole, tmp_path, capsys, boundary):
    first = episodes(whole["run"])
    turn = structs.replace(first["q1"].turns[0], failure=Failure(boundary, "timeout", "no reply"))
    failed = structs.replace(first["q1"], turns=(turn,), outcome=None, end="failed")
    if boundary == "search":  # such an episode goes on to an answer
        failed = structs.replace(first["q1"], turns=(turn, *first["q1"].turns[1:]))
    with Run.create(tmp_path / "failed", "eval", whole["settings"]) as run:
        run.add_episode(failed)
        run.add_episode(first["q2"])
    assert evaluate(place, "--resume", str(tmp_path / "failed")) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["score"] == whole["score"] and again["score"]["num_failed"] == 0
    kept = episodes(tmp_path / "failed")
    assert kept["q1"].turns[0].failure is None and kept["q2"] == first["q2"]


def test_a_finished_evaluation_is_scored_again_without_a_question(place, whole, capsys):
    assert evaluate(place, "--resume", whole["run"]) == 0
    assert json.loads(capsys.readouterr().out)["score"] == whole["score"]


def test_an_evaluation_from_before_abstention_goes_on(place, whole, tmp_path, capsys):
    settings = {name: value for name, value in whole["settings"].items() if name not in ("abstention", "hide_answers")}
    Run.create(tmp_path / "older", "eval", settings).close()
    assert evaluate(place, "--resume", str(tmp_path / "older")) == 0
    assert json.loads(capsys.readouterr().out)["score"] == whole["score"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--turn-tokens", "9"], "other settings: limits.turn_tokens was 8 and is 9 "),
        (["--limit", "2"], "limit was not set and is 2"),
        (["--hide-answers"], "hide_answers was not set and is on"),
        (["--deterministic"], "--resume cannot continue a --deterministic evaluation"),
    ],
)
def test_other_settings_are_refused_and_change_nothing(place, stopped, capsys, options, said):
    assert evaluate(place, "--resume", str(stopped), *options) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert set(episodes(stopped)) == {"q2"}
    with Run.open(stopped) as run:
        assert describe_state(run.state()) == "stopped"


def test_questions_that_were_changed_since_are_refused(place, stopped, capsys):
    original = (place / "questions.jsonl").read_text()
    try:
        (place / "questions.jsonl").write_text(original.replace("the Oss rise", "the Oss end"))
        assert evaluate(place, "--resume", str(stopped)) == 2
    finally:
        (place / "questions.jsonl").write_text(original)
    assert "has an answer to q2" in " ".join(capsys.readouterr().err.split())


def test_a_run_of_another_kind_is_refused(place, tmp_path, capsys):
    Run.create(tmp_path / "asked", "ask").close()
    assert evaluate(place, "--resume", str(tmp_path / "asked")) == 2
    assert "is no evaluation" in capsys.readouterr().err
