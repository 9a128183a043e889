"""Prompts for writing questions: one short turn each, answered in one line.

    OneLine(word_question(fact)).read("Who built the Halm bridge?") -> Answer(text="Who built the Halm bridge?")

The model is untrained, so the prompt holds everything it needs. All text from documents is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from quaere.chat.messages import Message, Part, Quoted
from quaere.chat.tools import ToolSchema
from quaere.records import Action, Answer, Failure, Malformed, SearchResult, Task, Turn
from quaere.warmup.documents.askable_facts import Fact, Kind, page_name

Form = Literal["earlier", "later", "same"]

_QUOTED = re.compile(r'["“]([^"“”]*)["”]')
_LABEL = re.compile(r"^(?:Question|Answer|Description|Text|Title): ")
_BEGINNINGS: dict[Kind, str] = {
    "name": "Who, What, Which, Where or In which",
    "date": "When or In which year",
    "number": "How many, How much or How",
    "description": "What",
}
_ASKING = "You write quiz questions. Each has one short answer. You write the question alone, in one line."
_DESCRIBING = (
    "You describe the answer of a question without naming it, so that the description can stand in a sentence. Begin "
    'with "the". You write the description alone, in one line.'
)
_REQUESTS = {
    "earlier": "for which of the two is the date earlier?",
    "later": "for which of the two is the date later?",
    "same": "is the answer the same for both, yes or no?",
}
_ANSWERING = (
    "You answer quiz questions. Write the answer alone, in as few words as possible: a name, a date, a number, yes, no."
)


class OneLine:
    """Protocol that puts one prompt to a model and reads the first line of its turn.

    OneLine(messages).read(' "Who built it?" \\n') -> Answer(text="Who built it?")
    """

    name = "one-line"
    tools: tuple[ToolSchema, ...] = ()
    stop: tuple[str, ...] = ("\n",)
    marks: tuple[str, ...] = ()
    turns_per_search = 1

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)

    def opening(self, task: Task) -> list[Message]:
        """The messages, whatever the task."""
        return self.messages

    def prefix(self, turn: int, is_last: bool) -> str:
        """Always "": the model writes its turn from the first token on."""
        return ""

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first line without a label before it or quotation marks around it."""
        line = _LABEL.sub("", text.strip().partition("\n")[0]).strip()
        quoted = _QUOTED.fullmatch(line)  # the whole line, so that a quoted title at one end keeps its marks
        line = quoted[1].strip() if quoted else line
        return Answer(line) if line else Malformed("nothing was written")

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """A request to write one line, used where the limits allow another turn."""
        return Message("user", ("Write one line.",))


def word_question(fact: Fact) -> list[Message]:
    """The prompt for a question about the page whose answer is the fact's span."""
    request = (*_show_fact(fact.passage.title, fact.sentence), *_want_question(fact.name, fact.answer, fact.kind))
    return [Message("system", (_ASKING,)), *_EXAMPLES, Message("user", request)]


def answer_question(question: str, texts: Sequence[str] = ()) -> list[Message]:
    """The prompt that asks the question, with texts to read or from memory."""
    shown = [part for text in texts for part in (Quoted(text), "\n\n")]
    return [Message("system", (_ANSWERING,)), Message("user", (*shown, "Question: ", Quoted(question)))]


def describe_answer(question: str, answer: str) -> list[Message]:
    """The prompt for a description of the answer, made from the question, that does not name the answer."""
    return [Message("system", (_DESCRIBING,)), *_DESCRIBED, Message("user", _ask_description(question, answer))]


def word_pair(question: str, names: tuple[str, str], form: Form) -> list[Message]:
    """The prompt for one question that compares two pages: which date is earlier or later, or are they the same?"""
    return [Message("system", (_ASKING,)), *_COMPARED, Message("user", _ask_comparison(question, names, form))]


def _ask_description(question: str, answer: str) -> tuple[Part, ...]:
    return ("Question: ", Quoted(question), "\nAnswer: ", Quoted(answer))


