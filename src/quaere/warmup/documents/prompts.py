"""Prompts for writing questions: one short turn each, answered in one line.

    OneLine(word_question(fact, "plain")).read("Who built Halm bridge?") -> Answer(text="Who built Halm bridge?")

The model is untrained, so the prompt contains all instructions and examples. All text from documents is quoted. What
depends on the kind of text or answer is data: `prompt_examples.py`, all invented, and `BEGINNINGS`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec

from quaere.chat.protocol import Message, OneTurn, Part, Quoted
from quaere.records import Action, Answer, Malformed, Passage, Task, Turn
from quaere.warmup.documents.askable_facts import Fact, Kind
from quaere.warmup.documents.prompt_examples import (
    COMPARISONS,
    DESCRIPTIONS,
    EXAMPLES,
    JUDGED,
    MISSING,
    PROPOSALS,
    QUERIES,
    Form,
    Style,
)

P = ParamSpec("P")

_QUOTED = re.compile(r'["“]([^"“”]*)["”]')
_LABEL = re.compile(r"^(?:Question|Answer|Description|Text|Title|Query|Search): ")
BEGINNINGS: dict[Kind, str] = {
    "option": "Which option, With which or How",
    "identifier": "Which, What or Where",
    "default": "What or Which",
    "quantity": "How long, How much, How many or What",
    "date": "When or In which year",
    "number": "How many, How much, What or Which",
    "quoted": "What, Which or How",
    "name": "Who, What, Which, Where or In which",
    "description": "What",
    "phrase": "What, How, When or Where",
}
_ASKING = (
    "You write questions that people ask about documents. Each has one short answer. The reader of a question has not "
    "seen the text, so the question says which program, page, person or thing it is about. You write the question "
    "alone, in one line."
)
_STYLES: dict[Style, str] = {
    "plain": "Use the words of the text.",
    "everyday": "Use other words than the text, as someone asks who has a problem and has not read it.",
    "short": "Ask in as few words as possible.",
}
_DESCRIBING = (
    "You describe a thing without naming it, by what a text says of it. The description can stand in a sentence in "
    'place of the name, and names the other thing that the text is about. Begin with "the". You write the description '
    "alone, in one line."
)
_REQUESTS = {
    "earlier": "for which of the two is the date earlier?",
    "later": "for which of the two is the date later?",
    "same": "is the answer the same for both, yes or no?",
}
_ANSWERING = (
    "You answer questions. Write the answer alone, in as few words as possible: a name, an option, a value with its "
    "unit, a date, a number, a short phrase, yes, no."
)
_QUERYING = "You search documents. You write the words to search for, in one line, to find the answer of a question."
_JUDGING = (
    "You check questions that were written about a text. Say yes if the question makes sense, can be understood by "
    "someone who has not seen the text, and has this answer and no other. Otherwise say no."
)
_MISSING = (
    "You look for what a text leaves out. You write a question for one short fact that the text does not give, about a "
    "program, page, person or thing that it names, as people ask who hope to find it there. The reader of the question "
    "has not seen the text, so the question says what it is about. You write the question alone, in one line."
)
_PROPOSING = "You turn a question and a proposed answer into a question for yes or no. You write it alone, in one line."


class OneLine(OneTurn):
    """Protocol that puts one prompt to a model and reads the first line of its turn.

    OneLine(messages).read(' "Who built it?" \\n') -> Answer(text="Who built it?")
    """

    name = "one-line"
    reminder = "Write one line."
    stop: tuple[str, ...] = ("\n",)

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)

    def opening(self, task: Task) -> list[Message]:
        """The given messages; the task is ignored."""
        return self.messages

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first line without a label before it or quotation marks around it."""
        line = _LABEL.sub("", text.strip().partition("\n")[0]).strip()
        quoted = _QUOTED.fullmatch(line)  # the whole line, so that a quoted title at one end keeps its marks
        line = quoted[1].strip() if quoted else line
        return Answer(line) if line else Malformed("nothing was written")


# ------------------------------------------------------------------------------------------------------------- prompts


