"""The EvalAct dialect: JSON calls, and an evaluation with a score after each search, in a turn of its own.

    <think>I need the builder.</think>
    <tool_call>{"name": "search", "arguments": {"query": "builder of the Halm bridge"}}</tool_call>

    <tool_call>{"name": "evaluate", "arguments": {"evaluation": "Passage 2 names her.", "score": 9}}</tool_call>

    <think>That is all I need.</think><answer>Orsolya Venn</answer>

The environment answers a score with a cue; it reads neither the evaluation's text nor the passages. Two checks keep
searches and evaluations paired: after an executed search, `read` accepts only an evaluation, and `format_fault` checks
the whole episode afterwards. A search that failed or exceeded the search limit returned nothing to evaluate: it needs
no evaluation and is no format fault.
"""

import math
import re
from collections.abc import Sequence
from typing import Literal

from msgspec import structs

from quaere.chat.markup import Block, CallRefused, ToolSchema, find_blocks, is_text, read_call
from quaere.chat.protocol import (
    CITED_SOLVER_FINISH,
    LAST_SEARCH,
    SOLVER_FINISH,
    STOP,
    Acted,
    Message,
    PromptStyle,
    read_answer,
    read_query,
    was_searched,
)
from quaere.dialects.roles import SolverProtocol, no_action
from quaere.records import Action, Answer, EndReason, Evaluate, Malformed, Search, Turn

# ------------------------------------------------------------------------------------------------------------- prompts

ThinkBeforeEvaluate = Literal["allow", "fail"]

# Examples of a call show the letter S as the score: a small model would copy a number.
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


# ------------------------------------------------------------------------------------------------------------ protocol

BadScore = Literal["format_fail", "clamp"]

MAX_EVALUATION_CHARS = 2000
_MOST = 10

SEARCH_ONE = ToolSchema(
    name="search",
    description="Look passages up in the document collection. Evaluate what comes back in your next turn.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "One complete search query."}},
        "required": ["query"],
    },
)
EVALUATE = ToolSchema(
    name="evaluate",
    description="Say what the search just before this was worth. Once after every search.",
    parameters={
        "type": "object",
        "properties": {
            "evaluation": {"type": "string", "description": "What the passages tell you and what they lack."},
            "score": {"type": "number", "minimum": 0, "maximum": _MOST, "description": "0: no use, 10: all you need."},
        },
        "required": ["evaluation", "score"],
    },
)
TOOLS = (SEARCH_ONE, EVALUATE)

UNEVALUATED = "the last search is not evaluated yet"
NOTHING_TO_EVALUATE = "no search waits for an evaluation"
BAD_SCORE = "the score must be a number from 0 to 10"
BAD_EVALUATION = "the evaluation must be a text that is not empty"
LONG_EVALUATION = f"the evaluation may have at most {MAX_EVALUATION_CHARS} characters"
_BAD_EVALUATES = (BAD_SCORE, BAD_EVALUATION, LONG_EVALUATION)


