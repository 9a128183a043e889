"""Protocol of the tool-call dialect of Dr. Zero: JSON calls and results between tags, for solver and proposer.

One turn of the solver:

    <think>I need the builder.</think>
    <tool_call>{"name": "search", "arguments": {"query_list": ["builder of the Halm bridge"]}}</tool_call>

and its last:

    <think>The passage names her.</think><answer>Orsolya Venn</answer>

With evidence (EVE-Agent), both roles quote what they rely on just before the answer:

    <evidence>Orsolya Venn built the Halm bridge in 1702.</evidence><answer>Orsolya Venn</answer>

The protocol does not check whether a quotation is verbatim: `chat/spans.py` does.

A turn can be read with or without a thought.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from quaere.chat.messages import Message, Part, Quoted, format_results
from quaere.chat.protocol import (
    CITED_SOLVER_FINISH,
    EXAMPLES,
    MAX_ANSWER_CHARS,
    SOLVER_FINISH,
    STOP,
    PromptStyle,
    final_reply,
    read_answer,
)
from quaere.chat.tags import THOUGHT, Block, find_blocks, has_unclosed
from quaere.chat.tools import MAX_QUERY_CHARS, SEARCH, CallRefused, ToolSchema, read_call, read_queries
from quaere.dialects.tool_call.prompts import (
    BRIEF_SOLVER_SYSTEM,
    CITED_BRIEF_SOLVER_SYSTEM,
    CITED_GUIDED_SYSTEM,
    CITED_PROPOSER_FINISH,
    CITED_PROPOSER_SYSTEM,
    CITED_SOLVER_SYSTEM,
    GUIDED_SYSTEM,
    PROPOSER_FINISH,
    PROPOSER_RULES_FREE,
    PROPOSER_RULES_MANY,
    PROPOSER_RULES_ONE,
    PROPOSER_SYSTEM,
    SOLVER_SYSTEM,
    brief_proposer_system,
)
from quaere.dialects.tool_call.question_types import QUESTION_TYPES
from quaere.records import (
    Action,
    Answer,
    Failure,
    Malformed,
    Proposal,
    ProposeTask,
    Search,
    SearchResult,
    SolveTask,
    Task,
    Turn,
)

TOOLS = (SEARCH,)
_CITED = ("evidence",)  # read as a block only where evidence is asked for


class ToolCallSolver:
    """Protocol of a solver that searches with JSON calls and answers a question.

    `guided` helps models too small to follow the protocol untrained: a shorter prompt, two worked examples, a first
    search with the question itself, and a given start of the last turn (an answer).
    The `brief` style is for models that were taught the protocol and need no explanation. With `evidence`, the prompt
    asks for the sentence that the answer relies on; an answer without one is still read.

        ToolCallSolver().read("<answer>Orsolya Venn</answer>") -> Answer(text="Orsolya Venn")
        ToolCallSolver(guided=True).prefix(turn=3, is_last=True) -> "<answer>"
    """

    stop: tuple[str, ...] = STOP
    marks: tuple[str, ...] = ()
    turns_per_search = 1

    def __init__(self, *, guided: bool = False, style: PromptStyle = "full", evidence: bool = False) -> None:
        self.guided = guided
        self.style = style
        self.evidence = evidence
        self.name = ("eve" if evidence else "drzero") + ("-solver-guided" if guided else "-solver")
        self.tools: tuple[ToolSchema, ...] = TOOLS if style == "full" and not guided else ()

    def opening(self, task: Task) -> list[Message]:
        """The system prompt, worked examples if guided, then the question."""
        if not isinstance(task, SolveTask):
            raise TypeError(f"{self.name} solves questions; it got a {type(task).__name__}")
        question = Message("user", ("Question:\n", Quoted(task.question.text)))
        if self.guided:
            system = CITED_GUIDED_SYSTEM if self.evidence else GUIDED_SYSTEM
            return [Message("system", (system,)), *worked_examples(evidence=self.evidence), question]
        full, brief = SOLVER_SYSTEM, BRIEF_SOLVER_SYSTEM
        if self.evidence:
            full, brief = CITED_SOLVER_SYSTEM, CITED_BRIEF_SOLVER_SYSTEM
        return [Message("system", (full if self.style == "full" else brief,)), question]

    def prefix(self, turn: int, is_last: bool) -> str:
        """The start of a guided answer in the last turn; else ""."""
        if not (self.guided and is_last):
            return ""
        return "<evidence>" if self.evidence else "<answer>"

    def given_turn(self, task: Task, turn: int) -> Message | None:
        """The first turn of a guided episode: a search with the question itself, if it can be a query."""
        if not self.guided or turn > 0 or not isinstance(task, SolveTask):
            return None
        whole = task.question.text.encode(errors="replace").decode()  # no half of a character
        text = json.dumps(whole.strip()[:MAX_QUERY_CHARS], ensure_ascii=False)[1:-1]
        query = Quoted(text.replace("<", "\\u003c"))  # no tag in it ends the call
        message = Message("assistant", (SEARCH_PREFIX, query, SEARCH_SUFFIX))
        return message if isinstance(self.read(message.text), Search) else None

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first tool call or answer outside a thought; the evidence is the last quotation before the answer."""
        span: Block | None = None
        for block in find_blocks(text, ("think", "tool_call", "answer", *_CITED[: self.evidence])):
            if block.name == "tool_call":
                return _read_search(block)
            if block.name == "evidence":
                span = block
            if block.name == "answer":
                return read_answer(block, span)
        return _no_action(text)

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """Passages, or what went wrong. A guided policy gets no note on its last search."""
        finish = CITED_SOLVER_FINISH if self.evidence else SOLVER_FINISH
        return _reply(action, results, failure, finish, final=final and not self.guided)


