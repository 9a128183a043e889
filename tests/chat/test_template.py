"""What a chat template supports, found out by rendering: a system role, tools, content as a list."""

import pytest

import tiny
from modern_templates import CALLS, LISTED, make_tokenizer
from quaere.chat.markup import SEARCH
from quaere.chat.template import ChatTemplate, limited_work
from quaere.errors import TemplateRefused

TURNS = [("system", "You search."), ("user", "Who?")]


def traits(tokenizer):
    template = ChatTemplate(tokenizer)
    return {name for name in ("has_template", "folds_system", "speaks_tools", "lists_tools") if getattr(template, name)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", {"has_template"}),
        ("qwen", {"has_template", "speaks_tools", "lists_tools"}),
        ("gemma", {"has_template", "folds_system"}),
        ("brackets", {"has_template"}),
        ("plain", set()),
    ],
)
def test_what_a_template_supports(name, expected):
    assert traits(tiny.tokenizer(name)) == expected


def test_a_template_may_list_tools_and_show_no_results():
    channels = CALLS["call channels"]
    assert traits(make_tokenizer(channels)) == {"has_template", "lists_tools"}
    refuses = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + channels
    assert traits(make_tokenizer(refuses)) == {"has_template"}


def test_tools_are_listed_by_the_template_or_at_the_end_of_the_system_message():
    for name in ("qwen", "chatml"):
        text = ChatTemplate(tiny.tokenizer(name)).render(TURNS, (SEARCH,))
        assert text.count(SEARCH.description) == 1, name
        assert ("You search.\n\nTools you can call" in text) == (name == "chatml")
    assert SEARCH.name not in ChatTemplate(tiny.tokenizer()).render(TURNS[1:], (SEARCH,)), "without a system message"


def test_a_system_prompt_without_a_role_stands_before_the_first_question():
    template = ChatTemplate(tiny.tokenizer("gemma"))
    assert "<start_of_turn>user\nYou search.\n\nWho?<end_of_turn>" in template.render(TURNS)
    assert "<start_of_turn>user\nWho?<end_of_turn>" in template.render(TURNS[1:])


def test_content_is_given_as_a_list_where_a_string_is_not_shown():
    template = ChatTemplate(make_tokenizer(LISTED))
    assert template.render(TURNS) == "System: You search.<|over|>\nUser: Who?<|over|>\nAssistant:"
    assert template.render(TURNS, opens_turn=False) == "System: You search.<|over|>\nUser: Who?<|over|>\n"


def test_tool_results_are_user_turns_in_tags_where_there_are_no_tools():
    chatml, qwen = (ChatTemplate(tiny.tokenizer(name)) for name in ("chatml", "qwen"))
    assert [qwen.turn(role, "x") for role in ("user", "tool")] == [("user", "x"), ("tool", "x")]
    assert chatml.turn("user", "x") == ("user", "x")
    assert chatml.turn("tool", "x") == ("user", "<tool_response>\nx\n</tool_response>")


def test_without_a_template_messages_are_paragraphs():
    assert ChatTemplate(tiny.tokenizer("plain")).render(TURNS) == "You search.\n\nWho?\n\n"


def test_work_is_counted_line_by_line(monkeypatch):
    def loop(num_lines):
        for _ in range(num_lines // 2):
            pass

    monkeypatch.setattr("quaere.chat.template.MAX_LINES", 1000)
    with limited_work():
        loop(900)
    with pytest.raises(TemplateRefused, match="ran more than 1,000 lines"), limited_work():
        loop(1100)
