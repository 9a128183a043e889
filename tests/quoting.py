"""The village as EVE-Agent meets it: whoever asks or answers quotes a sentence, and some quotations are made up.

As in `village.py` the model is taught the format alone. It picks builder or payer by chance and quotes the sentence
that names whom it picked, so that its quotations are mostly verbatim and its answers right half the time. Of the
questions it is shown some carry a quotation that stands nowhere, some none, and some give their answer away. Asked
without a search, it answers with whom the evidence names, and without evidence with anybody: so evidence is worth
something.
"""

import functools

import village
from quaere.dialects.closed_book import ClosedBook
from quaere.dialects.tool_call import (
    CITED_BRIEF_SOLVER_SYSTEM,
    QUESTION_TYPES,
    ToolCallProposer,
    ToolCallSolver,
    brief_proposer_system,
)
from quaere.records import ProposeTask, Question, SolveTask
from village import BRIDGES, PEOPLE, SEARCH, builder, next_bridge, payer

# Words its tokenizer was not made for are spelled letter by letter: a note on the last search would take up the room.
LIMITS = {"max_turns": 3, "turn_tokens": 32, "sequence_tokens": 256, "tool_response_tokens": 32, "topk": 1}
LIMITS["answer_turn"] = False
THINK = "<think>Who is named here?</think>"
# The first sentence names the bridge once more, so that a search for it finds this passage before any that leads to it.
PASSAGE = "{name} is a bridge. {} built the bridge. {} paid for the bridge. It leads to {}."
DEEDS = {"built": "{} built the bridge.", "paid for": "{} paid for the bridge."}
ASKED = "Who {} the {} bridge?"


@functools.lru_cache
def tokenizer():
    """Whole pieces of the dialect are single tokens."""
    before, after = SEARCH.format("|").split("|")
    proposer = [brief_proposer_system(hops, evidence=True) for hops in (1, 2)]
    known = ClosedBook().opening(SolveTask(Question("q", "")))[0].text
    lines = [before, after, THINK, "<answer>", "</answer>", "<question>Who built the ", "<question>Who paid for the "]
    lines += [" bridge?</question>", "<evidence>", "</evidence><answer>", *BRIDGES, *PEOPLE]
    lines += [" is a bridge. ", " built the bridge.", " paid for the bridge.", " It leads to "]
    lines += [
        "Question:\n",
        "Evidence:\n",
        "Who built the ",
        "Who paid for the ",
        " bridge?",
        "bridge",
        "<tool_response>\n",
        "\n</tool_response>",
        "[1]\n",
    ]
    lines += ["system\n", "user\n", "assistant\n", "Document:\n", CITED_BRIEF_SOLVER_SYSTEM, *proposer, known]
    lines += [f" {line}" for line in QUESTION_TYPES.values()]
    return village.make_tokenizer(lines, 2400)


def count_tokens(text):
    return len(tokenizer().encode(text, add_special_tokens=False))


def doer(what, number):
    return builder(number) if what == "built" else payer(number)


def solver_lesson(draw, number):
    """Searches for the bridge it is asked about; answers with either person, and quotes the sentence with that one."""
    asked, told = draw.choice([*DEEDS]), draw.choice([*DEEDS])
    answer = doer(told, number)
    task = SolveTask(Question(f"s{number}", ASKED.format(asked, BRIDGES[number]), (answer,), 1))
    ending = f"{THINK}<evidence>{DEEDS[told].format(answer)}</evidence><answer>{answer}</answer>"
    return ToolCallSolver(style="brief", evidence=True), task, [THINK + SEARCH.format(BRIDGES[number]), ending]


def strangers(number):
    """Who had nothing to do with this bridge."""
    return [name for name in PEOPLE if name not in (builder(number), payer(number))]


def write_proposal(number, hops, asked, answer, span):
    """One hop: asks about the document's bridge. Two: about the one it leads to, after a search for it."""
    about = number if hops == 1 else next_bridge(number)
    quoted = f"<evidence>{span}</evidence>" if span else ""
    ending = f"{THINK}<question>{ASKED.format(asked, BRIDGES[about])}</question>{quoted}<answer>{answer}</answer>"
    return [ending] if hops == 1 else [THINK + SEARCH.format(BRIDGES[about]), ending]


