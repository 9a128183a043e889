"""What is asked of `quaere.learn`: settings of a file and of a call, and questions of a world."""

import json

import pytest

import quaere
from quaere.api.checked_questions import read_checked
from quaere.api.learning_plan import naming_form
from quaere.api.learning_request import ask_for
from quaere.errors import BadInput


def test_settings_of_a_call_overrule_those_of_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("solver: {steps: 8, limits: {topk: 1}}\nseed: 3\n")
    asked = ask_for("docs", "m", config=path, settings={"solver": {"steps": 2}, "form.facts": [1, 1]})
    assert asked.settings == {"solver.steps": 2, "solver.limits.topk": 1, "seed": 3, "form.facts": [1, 1]}
    assert ask_for("docs", "m", settings={"solver.steps": 2}).settings == {"solver.steps": 2}


@pytest.mark.parametrize(("text", "said"), [("- 1", "must contain settings"), (None, "does not exist")])
def test_a_file_that_has_no_settings(tmp_path, text, said):
    if text:
        (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(quaere.BadInput, match=said):
        ask_for("docs", "m", config=tmp_path / "mine.yaml")


def test_questions_of_a_world_have_kinds(tmp_path):
    span = {"doc_id": "halm", "start": 0, "end": 5, "text": "Venn."}
    row = {"id": "q", "question": "Who?", "answers": ["Venn"], "searches": 1, "hops": 1, "evidence": [span]}
    rows = [{**row, "facts": 1}, {**row, "facts": 2}, {**row, "facts": 2, "kind": "comparison"}]
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert [one.kind for one in read_checked(tmp_path / "gold.jsonl")] == ["single", "chain", "comparison"]
    (tmp_path / "bad.jsonl").write_text('["not a question"]\n')
    with pytest.raises(quaere.BadInput, match="line 1"):
        read_checked(tmp_path / "bad.jsonl")


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (
            "--max-turns 3, or fewer facts such as --facts 1,1",
            "--set form.max_turns=3, or fewer facts such as --set form.facts=[1,1]",
        ),
        ("a larger --turn-tokens", "a larger --set form.turn_tokens=N"),
        ("--out DIR", "--out DIR"),
        ("quaere warmup drzero --facts 1 --out DIR", "quaere warmup drzero --facts 1 --out DIR"),
    ],
)
def test_options_of_a_warm_up_are_named_as_settings_of_the_form(hint, expected):
    with pytest.raises(BadInput, match="too few") as caught, naming_form():
        raise BadInput("too few", hint=hint)
    assert caught.value.hint == expected
