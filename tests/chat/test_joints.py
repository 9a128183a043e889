"""What a template writes between turns, and what it writes otherwise once a turn is no longer the newest."""

import pytest

import tiny
from modern_templates import CHANNELS, MOVES_SYSTEM, OPENS_THOUGHT, THINKS_AT_LAST, make_tokenizer
from quaere.chat.renderer import Joint, JointText, Renderer, cuts_thoughts, derive_joint
from quaere.chat.template import ChatTemplate
from quaere.errors import TemplateRefused

START, END = "<|im_start|>", "<|im_end|>\n"
OPENING = f"{END}{START}assistant\n"
CHATML = tiny.CHATML


def derive(source, role="user"):
    return derive_joint(ChatTemplate(tiny.tokenizer(source)), role)


def test_a_template_that_only_adds():
    assert derive(CHATML) == JointText(f"{END}{START}user\n", OPENING, END)
    assert derive(CHATML, "tool").closing == f"{END}{START}user\n<tool_response>\n", (
        "a user turn where there are no tools"
    )


def test_a_prompt_that_is_rewritten_is_said():
    counts = "{{ messages | length }} messages\n" + CHATML
    said = ("rewrites the prompt as a conversation grows",)
    assert derive(counts) == JointText(f"{END}{START}user\n", OPENING, END, said)


def test_a_prompt_that_moves_stays_where_an_episode_began():
    joint = derive(MOVES_SYSTEM)
    assert joint == JointText("</s>[INST]", "[/INST]", "</s>", ("moves the prompt to the newest question",))


@pytest.mark.parametrize(
    ("before_turns", "before_the_newest", "differences"),
    [
        ("", "", ()),
        ("", " ", ("begins earlier turns with nothing instead of ' '",)),
        (" ", "", ()),  # a space before the model's text
        ("=", "", ("begins earlier turns with '=' instead of nothing",)),
        ("==", "=", ("begins earlier turns with '=' instead of nothing",)),
        ("=+", "==", ("begins earlier turns with '+' instead of '='",)),
        ("=" * 61, "", (f"begins earlier turns with '{'=' * 60}...' instead of nothing",)),
        ("=" * 60, "", (f"begins earlier turns with '{'=' * 60}' instead of nothing",)),
    ],
)
def test_turns_that_begin_otherwise_are_said_but_for_white_space(before_turns, before_the_newest, differences):
    turn = f"{{% if message.role == 'assistant' %}}{{{{ {before_turns!r} }}}}{{% endif %}}{{{{ message.content }}}}"
    opened = f"assistant\n{{{{ {before_the_newest!r} }}}}"
    source = CHATML.replace("{{ message.content }}", turn).replace("assistant\n", opened)
    assert derive(source).differences == differences


def test_turns_that_end_otherwise_are_said():
    """The newest is closed as `derive_joint` finds it, earlier ones otherwise."""
    source = CHATML.replace(
        "<|im_end|>", "{% if loop.revindex > 3 and message.role == 'assistant' %};{% endif %}<|im_end|>"
    )
    assert derive(source).closing == f"{END}{START}user\n"
    ended = f"{END}{START}user\n"
    assert derive(source).differences == (f"ends earlier turns with {';' + ended!r} instead of {ended!r}",)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (tiny.DROPS_HISTORY, "drops or repeats messages"),
        (tiny.COUNTS_TURNS, "different text between the same kinds of turns"),
        (
            CHATML.replace("{{ message.content }}", "{{ message.content }}{{ message.content }}"),
            "drops or repeats messages",
        ),
    ],
)
def test_a_template_without_a_joint_is_refused(source, reason):
    with pytest.raises(TemplateRefused, match=reason):
        derive(source)


def test_only_the_template_that_cuts_thoughts_is_said_to():
    assert cuts_thoughts(ChatTemplate(make_tokenizer(OPENS_THOUGHT)))
    for kept in (CHATML, CHANNELS, THINKS_AT_LAST):
        assert not cuts_thoughts(ChatTemplate(make_tokenizer(kept)))
    raises = "{% if messages | length > 4 %}{{ raise_exception('too long') }}{% endif %}" + CHATML
    assert not cuts_thoughts(ChatTemplate(tiny.tokenizer(raises)))


def test_who_writes_the_end_of_a_turn():
    joint = Joint(closing=(7, 8, 9), opening=(1,), end_of_turn=5, num_ending=1, other_ends=(6,))
    assert joint.after(5) == joint.after(6) == (8, 9), "the model did"
    assert joint.after(7) == joint.after(None) == (7, 8, 9), "nobody did"
    assert Joint((7,), (1,), end_of_turn=None).after(None) == (7,)
    assert Joint((7, 8), (1,), end_of_turn=5).after(5) == (7, 8), "a template that writes no end"


def test_a_template_that_ends_earlier_turns_otherwise_than_the_model_is_said_to():
    assert "ends earlier turns with '<|end|>' instead of '<|return|>'" in Renderer(make_tokenizer(CHANNELS)).differences
    assert Renderer(tiny.tokenizer()).differences == ()


def test_differences_are_a_line_for_a_user_if_there_are_any():
    said = Renderer(make_tokenizer(CHANNELS)).note
    assert said.startswith("an episode keeps its turns, where the template ") and "ends earlier turns with" in said
    assert Renderer(tiny.tokenizer()).note == ""