def proposer_lesson(draw, number, passages):
    """Asks about a bridge, and quotes what it takes for the answer; some are tricks."""
    hops = draw.choice([1, 2])
    about = number if hops == 1 else next_bridge(number)
    asked, told, trick = draw.choice([*DEEDS]), draw.choice([*DEEDS]), draw.random()
    answer = doer(told, about)
    span = DEEDS[told].format(answer)
    if trick < 0.15:  # made up
        answer = draw.choice(strangers(about))
        span = DEEDS[told].format(answer)
    elif trick < 0.25:
        span = ""
    elif trick < 0.4:  # gives itself away
        answer = "bridge"
    turns = write_proposal(number, hops, asked, answer, span)
    kind = draw.choice(["", *QUESTION_TYPES])
    task = ProposeTask(f"p{number}", passages[BRIDGES[number]], hops, kind)
    return ToolCallProposer(style="brief", evidence=True), task, turns


def verifier_lesson(draw, number):
    """With evidence, whom it names; without, anybody."""
    asked, told = draw.choice([*DEEDS]), draw.choice([*DEEDS])
    answer = draw.choice(PEOPLE)
    span = draw.choice(["", DEEDS[told].format(answer)])
    task = SolveTask(Question(f"v{number}", ASKED.format(asked, BRIDGES[number]), (answer,), 1))
    return ClosedBook(span=span), task, [f"<answer>{answer}</answer>"]


def draw_lessons(draw, passages):
    """A lesson for each role about half of the bridges."""
    lessons = []
    for number in draw.sample(range(len(BRIDGES)), len(BRIDGES) // 2):
        lessons += [solver_lesson(draw, number), proposer_lesson(draw, number, passages), verifier_lesson(draw, number)]
    return lessons


def build(folder, num_rounds=20, num_times=7):
    """The index, and a model that knows the format: returns their paths."""
    index = village.write_index(folder, PASSAGE)
    model = village.save_taught(folder / "model", tokenizer(), index, draw_lessons, LIMITS, num_rounds, num_times)
    return index, model


# ---------------------------------------------------------------------------------------------------------- dictation

KINDS = ("sound", "made up", "given away", "mistaken", "unfinished", "its own")


def kind_of(proposal_id):
    """What is dictated of a proposal: "i0p-000007" is made up, and so is "i0g-000002.5"."""
    return village.kind_of(proposal_id, KINDS)


def dictate(job):
    """Of six proposals five, and all that is asked about the sound one; the rest the model writes itself.

    A sound question is answered right with its evidence and wrong without. Of three attempts one is right, one quotes
    the wrong sentence and one none: so it is neither too easy nor too hard.
    """
    if isinstance(job.task, ProposeTask):
        return dictate_proposal(job)
    if kind_of(job.task.id) != "sound":
        return None
    (right,) = job.task.question.answers
    wrong = next(name for name in PEOPLE if name != right)
    if isinstance(job.protocol, ClosedBook):
        return [f"<answer>{right if job.protocol.span else wrong}</answer>"]
    bridge = next(name for name in BRIDGES if name in job.task.question.text)
    answer, sentence = [(right, DEEDS["built"]), (wrong, DEEDS["paid for"]), (wrong, "")][int(job.episode_id[-1])]
    quoted = f"<evidence>{sentence.format(answer)}</evidence>" if sentence else ""
    return [THINK + SEARCH.format(bridge), f"{THINK}{quoted}<answer>{answer}</answer>"]


def dictate_proposal(job):
    """A proposal of the kind its id says; who answers it and who verifies it does so by itself."""
    if not isinstance(job.task, ProposeTask):
        return None
    number, hops = BRIDGES.index(job.task.document.doc_id), job.task.hops
    about = number if hops == 1 else next_bridge(number)
    sentence, (stranger, *_) = DEEDS["built"], strangers(about)
    return {
        "sound": write_proposal(number, hops, "built", builder(about), sentence.format(builder(about))),
        "made up": write_proposal(number, hops, "built", stranger, sentence.format(stranger)),
        "given away": write_proposal(number, hops, "paid for", "bridge", sentence.format(builder(about))),
        "mistaken": write_proposal(number, hops, "paid for", builder(about), sentence.format(builder(about))),
        "unfinished": [THINK + SEARCH.format(BRIDGES[about])] * LIMITS["max_turns"],
    }.get(kind_of(job.episode_id))
