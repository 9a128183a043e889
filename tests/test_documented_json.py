"""The tables of docs/command-line.md have the fields that commands print with `--json`.

Those of `learn` and of checked questions are checked where these commands are tested.
"""

import json

import pytest

import tiny
from documented_json import COMMANDS, check_printed, read_tables
from quaere.chat.renderer import Renderer
from quaere.cli.main import main
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

SENTENCE = "Orsolya Venn built the Halm bridge in 1702."
CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    (root / "docs").mkdir()
    (root / "docs/halm.md").write_text(f"# Halm bridge\n\n{SENTENCE}\n", encoding="utf-8")
    row = {"id": "ask", "question": "Who built it?", "answers": ["Orsolya Venn"]}
    (root / "asked.jsonl").write_text(json.dumps(row), encoding="utf-8")
    assert main(["index", str(root / "docs"), "--out", str(root / "index")]) == 0
    return root


@pytest.fixture
def printed(place, capsys, monkeypatch):
    """What a command prints whose model writes a search, a quotation and an answer."""
    monkeypatch.chdir(place)

    def run(*words, quotation=SENTENCE):
        turns = [CALL, f"<evidence>{quotation}</evidence><answer>Orsolya Venn</answer>"]
        policy = TokenPolicy(ScriptedSampler(tiny.tokenizer(), {"ask": turns}), Renderer(tiny.tokenizer()))
        monkeypatch.setattr("quaere.rollout.policy.open_policy", lambda *model, **engine: policy)
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_of_ask(printed):
    asked = ["ask", "Who built it?", "--index", "index", "--model", "m", "--evidence"]
    verbatim, invented = printed(*asked), printed(*asked, quotation="She paid for it, too.")
    assert verbatim["evidence"]["verbatim"] and not invented["evidence"]["verbatim"]
    check_printed("ask", verbatim, invented)


def test_of_eval(printed):
    answered = ["eval", "--questions", "asked.jsonl", "--index", "index", "--model", "m", "--evidence"]
    answered += ["--judge", "string", "--judge-items", "2", "--out", "result.json"]
    printed(*answered)
    check_printed("eval", printed(*answered[:-2], "--compare", "result.json"))


def test_of_index(printed):
    check_printed("index", printed("index", "docs", "--out", "other"), printed("index", "--update", "other"))


def test_every_command_has_a_table():
    assert tuple(read_tables()) == COMMANDS


@pytest.mark.parametrize("change", [{"new": 1}, {"support": {"text": "Venn"}}, {"support": None}])
def test_a_field_that_is_new_or_gone_is_noticed(change):
    fields = {field: dict.fromkeys(parts) for field, parts in read_tables()["ask"].items()}
    check_printed("ask", fields)
    with pytest.raises(AssertionError):
        check_printed("ask", fields | change)
    del fields["found"]
    with pytest.raises(AssertionError):
        check_printed("ask", fields)
