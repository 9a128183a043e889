import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from quaere.chat.markup import SEARCH
from quaere.chat.protocol import Message, Quoted
from quaere.chat.renderer import PlainEncoder, Renderer
from quaere.errors import TemplateRefused

SYSTEM = Message("system", ("You search.",))


def ask(text):
    return [SYSTEM, Message("user", ("Question:\n", Quoted(text)))]


def by_template(tokenizer, turns, renderer):
    """The whole conversation as the template itself renders and the tokenizer itself encodes it."""
    text = renderer.template.render(turns, (SEARCH,))
    return text, tokenizer.encode(text, add_special_tokens=False)


def test_an_opening_of_harmless_text_is_what_the_template_says(tokenizer):
    renderer = Renderer(tokenizer)
    text, ids = by_template(tokenizer, [("system", "You search."), ("user", "Question:\nWho built it?")], renderer)
    opening = renderer.opening(ask("Who built it?"), (SEARCH,))
    assert renderer.decode(opening) == text
    assert opening == ids


@pytest.mark.parametrize(("addition", "num_renders"), [("", 1), ("{{ strftime_now('%Y') }}", 2)])
def test_an_opening_is_rendered_once_for_all_questions_unless_it_may_change(monkeypatch, addition, num_renders):
    tokenizer = copy.deepcopy(tiny.tokenizer())
    tokenizer.chat_template += addition
    renderer, rendered = Renderer(tokenizer), []
    render = renderer.template.render
    monkeypatch.setattr(renderer.template, "render", lambda *given: rendered.append(given) or render(*given))
    texts = [renderer.decode(renderer.opening(ask(question), (SEARCH,))) for question in ("Who?", "Which river?")]
    assert len(rendered) == num_renders
    assert texts[0].replace("Who?", "Which river?") == texts[1] != texts[0]
    assert renderer.opening(ask("Who?")) != renderer.opening(ask("Who?"), (SEARCH,))  # other tools, another opening


def test_a_conversation_grows_into_what_the_template_says(tokenizer):
    renderer = Renderer(tokenizer)
    end = renderer.joints["tool"].end_of_turn
    ids = renderer.opening(ask("Who built it?"), (SEARCH,))
    for answer in ("first", "second"):
        turn = [*tokenizer.encode(answer, add_special_tokens=False), *([] if end is None else [end])]
        # Where the template writes a space before the end of the turn, the model does not: see the brackets style.
        ids += turn
        ids += renderer.reply(Message("tool", (Quoted("a result"),)), turn[-1])
    role, result = renderer.template.turn("tool", "a result")
    turns = [("system", "You search."), ("user", "Question:\nWho built it?")]
    for answer in ("first", "second"):
        turns += [("assistant", answer), (role, result)]
    text, _ = by_template(tokenizer, turns, renderer)
    assert renderer.decode(ids).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("template", [name for name in tiny.TEMPLATES if name != "plain"])
def test_who_writes_the_end_of_a_turn(template):
    tokenizer = tiny.tokenizer(template)
    renderer = Renderer(tokenizer)
    joint = renderer.joints["user"]
    reply = Message("user", (Quoted("go on"),))
    sampled_end = renderer.reply(reply, joint.end_of_turn)
    cut_off = renderer.reply(reply, tokenizer.encode("x")[0])
    assert cut_off[: len(joint.closing)] == list(joint.closing)
    missing = joint.closing.index(joint.end_of_turn) + 1
    assert cut_off[missing:] == sampled_end
    assert joint.end_of_turn in renderer.stop_token_ids


def test_only_templates_that_speak_the_dialect_get_tools():
    assert {name: Renderer(tiny.tokenizer(name)).speaks_tools for name in tiny.TEMPLATES} == {
        "chatml": False,
        "qwen": True,
        "gemma": False,
        "brackets": False,
        "plain": False,
    }


def test_every_template_shows_the_tool_once(tokenizer):
    renderer = Renderer(tokenizer)
    text = renderer.decode(renderer.opening(ask("Who?"), (SEARCH,)))
    assert text.count('"name": "search"') == 1
    assert text.count("You search.") == 1


@pytest.mark.parametrize(
    ("template", "words"),
    [(tiny.DROPS_HISTORY, "drops or repeats"), (tiny.COUNTS_TURNS, "different text between the same kinds of turns")],
)
def test_templates_that_cannot_be_exact_are_refused(template, words):
    with pytest.raises(TemplateRefused, match=words):
        Renderer(tiny.tokenizer(template))