SEARCH_PREFIX = '<tool_call>{"name": "search", "arguments": {"query_list": ["'
SEARCH_SUFFIX = '"]}}</tool_call>'


def worked_examples(*, evidence: bool = False) -> list[Message]:
    """Two short example episodes on invented facts, as messages for a guided prompt."""
    messages: list[Message] = []
    for question, query, title, passage, answer in EXAMPLES:
        quoted = f"<evidence>{passage.split('. ', 1)[1]}</evidence>"
        messages += [
            Message("user", (f"Question:\n{question}",)),
            Message("assistant", (f"{SEARCH_PREFIX}{query}{SEARCH_SUFFIX}",)),
            Message("tool", (f"[1]\n{title}\n{passage}",)),
            Message("assistant", (f"{quoted if evidence else ''}<answer>{answer}</answer>",)),
        ]
    return messages


class ToolCallProposer:
    """Protocol of a proposer that writes a question and its answer, with `evidence` also the sentence that states it.

    ToolCallProposer().read("<question>Who?</question><answer>Venn</answer>") -> Proposal("Who?", "Venn")
    """

    stop: tuple[str, ...] = STOP
    marks: tuple[str, ...] = ()
    turns_per_search = 1

    def __init__(self, *, style: PromptStyle = "full", evidence: bool = False) -> None:
        self.style = style
        self.evidence = evidence
        self.name = "eve-proposer" if evidence else "drzero-proposer"
        self.tools: tuple[ToolSchema, ...] = TOOLS if style == "full" else ()

    def prefix(self, turn: int, is_last: bool) -> str:
        """Always "": the proposer writes its turns from the first token on."""
        return ""

    def opening(self, task: Task) -> list[Message]:
        """The system prompt, then the rules for this number of hops and the document with its title, if any."""
        if not isinstance(task, ProposeTask):
            raise TypeError(f"{self.name} proposes questions; it got a {type(task).__name__}")
        document: tuple[Part, ...] = () if task.document is None else (Quoted(task.document.titled_text),)
        if self.style == "brief":
            system = brief_proposer_system(task.hops, evidence=self.evidence) + _kind_wanted(task, " ")
            return [
                Message("system", (system,)),
                Message("user", ("Document:\n", *document) if document else ("Search.",)),
            ]
        system = (CITED_PROPOSER_SYSTEM if self.evidence else PROPOSER_SYSTEM) + _kind_wanted(task, "\n\n")
        return [Message("system", (system,)), Message("user", (_proposer_rules(task), *document))]

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first tool call, or the first question with its answer, whichever comes first."""
        question: Block | None = None
        span: Block | None = None
        for block in find_blocks(text, ("think", "tool_call", "question", "answer", *_CITED[: self.evidence])):
            if block.name == "tool_call":
                return _read_search(block)
            if block.name == "question" and question is None:
                question = block
            elif block.name == "evidence":
                span = block
            elif block.name == "answer":
                return _read_proposal(question, block, span)
        return _no_action(text)

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """Passages, or what went wrong."""
        finish = CITED_PROPOSER_FINISH if self.evidence else PROPOSER_FINISH
        return _reply(action, results, failure, finish, final=final)


def _proposer_rules(task: ProposeTask) -> str:
    searches = task.hops - 1
    if task.document is None:
        return PROPOSER_RULES_FREE.format(hops=task.hops, plural=_plural(task.hops))
    if not searches:
        return PROPOSER_RULES_ONE
    return PROPOSER_RULES_MANY.format(hops=task.hops, searches=searches, plural=_plural(searches))


def _kind_wanted(task: ProposeTask, joint: str) -> str:
    """The line that asks for a type of question; "" if none was chosen."""
    return joint + QUESTION_TYPES[task.question_type] if task.question_type else ""


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


def _read_search(block: Block) -> Action:
    try:
        return Search(queries=read_queries(read_call(block.content, TOOLS)))
    except CallRefused as refusal:
        return Malformed(reason=str(refusal))


def _read_proposal(question: Block | None, answer: Block, span: Block | None) -> Action:
    if question is None:
        return Malformed(reason="there is an answer but no question before it")
    read = read_answer(answer, span)
    if not isinstance(read, Answer):
        return read
    text = question.content.strip()
    if not text:
        return Malformed(reason="the question is empty")
    if len(text) > MAX_ANSWER_CHARS:
        return Malformed(reason="the question is too long")
    return Proposal(question=text, answer=read.text, span=read.span)


def _no_action(text: str) -> Malformed:
    for name in (THOUGHT, "tool_call", "answer", "question"):
        if has_unclosed(text, name):
            return Malformed(reason=f"the {name} block is not closed")
    return Malformed(reason="there is neither a tool call nor an answer")


def _reply(
    action: Action, results: Sequence[SearchResult], failure: Failure | None, finish: str, *, final: bool
) -> Message:
    message = _usual_reply(action, results, failure, finish)
    return final_reply(message, action, failure, finish) if final else message


def _usual_reply(action: Action, results: Sequence[SearchResult], failure: Failure | None, finish: str) -> Message:
    if failure is not None and failure.boundary == "search":
        return Message("tool", ("The search could not be carried out. Nothing was looked up; you may try again.",))
    if failure is not None and failure.kind == "searches":
        return Message("tool", (f"No searches are left. To finish, {finish}.",))
    if isinstance(action, Search):
        return Message("tool", format_results(results))
    reason = action.reason if isinstance(action, Malformed) else "that was not expected here"
    # No placeholder stands between the answer's tags: small models would copy it as their answer.
    call = '<tool_call>{"name": "search", "arguments": {"query_list": ["your query"]}}</tool_call>'
    return Message("user", (f"That turn could not be used: {reason}. To search, write {call}. To finish, {finish}.",))