class EvaluateSolver(SolverProtocol):
    """Protocol of a solver that evaluates each search before its next search or its answer.

    `bad_score` decides what happens to a score that is out of bounds or written as text: `format_fail` makes the turn
    malformed, `clamp` takes the nearest valid score. `think_before_evaluate="fail"` asks for evaluations without a
    thought; `format_fault` reports violations.

        solver = EvaluateSolver()
        solver.read('<tool_call>{"name": "search", "arguments": {"query": "Halm"}}</tool_call>') -> Search(("Halm",))
    """

    name = "evalact-solver"
    stop: tuple[str, ...] = STOP
    marks: tuple[str, ...] = ("tool_call", "answer")
    turns_per_search = 2
    failed = "The search could not be carried out. There is nothing to evaluate; you may search again."
    spent = "No searches are left, and there is nothing to evaluate."
    advice = f"To search, write {SEARCH_CALL}. To finish,"

    def __init__(
        self,
        *,
        style: PromptStyle = "full",
        evidence: bool = False,
        bad_score: BadScore = "format_fail",
        think_before_evaluate: ThinkBeforeEvaluate = "allow",
        abstention: bool = False,
    ) -> None:
        super().__init__(style=style, evidence=evidence, abstention=abstention)
        self.bad_score, self.think_before_evaluate = bad_score, think_before_evaluate
        self.tools: tuple[ToolSchema, ...] = TOOLS if style == "full" else ()
        if style == "brief":
            words, no_thought = _CITED_BRIEF if evidence else _BRIEF, _BRIEF_NO_THOUGHT
        else:
            finish = CITED_SOLVER_FINISH if evidence else SOLVER_FINISH
            words, no_thought = _FULL.replace("{finish}", finish), _FULL_NO_THOUGHT
        self.system = words + (no_thought if think_before_evaluate == "fail" else "")

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The turn's one action, `Malformed` if it is out of order.

        While a search has no evaluation yet, only an evaluation is accepted; at any other time only a search or an
        answer. A malformed turn leaves the search without its evaluation.
        """
        action, waits = self._read_alone(text), search_waits(earlier)
        if isinstance(action, Evaluate) or (isinstance(action, Malformed) and action.reason in _BAD_EVALUATES):
            return action if waits else Malformed(NOTHING_TO_EVALUATE)
        if waits:
            return Malformed(f"{action.reason}, and {UNEVALUATED}" if isinstance(action, Malformed) else UNEVALUATED)
        return action

    def reply(self, acted: Acted, earlier: Sequence[Turn] = (), *, final: bool = False) -> Message:
        """Passages, the cue for a score, or the error and what to write next, always in fixed words."""
        action, results, failure = acted
        if isinstance(action, Evaluate):
            return Message("tool", (cue(action.score, final=final),))
        if isinstance(action, Malformed) and (action.reason.endswith(UNEVALUATED) or action.reason in _BAD_EVALUATES):
            following = f"Before anything else, evaluate the last search: write {EVALUATE_CALL}."
            return Message("user", (f"{self.refused}: {action.reason}. {following}",))
        if final and isinstance(action, Search) and failure is None:
            shown = self.show(results, earlier)
            return structs.replace(shown, note=f"{LAST_SEARCH} Evaluate it, then {self.finish}.")
        return super().reply(acted, earlier, final=final)

    def _read_alone(self, text: str) -> Action:
        """The action of a turn, regardless of the turns before it."""
        names = ("think", "tool_call", "answer", *(("evidence",) if self.evidence else ()))
        blocks = [block for block in find_blocks(text, names) if block.name != "think"]
        acts = [block for block in blocks if block.name != "evidence"]
        if len(acts) > 1:
            return Malformed("a turn holds one tool call or one answer, not several")
        if not acts:
            return no_action(text, ("tool_call", "answer"), "there is neither a tool call nor an answer")
        (act,) = acts
        if act.name == "tool_call":
            return self._read_call(act)
        quoted = [block for block in blocks if block.name == "evidence" and block.start < act.start]
        return self.mark(read_answer(act, quoted[-1] if quoted else None))

    def _read_call(self, block: Block) -> Action:
        try:
            call = read_call(block.content, TOOLS)
            if call.name == SEARCH_ONE.name:
                query = call.arguments.get("query")
                if not isinstance(query, str) or not query.strip():
                    return Malformed("the query must be a text that is not empty")
                return read_query(Block("query", query, 0, 0))
            text = call.arguments.get("evaluation")
            # A lone surrogate cannot be encoded as UTF-8, so the episode could not be stored.
            if not isinstance(text, str) or not text.strip() or not is_text(text):
                return Malformed(BAD_EVALUATION)
            if len(text.strip()) > MAX_EVALUATION_CHARS:
                return Malformed(LONG_EVALUATION)
            return Evaluate(text.strip(), _read_score(call.arguments.get("score"), self.bad_score))
        except CallRefused as refusal:
            return Malformed(reason=str(refusal))


def search_waits(earlier: Sequence[Turn]) -> bool:
    """True if the last executed search has not been evaluated yet.

    search_waits([Turn(..., action=Search(("Halm",)), results=(SearchResult("Halm", ()),))]) -> True
    """
    last = next((turn for turn in reversed(earlier) if isinstance(turn.action, Evaluate) or was_searched(turn)), None)
    return last is not None and not isinstance(last.action, Evaluate)


def cue(score: float, *, final: bool = False) -> str:
    """The environment's reply to a score: low up to 3, mid up to 7, high above.

    A `final` cue advises to answer; the other cues may advise another search.

    cue(7) -> "Score 7/10, mid. Some of this helps: ..."
    """
    if not 0 <= score <= _MOST:
        raise ValueError(f"a score is a number from 0 to {_MOST}, not {score}")
    tier = "low" if score <= 3 else "mid" if score <= 7 else "high"
    # All digits are shown: 7.0000001 counts as high, and a rounded "7/10, high" would contradict the tiers.
    return f"Score {repr(float(score)).removesuffix('.0')}/{_MOST}, {tier}. {(FINAL_CUES if final else CUES)[tier]}"


def format_fault(turns: Sequence[Turn], end: EndReason, *, think_before_evaluate: ThinkBeforeEvaluate = "allow") -> str:
    """Which format rule an episode breaks, or "" if it keeps them all.

    Only the policy's text and the actions read from it count, never the environment's replies. The format holds if the
    policy answered, every turn could be read, nothing but white space stands outside thoughts and the action, and
    every executed search is directly followed by exactly one evaluation.

        format_fault([Turn(..., text="<answer>Venn</answer>", action=Answer("Venn"))], "answered") -> ""
        format_fault([Turn(..., text="Well, <answer>Venn</answer>", action=Answer("Venn"))], "answered")
        -> "there is text outside of the thought and the action"
    """
    waits = False
    for turn in turns:
        if isinstance(turn.action, Malformed):
            return turn.action.reason
        if isinstance(turn.action, Evaluate) != waits:
            return UNEVALUATED if waits else NOTHING_TO_EVALUATE
        # Evidence counts only where it was read with an answer: elsewhere its tags would hide text from this check.
        has_span = isinstance(turn.action, Answer) and bool(turn.action.span)
        blocks = find_blocks(turn.text, ("think", "tool_call", "answer", *(("evidence",) if has_span else ())))
        if not _is_tidy(turn, blocks):
            return "there is text outside of the thought and the action"
        may_think = think_before_evaluate == "allow" or not isinstance(turn.action, Evaluate)
        if not may_think and any(block.name == "think" for block in blocks):
            return "there is a thought in the turn of an evaluation"
        waits = was_searched(turn)
    return "there is no answer" if end != "answered" else UNEVALUATED if waits else ""


def _is_tidy(turn: Turn, blocks: Sequence[Block]) -> bool:
    """True if a turn holds only thoughts, white space and the action's block (for an answer, its evidence too)."""
    acts = [block.name for block in blocks if block.name != "think"]
    expected = ["tool_call"]
    if isinstance(turn.action, Answer):
        expected = ["evidence", "answer"] if turn.action.span else ["answer"]
    starts = [block.start for block in blocks] + [len(turn.text)]
    ends = [0] + [block.end for block in blocks]
    around = (turn.text[end:start] for end, start in zip(ends, starts, strict=True))
    return acts == expected and not any(piece.strip() for piece in around)


_WRITTEN_SCORE = re.compile(r"\s{0,9}(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s{0,9}(?:/\s{0,9}10\s{0,9})?")


def _read_score(score: object, bad_score: BadScore) -> float:
    """A score from 0 to 10; `clamp` also reads "7" and "7/10" and moves numbers beyond the scale onto it.

    _read_score(11, "clamp") -> 10.0; _read_score(11, "format_fail") raises CallRefused
    """
    if bad_score == "clamp" and isinstance(score, str):
        written = _WRITTEN_SCORE.fullmatch(score)
        score = float(written.group(1)) if written else None
    # Python's JSON reader accepts NaN and Infinity, and a bool is an int in Python: none of them is a score.
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise CallRefused(BAD_SCORE)
    is_endless = isinstance(score, float) and not math.isfinite(score)  # an int may be too large for a float
    if is_endless or (bad_score == "format_fail" and not 0 <= score <= _MOST):
        raise CallRefused(BAD_SCORE)
    return float(min(max(score, 0), _MOST)) + 0.0  # -0.0 becomes 0.0
