"""Prompts for writing questions: one short turn each, answered in one line.

    OneLine(word_question(fact, "plain")).read("Who built Halm bridge?") -> Answer(text="Who built Halm bridge?")

The model is untrained, so the prompt holds everything it needs. All text from documents is quoted. What differs between
kinds of text and of answers is data: `EXAMPLES`, all invented, and `BEGINNINGS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from quaere.chat.messages import Message, Part, Quoted
from quaere.chat.tools import ToolSchema
from quaere.records import Action, Answer, Failure, Malformed, Passage, SearchResult, Task, Turn
from quaere.warmup.documents.askable_facts import Fact, Kind

Form = Literal["earlier", "later", "same"]
Style = Literal["plain", "everyday", "short"]

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
_PROPOSING = "You turn a question and a proposed answer into a question for yes or no. You write it alone, in one line."


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


# ------------------------------------------------------------------------------------------------------------- prompts


def word_question(fact: Fact, style: Style, name: str = "") -> list[Message]:
    """The prompt for a question about the passage whose answer is the fact's span; it is to contain `name`."""
    request = _want_question(_show_place(fact.passage), fact.answer, fact.kind, style, name or fact.name)
    return [Message("system", (_ASKING,)), *_EXAMPLES, Message("user", request)]


def answer_question(question: str, texts: Sequence[str] = ()) -> list[Message]:
    """The prompt that asks the question, with texts to read or from memory."""
    shown = [part for text in texts for part in (Quoted(text), "\n\n")]
    return [Message("system", (_ANSWERING,)), Message("user", (*shown, "Question: ", Quoted(question)))]


def write_query(question: str) -> list[Message]:
    """The prompt for a search query from the question alone."""
    return [Message("system", (_QUERYING,)), *_QUERIES, Message("user", ("Question: ", Quoted(question)))]


def describe_name(passage: Passage, name: str) -> list[Message]:
    """The prompt for a description of a name, by what the passage says of it, that does not contain the name."""
    request = _ask_description(_show_place(passage), name)
    return [Message("system", (_DESCRIBING,)), *_DESCRIBED, Message("user", request)]


def word_pair(question: str, names: tuple[str, str], form: Form) -> list[Message]:
    """The prompt for one question that compares two pages: which date is earlier or later, or are they the same?"""
    return [Message("system", (_ASKING,)), *_COMPARED, Message("user", _ask_comparison(question, names, form))]


def propose_answer(question: str, answer: str) -> list[Message]:
    """The prompt for a yes/no question: is this the answer of the question?"""
    return [Message("system", (_PROPOSING,)), *_PROPOSED, Message("user", _ask_proposed(question, answer))]


def _show_place(passage: Passage) -> str:
    """The passage with its titles, and with its file if that is in a folder, which often names the program."""
    file = f"File: {passage.doc_id}\n" if "/" in passage.doc_id else ""
    return f"{file}{passage.titled_text}"


def _want_question(text: str, answer: str, kind: Kind, style: Style, name: str) -> tuple[Part, ...]:
    named: tuple[Part, ...] = (" Name ", Quoted(f'"{name}"'), ".") if name else ()
    return (
        Quoted(text),
        "\n\nWrite a question to which the answer is ",
        Quoted(f'"{answer}"'),
        f". Begin with {BEGINNINGS[kind]}. {_STYLES[style]}",
        *named,
        " Do not use a word of the answer.",
    )


def _ask_description(text: str, name: str) -> tuple[Part, ...]:
    return (Quoted(text), "\n\nDescribe ", Quoted(f'"{name}"'), " without a word of its name.")


def _ask_comparison(question: str, names: tuple[str, str], form: Form) -> tuple[Part, ...]:
    asked = ("Asked of ", Quoted(names[0]), " and of ", Quoted(names[1]), ": ", Quoted(question))
    return (*asked, f"\nWrite one question: {_REQUESTS[form]} Name both.")


def _ask_proposed(question: str, answer: str) -> tuple[Part, ...]:
    return ("Question: ", Quoted(question), "\nProposed answer: ", Quoted(answer))


def _show(*pairs: tuple[tuple[Part, ...], str]) -> list[Message]:
    return [message for asked, line in pairs for message in (Message("user", asked), Message("assistant", (line,)))]


# ------------------------------------------------------------------------------------------------------------ examples


class Example(Struct, frozen=True):
    """A text of some kind, a span of it, and a question for that span in a style; `name` as in `Fact`.

    Example("Ferrin Hall\\nBuilt in 1811.", "1811", "date", "plain", "When was Ferrin Hall built?", "Ferrin Hall")
    """

    text: str
    answer: str
    kind: Kind
    style: Style
    question: str
    name: str = ""


