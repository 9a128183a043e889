"""The village's solver under templates of today: one that opens thoughts, and three whose calls have a markup."""

import functools

import modern_templates
import village
from quaere.chat.known_markups import choose_markup
from quaere.chat.markup import write_turn
from quaere.dialects.tool_call import BRIEF_SOLVER_SYSTEM
from village import BRIDGES, PEOPLE, SEARCH, THINK

TEMPLATES = {"opens a thought": modern_templates.OPENS_THOUGHT, **modern_templates.CALLS}
LIMITS = {**village.LIMITS, "turn_tokens": 40, "sequence_tokens": 320}


@functools.lru_cache
def tokenizer(name):
    """Whole pieces of the format, in the template's own markup, are single tokens."""
    from tokenizers import AddedToken

    template = TEMPLATES[name]
    controls = modern_templates.control_strings(template)
    markup = choose_markup(template)
    lines = [write_turn(markup, THINK + SEARCH.format("|")), write_turn(markup, f"{THINK}<answer>|</answer>")]
    for control in ("|", "<|constrain|>", *controls):
        lines = [piece for line in lines for piece in line.split(control) if piece]
    lines += [
        *BRIDGES,
        *PEOPLE,
        " built it. ",
        " paid for it. It leads to ",
        "Question:\n",
        "Who built ",
        "Who paid for ",
    ]
    lines += [
        "<tool_response>\n",
        "\n</tool_response>",
        "[1]\n",
        "system\n",
        "user\n",
        "assistant\n",
        BRIEF_SOLVER_SYSTEM,
    ]
    made = village.make_tokenizer(lines, 1200)
    made.add_tokens([AddedToken(text, special=True, normalized=False) for text in (*controls, "<|constrain|>")])
    made.chat_template, made.bos_token = template, "<|im_start|>"
    return made


def draw_lessons(draw, passages):
    """A lesson for the solver about every bridge."""
    return [village.solver_lesson(draw, number) for number in draw.sample(range(len(BRIDGES)), len(BRIDGES))]


def build(folder, name, num_rounds=80):
    """The index and a model that knows the format under this template: returns their paths."""
    index = village.write_index(folder)
    lessons = functools.partial(draw_lessons)
    lessons.__module__ = f"thinking-{name.replace(' ', '-')}"  # each is taught by itself
    return index, village.save_taught(folder / "model", tokenizer(name), index, lessons, LIMITS, num_rounds)
