"""System prompts of the tag dialects: what to write, what a search returns, and what to note about it.

`full` explains the protocol to a model that has never seen it; `brief` reminds a model that was taught it.
"""

from __future__ import annotations

from quaere.chat.protocol import PromptStyle

_FULL = """\
You answer questions by searching a collection of documents. The documents are right, even where they differ from \
what you remember.

Each turn, think briefly inside <think> and </think>, then do exactly one of two things:
- to search, write <search>your query</search>
- to finish, write {finish}

What a search finds comes back between <{results}> and </{results}>. {note}If it does not hold what you need, search \
again with other words; if the question needs several facts, look them up one after another."""

_NOTES = {
    "": "",
    "evaluate": (
        "Open the turn after it with <evaluate>your verdict</evaluate>: either the words in it that answer the "
        "question, or what is still missing, be it a name, a relation, a time or a place. "
    ),
    "refine": (
        "Open the turn after it with <refine>the facts in it that help to answer the question, and nothing "
        "else</refine>. "
    ),
}
_ANSWER = "<answer>the answer alone, as short as possible</answer>"
_CITED_ANSWER = (
    "<evidence>one sentence copied letter for letter from a text you were shown</evidence>, the one your answer rests "
    f"on, and right after it {_ANSWER}"
)

_BRIEF_NOTES = {"": "", "evaluate": " Evaluate what was found.", "refine": " Refine what was found."}


def tag_system(style: PromptStyle, *, results: str, note: str, evidence: bool) -> str:
    """The system prompt for these tags; `note` is "" in a dialect without notes.

    tag_system("brief", results="information", note="evaluate", evidence=False)
    -> "Answer the question. Evaluate what was found. Think, then search or answer."
    """
    if style == "brief":
        task = "Answer the question and quote your evidence." if evidence else "Answer the question."
        return f"{task}{_BRIEF_NOTES[note]} Think, then search or answer."
    return _FULL.format(note=_NOTES[note], finish=_CITED_ANSWER if evidence else _ANSWER, results=results)
