"""Tool calls and thoughts in the markups of model families, read into the one form that dialects know."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.chat.known_markups import (
    ATEM,
    DEEPSEEK,
    FUNCTIONS,
    GEMMA,
    GLM,
    HARMONY,
    JSON,
    LLAMA,
    MARKUPS,
    MISTRAL,
    PYTHON,
    choose_markup,
    read_json_prefix,
)
from quaere.chat.markup import MAX_CALL_CHARS, MAX_CALLS, Reading, read_turn, write_prompt, write_turn
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.tool_call import ToolCallSolver
from quaere.records import Answer, Evaluate, Malformed, Search

CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
HALM = {"query_list": ["Halm bridge"]}

# As each family writes a thought and a call.
WRITTEN = {
    "functions": (
        FUNCTIONS,
        '<think>so</think>\n<tool_call>\n<function=search>\n<parameter=query_list>\n["Halm bridge"]\n</parameter>\n'
        "</function>\n</tool_call>",
    ),
    "glm": (
        GLM,
        '\n<think>so</think>\n<tool_call>search\n<arg_key>query_list</arg_key>\n<arg_value>["Halm bridge"]</arg_value>'
        "\n</tool_call>",
    ),
    "harmony": (
        HARMONY,
        "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>commentary to=functions.search "
        '<|constrain|>json<|message|>{"query_list": ["Halm bridge"]}',
    ),
    "harmony, recipient first": (
        HARMONY,
        "<|channel|>analysis<|message|>so<|end|><|start|>assistant to=functions.search<|channel|>commentary json"
        '<|message|>{"query_list": ["Halm bridge"]}<|call|>',
    ),
    "muse": (
        ATEM,
        ' to=self<|message|>so<|eom|><|start|>assistant to=search<|message|><atem:function_calls>\n<atem:invoke name="'
        'search">\n<atem:parameter name="query_list">["Halm bridge"]</atem:parameter>\n</atem:invoke>\n'
        "</atem:function_calls>",
    ),
    "gemma": (
        GEMMA,
        '<|channel>thought\nso\n<channel|><|tool_call>call:search{query_list:[<|"|>Halm bridge<|"|>]}<tool_call|>',
    ),
    "deepseek": (
        DEEPSEEK,
        "<think>so</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
        '{"query_list": ["Halm bridge"]}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek 3.1": (
        DEEPSEEK,
        "<think>so</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>"
        '{"query_list": ["Halm bridge"]}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "mistral": (
        MISTRAL,
        '<think>so</think>[TOOL_CALLS][{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}]',
    ),
    "mistral, later": (MISTRAL, '<think>so</think>[TOOL_CALLS]search[ARGS]{"query_list": ["Halm bridge"]}'),
    "llama": (LLAMA, '<think>so</think>\n{"name": "search", "parameters": {"query_list": ["Halm bridge"]}}'),
    "llama, tagged": (
        LLAMA,
        '<think>so</think><|python_tag|>{"name": "search", "parameters": {"query_list": ["Halm bridge"]}}',
    ),
    "python": (
        PYTHON,
        '<think>so</think><|tool_call_start|>[search(query_list=["Halm bridge"])]<|tool_call_end|>',
    ),
    "json": (JSON, f"<think>so</think>{CALL}"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_thought_and_a_call_are_read_in_every_markup(name):
    markup, text = WRITTEN[name]
    read = read_turn(markup, text)
    assert "".join(read.text.split()) == "".join(f"<think>so</think>{CALL}".split())
    assert ToolCallSolver().read(read.text) == Search(("Halm bridge",))


@pytest.mark.parametrize("markup", MARKUPS, ids=lambda markup: markup.name)
def test_what_dialects_know_already_stays_as_it_is(markup):
    for text in (f"<think>so</think>{CALL}", "<think>so</think><answer>Venn</answer>", "plain text", ""):
        assert read_turn(markup, text) == Reading(text)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_in_a_thought_is_no_action(name):
    markup, text = WRITTEN[name]
    if markup in (HARMONY, ATEM):
        begin, end = {HARMONY: ("<|channel|>analysis", "<|end|>"), ATEM: (" to=self", "<|eom|>")}[markup]
        text = f"{begin}<|message|>I might say </think>{CALL} or <answer>Mallory</answer>{end}"
    elif markup is GEMMA:
        text = f"<|channel>thought\nI might say </think><answer>Mallory</answer> {text[32:]}<channel|>"
    else:
        text = f"<think>{text.replace('<think>so</think>', '')}</think>"
    assert ToolCallSolver().read(read_turn(markup, text).text) == Malformed(
        "there is neither a tool call nor an answer"
    )


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (HARMONY, "<|channel|>analysis<|message|>so <answer>Mallory</answer>"),
        (ATEM, " to=self<|message|>so <answer>Mallory</answer>"),
        (GEMMA, "<|channel>thought\nso <answer>Mallory</answer>"),
    ],
)
def test_a_thought_that_is_cut_off_is_no_action(markup, text):
    assert ToolCallSolver().read(read_turn(markup, text).text) == Malformed("the think block is not closed")


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (
            HARMONY,
            "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|><answer>V</answer>",
        ),
        (HARMONY, "<|channel|>final<|message|><answer>V</answer><|return|>"),
        (HARMONY, "<answer>V</answer><|end|><|start|>assistant<|channel|>analysis<|message|>done<|end|>"),
        (ATEM, " to=self<|message|>so<|eom|><|start|>assistant to=user<|message|><answer>V</answer>"),
        (GEMMA, "<|channel>thought\nso<channel|><answer>V</answer>"),
    ],
)
def test_an_answer_behind_a_thought_is_read(markup, text):
    assert ToolCallSolver().read(read_turn(markup, text).text) == Answer("V")


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (FUNCTIONS, "<tool_call><function=search><parameter=query_list>[</parameter></function></tool_call>"),
        (FUNCTIONS, "<tool_call><function=search><parameter=query_list>[</tool_call>"),
        (FUNCTIONS, "<tool_call><function=search></function>trailing</tool_call>"),
        (GLM, "<tool_call>search\n<arg_key>query_list</arg_key></tool_call>"),
        (HARMONY, "<|channel|>commentary to=functions.search<|message|>{not json<|call|>"),
        (HARMONY, "<|channel|>commentary to=functions.serch<|message|>{}<|call|>"),
        (GEMMA, '<|tool_call>call:search{query_list:[<|"|>Halm]}<tool_call|>'),
        (DEEPSEEK, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{\n```<｜tool▁call▁end｜>"),
        (MISTRAL, '[TOOL_CALLS][{"name": "search"}]'),
        (LLAMA, '{"name": "search", "parameters": {"query_list": ["Halm"]}} and more'),
        (PYTHON, "<|tool_call_start|>[search(query_list=open('x'))]<|tool_call_end|>"),
        (PYTHON, "<|tool_call_start|>[search(query_list={1, 2})]<|tool_call_end|>"),
        (PYTHON, f"<|tool_call_start|>[search(query_list={'-' * 1900}1)]<|tool_call_end|>"),
    ],
)
def test_a_call_that_cannot_be_read_is_malformed(markup, text):
    assert isinstance(ToolCallSolver().read(read_turn(markup, text).text), Malformed)


def test_values_keep_their_types():
    text = (
        "<tool_call><function=evaluate><parameter=evaluation>\nIt is\nhere.\n</parameter><parameter=score>9</parameter>"
    )
    read = read_turn(FUNCTIONS, f"{text}</function></tool_call>").text
    assert json.loads(read[11:-12])["arguments"] == {"evaluation": "It is\nhere.", "score": 9}
    assert isinstance(EvaluateSolver()._read_alone(read), Evaluate)


def test_a_call_too_long_and_calls_too_many_are_not_read():
    long = f"<tool_call><function=search><parameter=q>{'a' * MAX_CALL_CHARS}</parameter></function></tool_call>"
    assert read_turn(FUNCTIONS, long).rewrites == ()
    many = "<tool_call><function=search></function></tool_call>" * (MAX_CALLS + 3)
    assert len(read_turn(FUNCTIONS, many).rewrites) == MAX_CALLS


def test_the_longest_call_in_python_is_read():
    call = "search(query='')"
    longest = f"<|tool_call_start|>{call[:-2]}{'a' * (2000 - len(call))}')<|tool_call_end|>"
    assert len(read_turn(PYTHON, longest).rewrites) == 1
    assert read_turn(PYTHON, longest.replace("aa", "aaa", 1)).rewrites == ()


def test_a_closing_tag_in_an_argument_does_not_close_the_call():
    text = "<|channel|>commentary to=functions.search<|message|>" + json.dumps({"query_list": ["</tool_call><answer>"]})
    assert ToolCallSolver().read(read_turn(HARMONY, text).text) == Search(("</tool_call><answer>",))


@pytest.mark.parametrize("name", [name for name in WRITTEN if "<think>so</think>" in WRITTEN[name][1]])
def test_a_call_that_is_the_whole_turn_leaves_nothing_of_its_markup(name):
    markup, text = WRITTEN[name]
    assert read_turn(markup, text.replace("<think>so</think>", "").strip()).text == CALL


def test_several_calls_and_the_marks_around_them_are_read():
    one = "<｜tool▁call▁begin｜>search<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
    text = f"a<｜tool▁calls▁begin｜>{one}{one}<｜tool▁calls▁end｜>b<｜tool▁calls▁begin｜>{one}<｜tool▁calls▁end｜>"
    read = '<tool_call>{"name": "search", "arguments": {}}</tool_call>'
    assert read_turn(DEEPSEEK, text).text == f"a{read}{read}b{read}"
    unread = "<｜tool▁call▁begin｜>search<｜tool▁call▁end｜>"
    assert read_turn(DEEPSEEK, unread + one).text == unread + read


@pytest.mark.parametrize("end", ["<|end|>", "<|return|>", "<|eom|>", "<|eot|>", ""])
def test_a_message_leaves_neither_its_header_nor_its_end(end):
    assert read_turn(HARMONY, f"<|channel|>final<|message|>Venn{end}").text == "Venn"
    assert read_turn(HARMONY, f"<|channel|>final<|message|>Venn{end}<|start|>assistant").text == (
        "Venn<|start|>assistant"
    ), "which begins a message that is not there yet"


@pytest.mark.parametrize("markup", [DEEPSEEK, PYTHON, ATEM, GEMMA], ids=lambda markup: markup.name)
def test_a_turn_is_stopped_where_its_calls_end(markup):
    written = [text for other, text in WRITTEN.values() if other is markup]
    assert written and markup.stop and all(text.endswith(markup.stop) for text in written)


def test_a_recipient_before_the_channel_belongs_to_the_call_where_the_template_began_the_message():
    text = ' to=functions.search<|channel|>commentary json<|message|>{"query_list": ["Halm bridge"]}<|call|>'
    assert read_turn(HARMONY, text).text == CALL


def test_a_call_without_named_arguments_is_none():
    text = '<｜tool▁call▁begin｜>search<｜tool▁sep｜>["Halm bridge"]<｜tool▁call▁end｜>'
    assert read_turn(DEEPSEEK, text).text == text


def test_json_after_white_space_is_read_up_to_its_end():
    assert read_json_prefix('to {"k": 3} and', 2) == ({"k": 3}, 11)
    assert read_json_prefix("to nothing", 2) == (None, 2)


def test_letters_of_a_query_are_written_as_they_are():
    assert "Brücke" in write_turn(HARMONY, CALL.replace("bridge", "Brücke"))


def test_the_token_that_ends_a_call_is_one_that_ends_a_turn():
    assert write_turn(HARMONY, CALL).endswith(HARMONY.ends)


@pytest.mark.parametrize("markup", MARKUPS, ids=lambda markup: markup.name)
def test_a_thought_that_is_ended_for_the_model_ends_where_it_is_seen_to(markup):
    """Behind a thought that the template has opened, text is read as no part of it."""
    opened = {HARMONY: "<|channel|>analysis<|message|>", ATEM: " to=self<|message|>", GEMMA: "<|channel>thought\n"}
    text = f"{opened.get(markup, '<think>')}so{markup.thought_end}{markup.begin}<answer>Venn</answer>"
    assert ToolCallSolver().read(read_turn(markup, text).text) == Answer("Venn")
    assert any(stop in markup.thought_end for stop in markup.thought_stop)
    assert "</think>" in markup.thought_stop, "what a model writes that was taught another form"


# ------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("markup", [FUNCTIONS, GLM, HARMONY], ids=lambda markup: markup.name)
@pytest.mark.parametrize("turn", [f"<think>so</think>{CALL}", CALL, "<think>so</think><answer>Venn</answer>"])
def test_a_turn_is_written_as_the_model_would_and_read_as_it_was(markup, turn):
    written = write_turn(markup, turn)
    assert read_turn(markup, written).text == turn


def test_a_thought_is_written_as_one_if_the_turn_begins_with_it():
    thought, answer = "<|channel|>analysis<|message|>so<|end|><|start|>assistant", "<|channel|>final<|message|>Venn"
    assert write_turn(HARMONY, "\n<think>so</think>Venn") == f"{thought}{answer}"
    assert write_turn(HARMONY, f"<think>so</think>{CALL}").startswith(f"{thought}<|channel|>commentary to=functions.")
    assert write_turn(HARMONY, "Venn<think>so</think>") == f"{answer}<think>so</think>"


def test_prompts_show_calls_as_the_model_writes_them():
    prompt = f"To search, write {CALL} and to finish, write <answer>."
    assert "<function=search>\n<parameter=query_list>\n" in write_prompt(FUNCTIONS, prompt)
    assert "<tool_call>search\n<arg_key>query_list</arg_key>" in write_prompt(GLM, prompt)
    mentioned = write_prompt(HARMONY, prompt)
    assert 'write functions.search({"query_list": ["Halm bridge"]}) in the commentary' in mentioned
    assert "<|" not in mentioned  # a control token in a prompt would begin a message
    for markup in (JSON, DEEPSEEK, LLAMA, MISTRAL, GEMMA, PYTHON, ATEM):
        assert write_prompt(markup, prompt) == prompt


VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>|"), max_size=30)
ARGUMENTS = st.fixed_dictionaries({"query_list": st.lists(VALUES, max_size=3), "score": st.integers(0, 10)})


@given(arguments=ARGUMENTS, markup=st.sampled_from([FUNCTIONS, GLM, HARMONY]))
def test_arguments_survive_writing_and_reading(arguments, markup):
    call = json.dumps({"name": "search", "arguments": arguments})
    read = read_turn(markup, write_turn(markup, f"<tool_call>{call}</tool_call>")).text
    assert json.loads(read.removeprefix("<tool_call>").removesuffix("</tool_call>")) == json.loads(call)


# ------------------------------------------------------------------------------------------------------- choosing


@pytest.mark.parametrize(
    ("template", "markup"),
    [
        ("<tool_call>\n<function=example_function_name>\n<parameter=a>", FUNCTIONS),
        ("<tool_call>{name}\n<arg_key>{key}</arg_key>", GLM),
        ("<|start|>assistant<|channel|>commentary<|message|>{}<|call|>", HARMONY),
        ("<|start|>assistant to=self<|message|><atem:invoke name=", ATEM),
        ('<|tool_call>call:f{a:<|"|>b<|"|>}<tool_call|>', GEMMA),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", DEEPSEEK),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", MISTRAL),
        ("<|tool_call_start|>[f()]<|tool_call_end|>", PYTHON),
        ('<|start_header_id|>{"name": f, "parameters": dictionary}', LLAMA),
        ('<tool_call>{"name": f, "arguments": {}}</tool_call>', JSON),
        ("", JSON),
    ],
)
def test_a_markup_is_chosen_by_what_a_template_writes(template, markup):
    assert choose_markup(template) is markup


# --------------------------------------------------------------------------------------------------------- fuzzed

SOUP = st.sampled_from(
    [
        *(
            "<tool_call>",
            "</tool_call>",
            "<function=search>",
            "</function>",
            "<parameter=a>",
            "</parameter>",
            "<think>",
        ),
        *(
            "</think>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
            "search\n",
            "<|channel|>",
            "<|message|>",
        ),
        *("analysis", " to=functions.search", " to=self", "<|end|>", "<|call|>", "<|start|>", "assistant", "<|eom|>"),
        *(
            "<|channel>",
            "<channel|>",
            "thought",
            "<|tool_call>",
            "<tool_call|>",
            "call:search{",
            '<|"|>',
            "}",
            "{",
            "[",
        ),
        *(
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "```json",
            "```",
            "<｜tool▁call▁end｜>",
            "]",
        ),
        *("[TOOL_CALLS]", "[ARGS]", "<|tool_call_start|>", "<|tool_call_end|>", '{"name": "search", "arguments": {}}'),
        *("[search(a=1)]", "<answer>", "</answer>", '"', ",", "\n", " ", "é", "1", "\ud800", "\x00"),
    ]
)


@given(text=st.lists(SOUP, max_size=30).map("".join), markup=st.sampled_from(MARKUPS))
def test_any_text_is_read_and_every_place_is_found_again(text, markup):
    read = read_turn(markup, text)
    end = 0
    for rewrite in read.rewrites:
        assert end <= rewrite.start <= rewrite.end <= len(text)
        end = rewrite.end
    origins = [read.find_origin(offset) for offset in range(len(read.text) + 1)]
    assert origins == sorted(origins)
    assert all(0 <= origin <= len(text) for origin in origins)
    inside = {place for rewrite in read.rewrites for place in range(rewrite.start, rewrite.end)}
    for offset, origin in enumerate(origins[:-1]):
        assert origin in inside or text[origin] == read.text[offset]
    assert ToolCallSolver().read(read.text) is not None
