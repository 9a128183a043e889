"""Runs and episodes as a person sees them, on the command line."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from quaere.cli.episode_view import printable, render_episode, render_tokens, render_turn, trim
from quaere.cli.main import build_parser, main
from quaere.errors import BadInput
from quaere.records import EndReason, Episode, Evaluate, Malformed, Passage, Proposal, ProposeTask, StopReason, Turn
from quaere.runs import Run

MakeEpisode = Callable[..., Episode]


def shown(what: RenderableType, *, terminal: bool = False) -> str:
    stream = io.StringIO()
    Console(file=stream, width=300, force_terminal=terminal, highlight=False).print(what)
    return stream.getvalue()


def call(*argv: str) -> None:
    args = build_parser("runs").parse_args(["runs", *argv])
    args.run(args)


def test_an_episode_shows_all_that_happened(make_episode: MakeEpisode) -> None:
    lines = [line.strip() for line in shown(render_episode(make_episode())).splitlines()]
    assert lines == [
        "Question: Who built the Halm bridge?",
        "Expected: Orsolya Venn",
        "episode ask-0, toolcall, tiny, seed 7",
        "",
        "Turn 1  23 tokens, stopped at a stop string, sampling 0.8 s",
        "<think>I should look it up.</think><tool_call>{...}</tool_call>",
        "→ searches: Halm bridge",
        "1 passage for Halm bridge",
        "[1] The Halm bridge  halm.md 0-42, score 7.25",
        "The Halm bridge was built by Orsolya Venn.",
        "",
        "Turn 2  9 tokens, ended its turn",
        "<answer>Orsolya Venn</answer>",
        "→ answers: Orsolya Venn",
        "failed at the search: timeout: the retriever did not answer within 10 s",
        "",
        "Answer: Orsolya Venn",
        "answered (2 turns, 1 search, 5 tokens)",
    ]


def test_long_passages_are_cut_unless_asked_for(make_episode: MakeEpisode) -> None:
    episode = make_episode(text="The Oss rises. " * 100 + "Its mouth is at Venn.")
    assert "Its mouth is at Venn." not in shown(render_episode(episode))
    assert shown(render_episode(episode, full=True)).count("Its mouth is at Venn.") == 2  # passage and reply


def test_a_turn_without_an_action_says_why() -> None:
    turn = Turn(index=0, text="", action=Malformed("no tool call"), stop_reason="length", reply="Call the tool.")
    lines = [line.strip() for line in shown(render_turn(turn)).splitlines()]
    assert lines[1:] == [
        "Turn 1  0 tokens, ran out of tokens",
        "(wrote nothing)",
        "→ cannot be read: no tool call",
        "environment: Call the tool.",
    ]


@pytest.mark.parametrize(("score", "number"), [(7.0, "7"), (7.5, "7.5"), (0.0, "0")])
def test_an_evaluation_shows_its_score_its_words_and_the_cue(score: float, number: str) -> None:
    action = Evaluate("Names her.\x1b[2J", score)
    turn = Turn(index=1, text="<tool_call>{}</tool_call>", action=action, stop_reason="stop_string", reply="Go on.")
    lines = [line.strip() for line in shown(render_turn(turn)).splitlines()]
    assert lines[3:] == [f"→ gives it {number} of 10: Names her.␛[2J", "environment: Go on."]


def test_every_way_to_stop_and_to_end_has_words(make_episode: MakeEpisode) -> None:
    (turn, *_) = make_episode().turns
    for stop in get_args(StopReason):
        assert "23 tokens, " in shown(render_turn(msgspec.structs.replace(turn, stop_reason=stop)))
    for end in get_args(EndReason):
        assert "answer" in shown(render_episode(make_episode(end=end, turns=())))


def test_a_proposal_is_shown_as_one(make_episode: MakeEpisode) -> None:
    document = Passage(id="p", doc_id="oss.md", title="The Oss", text="", start=0, end=0)
    task = ProposeTask(id="p1", document=document, hops=2)
    text = shown(render_episode(make_episode(task=task, outcome=Proposal("Who?", "Venn"), turns=())))
    assert "Propose a question of 2 hops about: The Oss" in text
    assert "Proposed question: Who?\nIts answer: Venn\nproposed (0 turns" in text


def test_tokens_are_counted_by_origin(make_episode: MakeEpisode) -> None:
    rows = [line.split() for line in shown(render_tokens(make_episode())).splitlines()]
    assert rows[1:] == [["0", "prompt", "3", "0"], ["1", "model", "2", "2", "-1.000"], ["all", "5", "2"]]


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m [bold red]x[/bold red] [link=http://a]y[/link] :smile: \u202eevil\u2066 \r\b\x00"
)


def test_a_document_cannot_act_on_the_terminal(make_episode: MakeEpisode) -> None:
    episode = make_episode(HOSTILE, text=HOSTILE, model=HOSTILE)
    turn = msgspec.structs.replace(episode.turns[0], text=HOSTILE, results=(), reply=HOSTILE)
    episode = msgspec.structs.replace(episode, turns=(*episode.turns, turn))
    plain = shown(render_episode(episode, full=True))
    assert not set(plain) & set("\x1b\x07\x9b\u202e\u2066\r\b\x00")
    assert "[bold red]x[/bold red] [link=http://a]y[/link] :smile:" in plain
    assert "␛]0;owned␇␛[2J\\u009b31m" in plain
    # In a terminal the only escapes are the styles that the view itself sets.
    styled = shown(render_episode(episode, full=True), terminal=True)
    assert "\x1b]" not in styled
    assert "\x1b[2J" not in styled


@given(st.text(st.characters()))
def test_printable_text_holds_no_control_characters(text: str) -> None:
    cleaned = printable(text)
    assert all(character in "\n\t" or ord(character) >= 0x20 for character in cleaned)
    assert not any(0x7F <= ord(character) <= 0x9F for character in cleaned)
    cleaned.encode()  # lone surrogates are gone as well
    assert printable(cleaned) == cleaned


@given(st.text(), st.integers(1, 50))
def test_trimmed_text_is_short_and_says_that_it_is_cut(text: str, limit: int) -> None:
    cut = trim(text, limit)
    assert len(cut) <= limit + 2
    assert "\n" not in cut
    assert cut.endswith(" …") or cut == " ".join(text.split())


# ----------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def root(tmp_path: Path, make_episode: MakeEpisode, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("QUAERE_RUNS", str(tmp_path))
    with Run.create(tmp_path / "ask-1", "ask", {"model": "tiny"}) as run:
        run.add_episode(make_episode("a"), metrics={"odd": math.nan})
        run.add_episode(make_episode("b", end="turn_limit", outcome=None))
    return tmp_path


def test_list(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("list")
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "kind", "state", "created", "episodes", "answered", "size"]
    assert row.split()[:3] == ["ask-1", "ask", "done"]
    assert row.split()[4:6] == ["2", "1"]
    call("list", "--json")
    (summary,) = json.loads(capsys.readouterr().out)
    assert (summary["id"], summary["num_episodes"], summary["num_answered"]) == ("ask-1", 2, 1)


def test_a_folder_of_runs_that_is_named_must_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QUAERE_RUNS", raising=False)
    for words in ([], ["--runs", str(tmp_path)]):
        call("list", *words)
        assert capsys.readouterr().out.startswith("no runs in ")
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        assert main(["runs", "list", "--runs", name]) == 2
        assert capsys.readouterr().err.splitlines()[0] == f"quaere: there is no folder {name}"


def test_an_id_in_the_list_is_never_broken(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ["warmup-20250301-101500", "a-name-that-somebody-chose-20250301-101500-and-more"]
    for name in ids:
        with Run.create(root / name, "warmup"):
            pass
    monkeypatch.setenv("COLUMNS", "80")
    call("list")
    shown = capsys.readouterr().out
    assert all(name in shown for name in ids)
    shutil.rmtree(root / ids[1])
    call("list")
    assert len(capsys.readouterr().out.splitlines()) == 3  # no cell is broken at all


def test_settings_and_what_else_there_is_to_see(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"limits": {"max_turns": 8, "seed": None}, "questions": None, "plain": True, "topics": ["a", "b"]}
    settings["facts"] = []
    with Run.create(root / "eval-1", "eval", settings) as run:
        run.log_metrics(0, {"answer/f1": 0.5})
    call("show", "eval-1")
    text = capsys.readouterr().out
    assert "  limits: max_turns 8\n  plain: yes\n  topics: a, b\n" in text and "None" not in text
    assert "facts" not in text
    assert "--candidates" not in text and "reward/*" not in text
    assert f"  quaere runs show {root / 'eval-1'} --metrics '*'\n" in text


def test_show_a_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("show", "ask-1")
    text = capsys.readouterr().out
    assert "  model: tiny\n" in text
    assert f"2 episodes, 1 answered; quaere runs show {root / 'ask-1'} EPISODE" in text
    assert "turn_limit" in text
    call("show", str(root / "ask-1"), "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["run"]["settings"] == {"model": "tiny"}
    assert [row["id"] for row in shown["episodes"]] == ["a", "b"]
    assert shown["episodes"][0]["metrics"] == {"odd": None}


def test_show_an_episode(root: Path, capsys: pytest.CaptureFixture[str], make_episode: MakeEpisode) -> None:
    call("show", "ask-1", "a", "--tokens")
    text = capsys.readouterr().out
    assert "Answer: Orsolya Venn" in text
    assert "with loss" in text
    call("show", "ask-1", "a", "--json")
    out = capsys.readouterr().out
    assert out.isascii()
    assert msgspec.json.decode(out, type=Episode) == make_episode("a")
    assert isinstance(json.loads(out)["metrics"], dict)  # and what was measured of it


def test_an_answer_below_the_runs_confidence_is_shown_as_an_abstention(
    root: Path, capsys: pytest.CaptureFixture[str], make_episode: MakeEpisode
) -> None:
    with Run.create(root / "eval-1", "eval", {"min_confidence": 0.5}) as run:
        run.add_episodes([make_episode("sure", agreement=0.75), make_episode("unsure", agreement=0.25)])
    call("list", "--json")
    listed = {run["id"]: run["num_answered"] for run in json.loads(capsys.readouterr().out)}
    assert listed == {"ask-1": 1, "eval-1": 1}
    call("show", "eval-1")
    rows = capsys.readouterr().out
    assert "2 episodes, 1 answered" in rows
    ends = {line.split()[0]: line.split()[-4] for line in rows.splitlines() if line.startswith(("sure", "unsure"))}
    assert ends == {"sure": "answered", "unsure": "abstained"}
    call("show", "eval-1", "unsure")
    said = "Answer: not in these documents (it has an answer, with a confidence of 0.25, below 0.5)\nabstained (2 turns"
    assert said in capsys.readouterr().out
    for name, abstained in (("sure", False), ("unsure", True)):
        call("show", "eval-1", name, "--json")
        assert json.loads(capsys.readouterr().out)["abstained"] is abstained
    call("show", "eval-1", "sure")
    assert "Answer: Orsolya Venn\nanswered (2 turns" in capsys.readouterr().out


def test_unknown_names_are_one_line_with_the_nearest(root: Path) -> None:
    with pytest.raises(BadInput, match=r"^no run ask1 in ") as caught:
        call("show", "ask1")
    assert caught.value.hint.startswith("did you mean ask-1?")
    with pytest.raises(BadInput, match="run ask-1 has no episode zz"):
        call("show", "ask-1", "zz")
