"""One turn of a demonstration as its dialect writes it: what is thought, noted and done is the same, the signs differ.

write_search("drzero", "I look it up.", "Halm bridge")
-> '<think>I look it up.</think>\\n<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}...'
write_search("evalrar", "I look it up.", "Halm bridge", note="No builder is named.")
-> '<evaluate>No builder is named.</evaluate>\\n<think>I look it up.</think>\\n<search>Halm bridge</search>'
"""

from __future__ import annotations

import json

from quaere.warmup.dialects import Dialect, note_tag

_CALLS = {"drzero": "query_list", "eve": "query_list", "evalact": "query"}  # the others have tags


def write_search(dialect: Dialect, thought: str, query: str, note: str = "") -> str:
    """A turn that searches, opened by a note on the search before where the dialect has notes."""
    name = _CALLS.get(dialect)
    if name is None:
        return f"{_note(dialect, note)}{_think(thought)}<search>{query}</search>"
    return _think(thought) + _call("search", {name: [query] if name == "query_list" else query})


def write_evaluation(thought: str, text: str, score: int) -> str:
    """EvalAct's turn that says what a search was worth, with a thought before it or none.

    write_evaluation("", "Passage 2 names her.", 9)
    -> '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "Passage 2 names her.", "score": 9}}</tool_call>'
    """
    return (_think(thought) if thought else "") + _call("evaluate", {"evaluation": text, "score": score})


def write_answer(dialect: Dialect, thought: str, answer: str, *, span: str = "", note: str = "") -> str:
    """The solver's last turn, with the sentence it quotes if it quotes one."""
    return f"{_note(dialect, note)}{_think(thought)}{_quote(span)}<answer>{answer}</answer>"


def write_proposal(thought: str, question: str, answer: str, span: str = "") -> str:
    """The proposer's last turn, with the sentence it quotes if it quotes one."""
    return f"{_think(thought)}<question>{question}</question>{_quote(span)}<answer>{answer}</answer>"


def _think(thought: str) -> str:
    return f"<think>{thought}</think>\n"


def _call(name: str, arguments: dict[str, object]) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"


def _quote(span: str) -> str:
    return f"<evidence>{span}</evidence>" if span else ""


def _note(dialect: Dialect, note: str) -> str:
    tag = note_tag(dialect)
    return f"<{tag}>{note}</{tag}>\n" if tag and note else ""