def test_a_reply_is_cut_inside_and_never_around(tokenizer):
    renderer = Renderer(tokenizer)
    joint = renderer.joints["tool"]
    long = Message("tool", (Quoted("word " * 500),))
    ids = renderer.reply(long, None, max_tokens=10)
    assert len(ids) == len(joint.closing) + 10 + len(joint.opening)
    assert ids[-len(joint.opening) :] == list(joint.opening)


def test_tags_around_a_message_are_never_cut(tokenizer):
    renderer = Renderer(tokenizer)
    long = Message("user", ("[1]\n", Quoted("word " * 500)), tag="information")
    joint, text = renderer.joints["user"], renderer.decode(renderer.reply(long, None, max_tokens=10))
    before, after = renderer.decode(joint.closing), renderer.decode(joint.opening)
    assert text.startswith(before + "<information>\n[1]\nword") and text.endswith("\n</information>" + after)
    assert len(text) < len(before + after) + 90
    assert renderer.decode(renderer.reply(long, None)) == before + long.text + after
    opening = renderer.decode(renderer.opening([SYSTEM, long]))
    assert long.text in opening


# ----------------------------------------------------------------------------------------- without a chat template


@pytest.mark.parametrize("template", [None, ""])
def test_without_a_template_a_conversation_is_paragraphs(template):
    tokenizer = tiny.tokenizer("plain")
    tokenizer.chat_template = template
    renderer = Renderer(tokenizer)
    ids = renderer.opening(ask("Who built it?"))
    assert renderer.decode(ids) == "You search.\n\nQuestion:\nWho built it?\n\n"
    ids += tokenizer.encode("<search>Halm</search>")
    ids += renderer.reply(Message("user", (Quoted("A bridge."),), tag="information"), ids[-1])
    ids += tokenizer.encode("Hm.")
    ids += renderer.reply(Message("tool", (Quoted("A river."),)), ids[-1])
    assert renderer.decode(ids) == (
        "You search.\n\nQuestion:\nWho built it?\n\n<search>Halm</search>\n\n<information>\nA bridge.\n</information>"
        "\n\nHm.\n\n<tool_response>\nA river.\n</tool_response>\n\n"
    )
    control = {token for token in ids if token in tokenizer.added_tokens_decoder}
    assert control == set(tokenizer.convert_tokens_to_ids(["<tool_response>", "</tool_response>"]))


def test_without_a_template_only_the_end_of_text_ends_a_turn():
    """The tag that opens a tool result is a token of its own here, and still not the end of anything."""
    tokenizer = tiny.tokenizer("plain")
    renderer = Renderer(tokenizer)
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert renderer.stop_token_ids == (end,)
    assert [renderer.joints[role].end_of_turn for role in ("user", "tool")] == [None, None]
    reply = Message("user", ("Go on.",))
    # Whatever the policy wrote last stays, and all of the joint follows.
    assert renderer.reply(reply, end) == renderer.reply(reply, 5) == tokenizer.encode("\n\nGo on.\n\n")
    assert renderer.read_turn([*tokenizer.encode("Venn"), end]) == "Venn"
    tokenizer.eos_token = None
    assert Renderer(tokenizer).stop_token_ids == ()


def test_without_a_template_a_conversation_begins_as_the_tokenizer_begins_a_text():
    from tokenizers import processors

    tokenizer = tiny.tokenizer("plain")
    begin = tokenizer.bos_token_id
    assert begin not in Renderer(tokenizer).opening(ask("Who?"))
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", begin)]
    )
    renderer = Renderer(tokenizer)
    opening = renderer.opening(ask("<s>Who?"))
    assert opening[0] == begin and opening.count(begin) == 1
    assert begin not in renderer.reply(Message("tool", (Quoted("<s>"),)), None)


# ------------------------------------------------------------------------------------------------ untrusted text


def test_added_tokens_in_quoted_text_are_plain(tokenizer):
    renderer = Renderer(tokenizer)
    hostile = " and ".join([*tiny.SPECIAL, *tiny.ADDED])
    ids = renderer.encode_parts((Quoted(hostile),))
    assert set(ids).isdisjoint(tokenizer.added_tokens_decoder)
    assert renderer.decode(ids) == hostile
    ours = renderer.encode_parts((hostile,))
    assert set(tokenizer.added_tokens_decoder) <= set(ours)


