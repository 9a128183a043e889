"""What the model is asked while questions are written: one short turn each, answered in one line.

    OneLine(word_question(fact)).read("Who built the Halm bridge?") -> Answer(text="Who built the Halm bridge?")

The model was taught nothing, so everything it has to know stands in the prompt. All of a document is quoted text.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.chat.messages import Message, Part, Quoted
from quaere.chat.tools import ToolSchema
from quaere.records import Action, Answer, Failure, Malformed, SearchResult, Task, Turn
from quaere.training.warmup.documents.facts import Fact, Kind, page_name

_BEGINNINGS: dict[Kind, str] = {
    "name": "Who, What, Which, Where or In which",
    "date": "When or In which year",
    "number": "How many, How much or How",
    "description": "What",
}
_ASKING = "You write quiz questions. Each has one short answer. You write the question alone, in one line."
_ANSWERING = (
    "You answer quiz questions. Write the answer alone, in as few words as possible: a name, a date, a number, yes, no."
)


class OneLine:
    """Puts one message to a model and takes the first line it writes.

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
        """Nothing is written for the model."""
        return ""

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The line without quotation marks around it."""
        line = text.strip().partition("\n")[0].strip().strip('"“”').strip()
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
        """Ask again, where the limits leave a turn for it."""
        return Message("user", ("Write one line.",))


def word_question(fact: Fact) -> list[Message]:
    """Ask for a question about the page to which the fact's span is the answer."""
    request = (*_show_fact(fact.passage.title, fact.sentence), *_want_question(fact.name, fact.answer, fact.kind))
    return [Message("system", (_ASKING,)), *_EXAMPLES, Message("user", request)]


def answer_question(question: str, texts: Sequence[str] = ()) -> list[Message]:
    """Ask the question, with texts to read or from memory."""
    shown = [part for text in texts for part in (Quoted(text), "\n\n")]
    return [Message("system", (_ANSWERING,)), Message("user", (*shown, "Question: ", Quoted(question)))]


def word_chain(first: Fact, first_question: str, second_question: str) -> list[Message]:
    """Ask for the second question with the first one's answer described instead of named."""
    return [
        Message("system", (_ASKING,)),
        Message(
            "user",
            (
                "Clue: ",
                Quoted(first_question),
                " ",
                Quoted(first.answer),
                ".\nQuestion: ",
                Quoted(second_question),
                "\n\nRewrite the question so that it does not name ",
                Quoted(f'"{first.answer}"'),
                ". Describe it by the clue instead, with the name ",
                Quoted(f'"{first.name}"'),
                '. For example, the clue "Who painted Marsh Light? Ada Brandt." and the question "Where was Ada Brandt '
                'born?" become "Where was the painter of Marsh Light born?"',
            ),
        ),
    ]


def word_comparison(question: str, names: tuple[str, str], *, first: bool) -> list[Message]:
    """Ask for a question that puts two things side by side, by which of them comes first or last in time."""
    which = "earlier" if first else "later"
    return _compare(
        question,
        names,
        f'Write one question that asks in which case the date is {which}. Name both, with "or" between them. For '
        'example: "Which city was founded ' + which + ', Sall or Ferrin?"',
    )


def word_agreement(question: str, names: tuple[str, str]) -> list[Message]:
    """Ask for a yes-or-no question: is the answer the same for both things?"""
    return _compare(
        question,
        names,
        "Write one question, to be answered by yes or no, that asks whether the answer is the same for both. Name "
        'both. For example: "Do Sall and Ferrin lie in the same country?"',
    )


def _compare(question: str, names: tuple[str, str], request: str) -> list[Message]:
    asked = ("The same was asked about ", Quoted(names[0]), " and about ", Quoted(names[1]), ": ", Quoted(question))
    return [Message("system", (_ASKING,)), Message("user", (*asked, "\n\n", request))]


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


# Who the example is about, what is said, the answer, its kind, and the question.
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