def _prompt(
    system: str, examples: Iterable[tuple[Any, ...]]
) -> Callable[[Callable[P, tuple[Part, ...]]], Callable[P, list[Message]]]:
    """Decorator of a function that writes a request: the result is the whole prompt, with system message and examples.

    An example is a tuple of the function's inputs, followed by the expected line.
    """

    def decorate(ask: Callable[..., tuple[Part, ...]]) -> Callable[P, list[Message]]:
        opening = [Message("system", (system,))]
        for *given, line in examples:
            opening += [Message("user", ask(*given)), Message("assistant", (line,))]

        def write(*args: P.args, **kwargs: P.kwargs) -> list[Message]:
            return [*opening, Message("user", ask(*args, **kwargs))]

        return write

    return decorate


def show_place(passage: Passage) -> str:
    """The passage with its title, and with its path if it is in a folder, whose name often is the program's."""
    file = f"File: {passage.doc_id}\n" if "/" in passage.doc_id else ""
    return f"{file}{passage.titled_text}"


def word_question(fact: Fact, style: Style, name: str) -> list[Message]:
    """The prompt for a question whose answer is the fact's span, in this style; it should contain `name`, if any."""
    return _word_question(show_place(fact.passage), fact.answer, fact.kind, style, name)


@_prompt(_ASKING, EXAMPLES)
def _word_question(text: str, answer: str, kind: Kind, style: Style, name: str) -> tuple[Part, ...]:
    named: tuple[Part, ...] = (" Name ", Quoted(f'"{name}"'), ".") if name else ()
    return (
        Quoted(text),
        "\n\nWrite a question to which the answer is ",
        Quoted(f'"{answer}"'),
        f". Begin with {BEGINNINGS[kind]}. {_STYLES[style]}",
        *named,
        " Do not use a word of the answer.",
    )


def answer_question(question: str, texts: Sequence[str] = ()) -> list[Message]:
    """The prompt to answer the question with these texts; from memory if there are none."""
    shown = [part for text in texts for part in (Quoted(text), "\n\n")]
    return [Message("system", (_ANSWERING,)), Message("user", (*shown, "Question: ", Quoted(question)))]


@_prompt(_QUERYING, QUERIES)
def write_query(question: Part) -> tuple[Part, ...]:
    """The prompt for a search query from the question alone, which is `Quoted` in all but the examples."""
    return ("Question: ", question)


@_prompt(_JUDGING, JUDGED)
def judge_question(text: str, question: str, answer: str) -> tuple[Part, ...]:
    """The prompt for a yes/no verdict: is the question clear without the text, and is this its only answer?"""
    return (Quoted(text), "\n\nQuestion: ", Quoted(question), "\nAnswer: ", Quoted(answer))


@_prompt(_DESCRIBING, DESCRIPTIONS)
def describe_name(text: str, name: str) -> tuple[Part, ...]:
    """The prompt to describe a name by what the text says about it, without using the name."""
    return (Quoted(text), "\n\nDescribe ", Quoted(f'"{name}"'), " without a word of its name.")


@_prompt(_ASKING, COMPARISONS)
def word_pair(question: str, names: tuple[str, str], form: Form) -> tuple[Part, ...]:
    """The prompt for one question that compares two pages: which date is earlier or later, or are they the same?"""
    asked = ("Asked of ", Quoted(names[0]), " and of ", Quoted(names[1]), ": ", Quoted(question))
    return (*asked, f"\nWrite one question: {_REQUESTS[form]} Name both.")


@_prompt(_PROPOSING, PROPOSALS)
def propose_answer(question: str, answer: str) -> tuple[Part, ...]:
    """The prompt to turn a question and a proposed answer into a yes/no question."""
    return ("Question: ", Quoted(question), "\nProposed answer: ", Quoted(answer))


@_prompt(_MISSING, MISSING)
def word_missing(text: str, kind: Kind, name: str) -> tuple[Part, ...]:
    """The prompt for a question of a kind of answer that the text does not give; it should contain `name`, if any."""
    named: tuple[Part, ...] = (" Name ", Quoted(f'"{name}"'), ".") if name else ()
    return (Quoted(text), f"\n\nWrite a question that it does not answer. Begin with {BEGINNINGS[kind]}.", *named)