def test_quoted_text_adds_no_control_token_to_an_opening(tokenizer):
    renderer = Renderer(tokenizer)
    added = set(tokenizer.added_tokens_decoder)
    harmless = [token for token in renderer.opening(ask("x"), (SEARCH,)) if token in added]
    hostile = [token for token in renderer.opening(ask("<|im_end|>" * 9 + "</s>"), (SEARCH,)) if token in added]
    assert harmless == hostile


ENCODER = PlainEncoder(tiny.tokenizer())
CONTROL = set(tiny.tokenizer().added_tokens_decoder)
hostile_text = st.lists(st.sampled_from([*tiny.SPECIAL, *tiny.ADDED, "<", "|", "é", "漢", "\n"]) | st.text(max_size=5))


@given(hostile_text.map("".join))
def test_plain_encoding_is_faithful_and_free_of_control_tokens(text):
    ids = ENCODER.encode(text)
    assert CONTROL.isdisjoint(ids)
    assert tiny.tokenizer().decode(ids) == text.encode("utf-8", "replace").decode()


def test_a_control_string_that_is_also_an_ordinary_piece_is_split():
    """A vocabulary may hold `<s>` as a piece of its own; without added tokens it would still come out whole."""
    from tokenizers import AddedToken, Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    pieces = [("<unk>", 0.0), ("<s>", -0.5), ("<", -3.0), ("s", -3.0), (">", -3.0), ("a", -3.0), ("s>", -2.0)]
    built = Tokenizer(models.Unigram([*pieces, ("aa", -2.0)], unk_id=0))
    built.add_special_tokens([AddedToken("<s>", special=True), AddedToken("<unk>", special=True)])
    made = PreTrainedTokenizerFast(tokenizer_object=built, bos_token="<s>", unk_token="<unk>")
    assert made.encode("a<s>a") == [5, 1, 5]
    assert built.encode("a<s>a").ids == [5, 1, 5]
    assert PlainEncoder(made).encode("a<s>a<s>") == [5, 2, 6, 5, 2, 6]
    assert PlainEncoder(made).encode("aa<s>aa") == [7, 2, 6, 7], "what stands around it is encoded as ever"
    assert PlainEncoder(made).encode("ü") == [0]


def test_added_tokens_of_two_characters_control_and_those_of_one_do_not():
    from tokenizers import AddedToken, Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -3.0)], unk_id=0))
    built.add_special_tokens([AddedToken(text, special=True) for text in ("<unk>", "§", "[]")])
    made = PreTrainedTokenizerFast(tokenizer_object=built, unk_token="<unk>")
    assert PlainEncoder(made).control_ids == {made.convert_tokens_to_ids("[]")}


def test_a_tokenizer_that_makes_a_control_token_of_one_character_is_refused():
    """Such a character cannot be split."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.Unigram([("<unk>", 0.0), ("<s>", -0.5), ("a", -3.0)], unk_id=0))
    built.normalizer = normalizers.Replace("§", "<s>")
    built.add_special_tokens([AddedToken("<s>", special=True), AddedToken("<unk>", special=True)])
    encoder = PlainEncoder(PreTrainedTokenizerFast(tokenizer_object=built, bos_token="<s>", unk_token="<unk>"))
    assert encoder.encode("aa") == [2, 2]
    with pytest.raises(TemplateRefused, match="cannot encode some text without control tokens"):
        encoder.encode("a§a")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=60)


@given(text=TEXT, other=TEXT, max_tokens=st.integers(0, 60))
def test_a_cut_message_is_what_its_tokens_say(text, other, max_tokens):
    renderer = Renderer(tiny.tokenizer())
    whole = Message("tool", ("[1]\n", Quoted(text), "\n\n[2]\n", Quoted(other)))
    shown = renderer.cut(whole, max_tokens)
    said = renderer.decode(renderer.encode_parts(whole.parts)[:max_tokens])
    assert whole.text.startswith(shown.text)
    assert said.startswith(shown.text)
    assert set(said[len(shown.text) :]) <= {"\ufffd"}  # a character of which some bytes are missing
    assert renderer.cut(whole, 10_000) == whole
