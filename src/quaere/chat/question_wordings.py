"""Wordings of open-ended questions, which call for a report, and a protocol with which a model writes such a question.

    fill_form("How do {X} and {Y} compare?", X="the Oss", Y="the Ild") -> "How do the Oss and the Ild compare?"

There are two disjoint sets of forms: `PRACTICE_FORMS` for practice and `FORMS` for everything else, so that a model is
never evaluated on wordings it was trained on.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from quaere.chat.markup import find_blocks, first_fault, is_text
from quaere.chat.protocol import Message, OneTurn, Quoted
from quaere.records import Action, Malformed, Passage, Proposal, ProposeTask, Task, Turn

OpenKind = Literal["overview", "story", "open", "comparison", "connection", "detail"]
"""Kinds of open questions. About one topic: overview, story (its history), open (what is known and what is not). About
two topics: comparison, connection. About a topic and a term of its document: detail."""
KINDS: tuple[OpenKind, ...] = get_args(OpenKind)
PAIRED: tuple[OpenKind, ...] = ("comparison", "connection", "detail")

FORMS: dict[OpenKind, tuple[str, ...]] = {
    "overview": (
        "What is known of {X}?",
        "What do the documents tell about {X}?",
        "What are the main facts about {X}, and where do they come from?",
        "What should somebody who has never heard of {X} know?",
        "Which facts about {X} are well supported?",
    ),
    "story": (
        "How did {X} come about, and what came of it?",
        "What lies behind {X}, and what followed?",
        "What is the history of {X}, as far as it can be told?",
        "Which people, places and events belong to the history of {X}?",
    ),
    "open": (
        "What do the documents settle about {X}, and what do they leave open?",
        "What can be said of {X} with certainty, and what cannot?",
        "How complete is the picture that the documents give of {X}?",
        "Where does the evidence on {X} end?",
    ),
    "comparison": (
        "How do {X} and {Y} compare?",
        "What do {X} and {Y} have in common, and where do they differ?",
        "In which respects is {X} unlike {Y}?",
        "Set side by side, what distinguishes {X} from {Y}?",
    ),
    "connection": (
        "What connects {X} with {Y}?",
        "How is {Y} related to {X}, and what is known of each?",
        "What part does {Y} play in what is known of {X}?",
        "Why is {Y} named in connection with {X}, and what else is known of both?",
    ),
    "detail": (
        "What does {Y} have to do with {X}?",
        "What do the documents say about {Y} where they speak of {X}?",
        "How does {Y} come into the account of {X}, and why does it matter?",
    ),
}

PRACTICE_FORMS: dict[OpenKind, tuple[str, ...]] = {
    "overview": (
        "What can be found out about {X}?",
        "What do our sources report on {X}?",
        "Could you sum up everything on record about {X}?",
        "What would an encyclopedia entry on {X} have to mention?",
    ),
    "story": (
        "Who and what shaped {X}?",
        "What became of {X}, and who had a hand in it?",
        "Which links lead from {X} to other people and places?",
    ),
    "open": (
        "What is certain about {X}, and what stays unknown?",
        "Which points about {X} are documented, and which are missing?",
        "How much do the sources really say on {X}?",
    ),
    "comparison": (
        "What sets {X} apart from {Y}?",
        "Where do {X} and {Y} agree, and where not?",
        "Could you hold {X} against {Y}?",
    ),
    "connection": (
        "What is the tie between {X} and {Y}?",
        "How do {X} and {Y} belong together, and what else is on record about them?",
    ),
    "detail": ("Where does {Y} come up in the sources on {X}?",),
}


def fill_form(form: str, **slots: str) -> str:
    """The form with its slots filled. Slots in the filled-in text are not replaced again.

    fill_form("What is known of {X}?", X="the {Y}") == "What is known of the {Y}?"
    """
    return re.sub(r"\{(\w+)\}", lambda match: slots[match[1]], form)


# ---------------------------------------------------------------------------------------------- a model's own questions

MIN_WORDS, MAX_WORDS, MAX_CHARS = 4, 40, 300

_SYSTEM = """\
You think of questions for research reports. You are shown a topic and a passage about it. Write one open-ended \
question about the topic: one that takes a report of several paragraphs to answer, not a single name or number. Call \
the topic by its name, and name nothing that the passage does not name. The reader of the question will not see the \
passage, so do not mention it. Write the question alone, between <question> and </question>."""

# Phrases that refer to a passage, which the reader of the question will not see.
LEANING = re.compile(
    r"\b(this|the|that|above|given|following) (passage|text|excerpt|paragraph|article|snippet|sentence)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"[^\W\d_]*[A-Z][\w'’-]*|\d[\d.,]*")


# Few-shot examples for models too small to follow the protocol zero-shot: topic, passage, question.
_EXAMPLES = (
    (
        "Ferrin town hall",
        "The town hall of Ferrin was finished in 1811. Marta Oleen painted its ceiling, and was never paid for it.",
        "How did Ferrin town hall get its ceiling, and what came of it?",
    ),
    (
        "Marta Oleen",
        "Marta Oleen was a painter from the port of Sall. Some of her work was lost in the fire of 1820.",
        "What is known of the life and work of Marta Oleen?",
    ),
)


class QuestionWriter(OneTurn):
    """Protocol with a single turn: the policy writes one open-ended question about a document.

    `topics` maps a task's id to the topic that the question is about. `guided` helps models too small to follow the
    protocol: it adds few-shot examples, opens the turn with `<question>` and ends it at the question mark.

        QuestionWriter({}).read("<question>How did the Oss get its name?</question>").question
        -> "How did the Oss get its name?"
    """

    name = "question-writer"
    reminder = "Put the question between <question> and </question>."

    def __init__(self, topics: Mapping[str, str], *, guided: bool = False) -> None:
        self.topics = topics
        self.guided = guided
        self.stop: tuple[str, ...] = ("</question>", "?") if guided else ("</question>",)

    def opening(self, task: Task) -> list[Message]:
        """The instructions, the examples if guided, then topic and passage."""
        if not isinstance(task, ProposeTask) or task.document is None:
            raise TypeError(f"{self.name} needs a ProposeTask with a document, not a {type(task).__name__}")
        topic, text = Quoted(self.topics[task.id]), Quoted(task.document.titled_text)
        messages = [Message("system", (_SYSTEM,))]
        for name, passage, question in _EXAMPLES if self.guided else ():
            shown = f"Topic:\n{name}\n\nPassage:\n{passage}"
            messages += [Message("user", (shown,)), Message("assistant", (f"<question>{question}</question>",))]
        return [*messages, Message("user", ("Topic:\n", topic, "\n\nPassage:\n", text))]

    def prefix(self, turn: int, is_last: bool) -> str:
        """ "<question>" if guided, else ""."""
        return "<question>" if self.guided else ""

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first `<question>` block outside `<think>`; if guided, the closing tag may be missing."""
        if self.guided and text.endswith("?"):
            text += "</question>"
        for block in find_blocks(text, ("think", "question")):
            if block.name == "question":
                return Proposal(question=" ".join(block.content.split()), answer="")
        return Malformed(reason="there is no question")


def find_question_fault(text: str, topic: str, passage: Passage) -> str:
    """Why a model's question is rejected, in a few words; "" if it is accepted.

    find_question_fault("Why was it built?", "Halm bridge", passage) == "does not name its topic"
    """
    num_words, shown = len(text.split()), f"{topic} {passage.titled_text}".lower()
    # The first word is capitalised in any sentence, so it is no evidence of a name.
    named = [name.lower().strip(".,").removesuffix("'s") for name in _NAME.findall(text.partition(" ")[2])]
    return first_fault(
        (not text.endswith("?") or not is_text(text) or text.count("?") > 2, "is not a question"),
        (num_words < MIN_WORDS, "is too short"),
        (num_words > MAX_WORDS or len(text) > MAX_CHARS, "is too long"),
        (LEANING.search(text) is not None, "speaks of a passage"),
        (topic.lower() not in text.lower(), "does not name its topic"),
        (not all(name in shown for name in named), "names something new"),
    )