def _ask_comparison(question: str, names: tuple[str, str], form: Form) -> tuple[Part, ...]:
    asked = ("Asked of ", Quoted(names[0]), " and of ", Quoted(names[1]), ": ", Quoted(question))
    return (*asked, f"\nWrite one question: {_REQUESTS[form]} Name both.")


def _show_fact(title: str, sentence: str) -> tuple[Part, ...]:
    return ("Title: ", Quoted(title), "\nText: ", Quoted(sentence))


def _want_question(name: str, answer: str, kind: Kind) -> tuple[Part, ...]:
    return (
        "\n\nWrite a question to which the answer is ",
        Quoted(f'"{answer}"'),
        f". Begin with {_BEGINNINGS[kind]}. Name ",
        Quoted(f'"{name}"'),
        ". Do not use a word of the answer.",
    )


# Title, sentence, answer, kind of the answer, and question of each example.
_FACTS: tuple[tuple[str, str, str, Kind, str], ...] = (
    (
        "Ferrin Town Hall",
        "It was finished in 1811, and Marta Oleen painted its ceiling.",
        "Marta Oleen",
        "name",
        "Who painted the ceiling of Ferrin Town Hall?",
    ),
    (
        "Ada Brandt (botanist)",
        "Ada Brandt (3 May 1871 – 1940) was a Danish botanist, known for her work on mosses of the Faroe Islands.",
        "3 May 1871",
        "date",
        "When was Ada Brandt born?",
    ),
    (
        "Tidewater",
        "Tidewater is a 1974 novel about a family of pilots in the port of Sall.",
        "Sall",
        "name",
        "In which port is the novel Tidewater set?",
    ),
)
_EXAMPLES = [
    message
    for title, text, answer, kind, question in _FACTS
    for message in (
        Message("user", (*_show_fact(title, text), *_want_question(page_name(title), answer, kind))),
        Message("assistant", (question,)),
    )
]
_DESCRIBED = [
    message
    for question, answer, description in (
        (
            "Who painted the ceiling of Ferrin Town Hall?",
            "Marta Oleen",
            "the painter of the ceiling of Ferrin Town Hall",
        ),
        ("In which port is the novel Tidewater set?", "Sall", "the port in which the novel Tidewater is set"),
        ("Which river does Halm Bridge cross?", "Oss", "the river that Halm Bridge crosses"),
        ("What band did Ada Brandt play in?", "Grey Coast", "the band that Ada Brandt played in"),
    )
    for message in (Message("user", _ask_description(question, answer)), Message("assistant", (description,)))
]
_COMPARISONS: tuple[tuple[str, tuple[str, str], Form, str], ...] = (
    (
        "When was Grey Coast released?",
        ("Grey Coast", "Low Water"),
        "earlier",
        "Which was released earlier, Grey Coast or Low Water?",
    ),
    (
        "Where was Marta Oleen born?",
        ("Marta Oleen", "Ada Brandt"),
        "same",
        "Were Marta Oleen and Ada Brandt born in the same place?",
    ),
    (
        "In which country does Sall lie?",
        ("Sall", "Ferrin"),
        "same",
        "Do Sall and Ferrin lie in the same country?",
    ),
    (
        "When was Tidewater published?",
        ("Tidewater", "Marsh Light"),
        "later",
        "Which was published later, Tidewater or Marsh Light?",
    ),
    (
        "Who directed Grey Coast?",
        ("Grey Coast", "Low Water"),
        "same",
        "Were Grey Coast and Low Water directed by the same person?",
    ),
    (
        "When was Ada Brandt born?",
        ("Ada Brandt", "Marta Oleen"),
        "earlier",
        "Who was born earlier, Ada Brandt or Marta Oleen?",
    ),
)
_COMPARED = [
    message
    for question, names, form, wording in _COMPARISONS
    for message in (Message("user", _ask_comparison(question, names, form)), Message("assistant", (wording,)))
]