EXAMPLES: tuple[Example, ...] = (
    Example(  # a manual
        "File: tarnctl/restoring.html\nRestoring\nThe restore command reads the volumes in order and stops at the "
        "first damaged one. With --keep-going it skips damaged volumes and restores the rest.",
        "--keep-going",
        "option",
        "everyday",
        "How do I make tarnctl carry on when some of my backup volumes are broken?",
    ),
    Example(  # an encyclopedia
        "Ferrin Town Hall\nFerrin Town Hall stands at the old market. It was finished in 1811, and Marta Oleen "
        "painted its ceiling.",
        "Marta Oleen",
        "name",
        "plain",
        "Who painted the ceiling of Ferrin Town Hall?",
        "Ferrin Town Hall",
    ),
    Example(  # a reference
        "File: heron/settings.md\nHeron Server settings > Network\nidle_timeout: how long a connection may be silent "
        "before it is closed. Default: 90 seconds. Set it to 0 to keep connections open.",
        "90 seconds",
        "quantity",
        "everyday",
        "After how long does Heron Server drop a client that sends nothing, if I change no settings?",
    ),
    Example(  # a table
        "Mossberry API > Limits\nplan: free; requests per hour: 200; storage: 1 GB\nplan: team; requests per hour: "
        "5,000; storage: 50 GB",
        "5,000",
        "number",
        "plain",
        "How many requests per hour does the Mossberry API allow on the team plan?",
    ),
    Example(  # a change log
        "File: apps/pelikan/NEWS.txt\nNEWS > 2.4.1\n- The map no longer crashes on empty tracks.\n- Export to GPX has "
        "moved to the File menu.",
        "File menu",
        "name",
        "everyday",
        "Where do I find saving as GPX since Pelikan 2.4.1?",
    ),
    Example(  # documentation of code
        "quillpdf.Writer\nadd_page(width, height) appends an empty page. close() must be called once; it writes the "
        "index of pages and raises ClosedError if it is called again.",
        "ClosedError",
        "identifier",
        "plain",
        "Which error does close() of a quillpdf Writer raise if it is called again?",
    ),
    Example(  # questions with answers
        "File: support/garnet/faq.html\nFAQ > Can I undo a merge?\nYes, for 30 days. Open History, choose the merge "
        "and press Split. Comments written since then stay with the first record.",
        "30 days",
        "quantity",
        "plain",
        "For how long can a merge be undone in Garnet?",
    ),
    Example(  # a ticket
        "File: tickets/4127.txt\nPrinter queue stuck after update\nThe queue is stuck since the update to Lindow 6.2. "
        "Cause: the spooler starts before the disk is mounted. Fixed by setting spool_delay to 20.",
        "the spooler starts before the disk is mounted",
        "phrase",
        "everyday",
        "Why does my printer queue hang since the update to Lindow 6.2?",
    ),
    Example(  # prose
        "The Salt Road\nCaravans left Osk in spring. They carried salt as far as Veldin, nine days away, and came home "
        "with copper.",
        "copper",
        "phrase",
        "plain",
        "What did the caravans of the Salt Road bring home to Osk?",
    ),
    Example(  # a mail
        "Re: scanner on floor 3\nHi all, the new scanner saves to the share called inbox. Ask Jonna for the door "
        "code, and do not use it while the alarm test runs, on Mondays from 9 to 10.",
        "while the alarm test runs",
        "phrase",
        "everyday",
        "When am I not supposed to use the new scanner on floor 3?",
    ),
)
_EXAMPLES = _show(
    *((_want_question(one.text, one.answer, one.kind, one.style, one.name), one.question) for one in EXAMPLES)
)
_QUERIES = _show(
    *(
        (("Question: ", question), query)
        for question, query in (
            (
                "How do I make tarnctl carry on when some of my backup volumes are broken?",
                "tarnctl skip damaged volumes",
            ),
            ("Who painted the ceiling of Ferrin Town Hall?", "Ferrin Town Hall ceiling painter"),
            (
                "After how long does Heron Server drop a client that sends nothing?",
                "Heron Server idle connection timeout",
            ),
        )
    )
)
_DESCRIBED = _show(
    *(
        (_ask_description(text, name), description)
        for text, name, description in (
            (
                "Ferrin Town Hall\nIt was finished in 1811, and Marta Oleen painted its ceiling.",
                "Marta Oleen",
                "the painter of the ceiling of Ferrin Town Hall",
            ),
            (
                "File: tarnctl/restoring.html\nRestoring\nRestored files keep their owners only if the helper "
                "tarn-chown is installed.",
                "tarn-chown",
                "the helper that keeps the owners of files restored by tarnctl",
            ),
            (
                "Tidewater\nTidewater is a 1974 novel set in the port of Sall.",
                "Sall",
                "the port in which the novel Tidewater is set",
            ),
            (
                "Heron Server settings > Network\nConnections that are silent for too long are closed; see "
                "idle_timeout.",
                "idle_timeout",
                "the Heron Server setting for closing silent connections",
            ),
        )
    )
)
_PROPOSED = _show(
    *(
        (_ask_proposed(question, answer), line)
        for question, answer, line in (
            (
                "Who painted the ceiling of Ferrin Town Hall?",
                "Ada Brandt",
                "Did Ada Brandt paint the ceiling of Ferrin Town Hall?",
            ),
            (
                "What is the default idle_timeout of Heron Server?",
                "90 seconds",
                "Is the default idle_timeout of Heron Server 90 seconds?",
            ),
            (
                "Which option makes tarnctl skip damaged volumes?",
                "--keep-going",
                "Does --keep-going make tarnctl skip damaged volumes?",
            ),
        )
    )
)
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
_COMPARED = _show(*((_ask_comparison(question, names, form), line) for question, names, form, line in _COMPARISONS))
