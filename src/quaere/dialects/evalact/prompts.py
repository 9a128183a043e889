"""Prompts of the EvalAct dialect: system prompt, the cue after each score, and how to write each action.

Examples of a call show the letter S as the score: a small model would copy a number as it stands.
"""

from __future__ import annotations

from typing import Literal

from quaere.chat.protocol import CITED_SOLVER_FINISH, SOLVER_FINISH, PromptStyle

ThinkBeforeEvaluate = Literal["allow", "fail"]

SEARCH_CALL = '<tool_call>{"name": "search", "arguments": {"query": "your query"}}</tool_call>'
EVALUATE_CALL = (
    '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "what these passages tell you and what they lack", '
    '"score": S}}</tool_call> with a number from 0 to 10 for S'
)

_FULL = f"""\
You answer questions by searching a collection of documents. The documents are right, even where they differ from \
what you remember.

Each turn, think briefly inside <think> and </think>, then do exactly one of three things and write nothing besides:
- to search, write {SEARCH_CALL}
- to evaluate a search, write {EVALUATE_CALL}
- to finish, {{finish}}

What a search finds comes back between <tool_response> and </tool_response>. The turn after it must be its \
evaluation, once for each search: 0 says that the passages are of no use for the question, 10 that they hold all you \
looked for. Judge honestly, because the score decides what you are advised to do next. After that, search for what is \
missing or finish. Between the tags of the answer stands the answer alone, as short as possible."""
_FULL_NO_THOUGHT = " Do not think in a turn that evaluates: write its call alone."

_BRIEF = "Answer the question. Think, then search or answer. Evaluate each search right after it."
_CITED_BRIEF = (
    "Answer the question and quote your evidence. Think, then search or answer. Evaluate each search right after it."
)
_BRIEF_NO_THOUGHT = " Do not think before evaluating."

CUES = {
    "low": "Leave these passages aside: ask in other words or from another side, and search again.",
    "mid": "Some of this helps: keep to what clearly bears on the question, and search for what is still missing.",
    "high": "Build the answer on these passages; search again only if one particular detail is still missing.",
}
FINAL_CUES = {
    "low": "Leave these passages aside. No searches are left: answer with what you have.",
    "mid": "Some of this helps. No searches are left: answer with what clearly bears on the question.",
    "high": "No searches are left: build the answer on these passages.",
}


def system_prompt(style: PromptStyle, *, evidence: bool, think_before_evaluate: ThinkBeforeEvaluate) -> str:
    """The system prompt.

    system_prompt("brief", evidence=False, think_before_evaluate="allow") -> "Answer the question. Think, then ..."
    """
    if style == "brief":
        words, no_thought = _CITED_BRIEF if evidence else _BRIEF, _BRIEF_NO_THOUGHT
    else:
        words, no_thought = _FULL.replace("{finish}", finish(evidence)), _FULL_NO_THOUGHT
    return words + (no_thought if think_before_evaluate == "fail" else "")


def finish(evidence: bool) -> str:
    """The instruction for ending the episode with an answer.

    finish(evidence=False) -> "put the answer between <answer> and </answer>"
    """
    return CITED_SOLVER_FINISH if evidence else SOLVER_FINISH
