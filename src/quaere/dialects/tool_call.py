"""The tool-call dialect of Dr. Zero: JSON calls and results between tags, for solver and proposer.

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

import json
from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

from quaere.chat.markup import (
    MAX_QUERY_CHARS,
    SEARCH,
    Block,
    CallRefused,
    ToolSchema,
    find_blocks,
    first_fault,
    read_call,
    read_queries,
)
from quaere.chat.protocol import EXAMPLES, MAX_ANSWER_CHARS, STOP, Message, Part, PromptStyle, Quoted, read_answer
from quaere.dialects.roles import (
    PlainProtocol,
    ProposerDialect,
    ProposerTurns,
    Solver,
    SolverDialect,
    SolverOptions,
    SolverProtocol,
    SolverTurns,
    no_action,
    quote,
    read_first,
    think,
    write_call,
)
from quaere.records import (
    Action,
    Answer,
    Malformed,
    Passage,
    Proposal,
    ProposeTask,
    Question,
    Search,
    SolveTask,
    Task,
    Turn,
)

TOOLS = (SEARCH,)
SEARCH_PREFIX = '<tool_call>{"name": "search", "arguments": {"query_list": ["'
SEARCH_SUFFIX = '"]}}</tool_call>'
_CITED = ("evidence",)  # read as a block only where evidence is asked for


class _ToolCalls(PlainProtocol):
    """What both roles' protocols share: JSON calls, and results as a tool's message."""

    stop: tuple[str, ...] = STOP
    # There is no placeholder between the answer's tags: small models would copy it as their answer.
    advice = f"To search, write {SEARCH_PREFIX}your query{SEARCH_SUFFIX}. To finish,"


class ToolCallSolver(_ToolCalls, SolverProtocol):
    """Protocol of a solver that searches with JSON calls and answers a question.

    `guided` helps models too small to follow the protocol untrained: a shorter prompt, two worked examples, a first
    search with the question itself, and a given start of the last turn (an answer).
    The `brief` style is for models that were taught the protocol and need no explanation.

        ToolCallSolver().read("<answer>Orsolya Venn</answer>") -> Answer(text="Orsolya Venn")
        ToolCallSolver(guided=True).prefix(turn=3, is_last=True) -> "<answer>"
    """

    marks: tuple[str, ...] = ("answer",)

    def __init__(
        self, *, guided: bool = False, style: PromptStyle = "full", evidence: bool = False, abstention: bool = False
    ) -> None:
        super().__init__(style=style, evidence=evidence, abstention=abstention)
        self.guided = guided
        self.system = SOLVER_SYSTEMS["guided" if guided else style][evidence]
        self.examples = _worked_examples(evidence) if guided else ()
        self.name = ("eve" if evidence else "drzero") + ("-solver-guided" if guided else "-solver")
        self.tools: tuple[ToolSchema, ...] = TOOLS if style == "full" and not guided else ()

    def prefix(self, turn: int, is_last: bool) -> str:
        """The start of a guided answer in the last turn; else ""."""
        start = "<evidence>" if self.evidence else "<answer>"
        return start if self.guided and is_last else ""

    def given_turn(self, task: Task, turn: int) -> Message | None:
        """In a guided episode, the first turn: a search with the question itself, if it can be a query; else None."""
        if not self.guided or turn > 0 or not isinstance(task, SolveTask):
            return None
        whole = task.question.text.encode(errors="replace").decode()  # without lone surrogates
        query = json.dumps(whole.strip()[:MAX_QUERY_CHARS], ensure_ascii=False)[1:-1].replace("<", "\\u003c")
        message = Message("assistant", (SEARCH_PREFIX, Quoted(query), SEARCH_SUFFIX))  # no tag in it ends the call
        return message if isinstance(self.read(message.text), Search) else None

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first tool call or answer outside a thought; the evidence is the last quotation before the answer."""
        blocks = find_blocks(text, ("think", "tool_call", "answer", *_CITED[: self.evidence]))
        return self.mark(read_first(blocks, {"tool_call": _read_search}) or _no_action(text))


def _worked_examples(evidence: bool) -> list[Message]:
    """Two short example episodes on invented facts, as messages for a guided prompt."""
    messages: list[Message] = []
    for question, query, title, passage, answer in EXAMPLES:
        quoted = quote(passage.split(". ", 1)[1] if evidence else "")
        messages += [
            Message("user", (f"Question:\n{question}",)),
            Message("assistant", (f"{SEARCH_PREFIX}{query}{SEARCH_SUFFIX}",)),
            Message("tool", (f"[1]\n{title}\n{passage}",)),
            Message("assistant", (f"{quoted}<answer>{answer}</answer>",)),
        ]
    return messages


class ToolCallProposer(_ToolCalls):
    """Protocol of a proposer that writes a question and its answer, with `evidence` also the sentence that states it.

    ToolCallProposer().read("<question>Who?</question><answer>Venn</answer>") -> Proposal("Who?", "Venn")
    """

    def __init__(self, *, style: PromptStyle = "full", evidence: bool = False) -> None:
        self.style, self.evidence = style, evidence
        self.finish = CITED_PROPOSER_FINISH if evidence else PROPOSER_FINISH
        self.name = "eve-proposer" if evidence else "drzero-proposer"
        self.tools: tuple[ToolSchema, ...] = TOOLS if style == "full" else ()

    def opening(self, task: Task) -> list[Message]:
        """The system prompt, then the rules for this number of hops and the document with its title, if any."""
        if not isinstance(task, ProposeTask):
            raise TypeError(f"{self.name} proposes questions; it got a {type(task).__name__}")
        document: tuple[Part, ...] = () if task.document is None else (Quoted(task.document.titled_text),)
        if task.given is not None:
            return self._open_hardening(task.given, document, task.beside)
        if self.style == "brief":
            system = brief_proposer_system(task.hops, evidence=self.evidence)
            joint, request = " ", ("Document:\n", *document) if document else ("Search.",)
        else:
            system = CITED_PROPOSER_SYSTEM if self.evidence else PROPOSER_SYSTEM
            joint, request = "\n\n", (_proposer_rules(task), *document)
        if task.question_type:
            system += joint + QUESTION_TYPES[task.question_type]
        return [Message("system", (system,)), Message("user", request)]

    def _open_hardening(self, given: Question, document: tuple[Part, ...], beside: Passage | None) -> list[Message]:
        """The system prompt, then the rules for rewording, the given question with its answer, and the documents."""
        system = CITED_PROPOSER_SYSTEM if self.evidence else PROPOSER_SYSTEM
        brief, rules = HARDENING[beside is not None]
        if self.style == "brief":
            system, rules = brief, ""
        asked = (rules, "Question: ", Quoted(given.text), "\nAnswer: ", Quoted(given.answers[-1]), "\nDocument:\n")
        other = ("\nAnother document:\n", Quoted(beside.titled_text)) if beside else ()
        return [Message("system", (system,)), Message("user", (*asked, *document, *other))]

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first tool call, or the first question with its answer, whichever comes first."""
        blocks = find_blocks(text, ("think", "tool_call", "question", "answer", *_CITED[: self.evidence]))
        return read_first(blocks, {"tool_call": _read_search, "answer": partial(_read_proposal, blocks)}) or _no_action(
            text
        )


def _proposer_rules(task: ProposeTask) -> str:
    hops, searches = task.hops, task.hops - 1
    if task.document is None:
        return PROPOSER_RULES_FREE.format(hops=hops, plural="" if hops == 1 else "s")
    if not searches:
        return PROPOSER_RULES_ONE
    return PROPOSER_RULES_MANY.format(hops=hops, searches=searches, plural="" if searches == 1 else "s")


def _read_search(block: Block) -> Action:
    try:
        return Search(queries=read_queries(read_call(block.content, TOOLS)))
    except CallRefused as refusal:
        return Malformed(reason=str(refusal))


def _read_proposal(blocks: Sequence[Block], answer: Block) -> Action:
    """The proposal that an answer completes: the first question and the last quotation before it."""
    before = blocks[: blocks.index(answer)]
    question = next((block for block in before if block.name == "question"), None)
    if question is None:
        return Malformed(reason="there is an answer but no question before it")
    read = read_answer(answer, next((block for block in reversed(before) if block.name == "evidence"), None))
    if not isinstance(read, Answer):
        return read
    text = question.content.strip()
    fault = first_fault((not text, "the question is empty"), (len(text) > MAX_ANSWER_CHARS, "the question is too long"))
    return Malformed(fault) if fault else Proposal(question=text, answer=read.text, span=read.span)


def _no_action(text: str) -> Malformed:
    return no_action(text, ("tool_call", "answer", "question"), "there is neither a tool call nor an answer")


# ------------------------------------------------------------------------------------------------------------- dialect


class ToolCallTurns(SolverTurns, ProposerTurns):
    """A demonstrated solver or proposer of the tool-call dialect; it writes no notes."""

    def search(self, thought: str, query: str, note: str = "") -> str:
        """A thought and a search call with one query; `note` is ignored."""
        return think(thought) + write_call("search", {"query_list": [query]})

    def proposal(self, thought: str, question: str, answer: str, span: str = "") -> str:
        """The last turn: thought, question, the quoted sentence if there is one, and the answer."""
        return f"{think(thought)}<question>{question}</question>{quote(span)}<answer>{answer}</answer>"


def open_solver(options: SolverOptions) -> Solver:
    """Dr. Zero's solver: JSON calls, reward for the answer."""
    protocol = ToolCallSolver(guided=options.guided, **options.prompts)
    return Solver(protocol, options.plain_pay)


SOLVER = SolverDialect(open_solver, can_be_guided=True, demonstration=ToolCallTurns())
PROPOSER = ProposerDialect(ToolCallProposer, demonstration=ToolCallTurns())


# ----------------------------------------------------------------- prompts, without evidence and (CITED_) with evidence

# `full` explains the protocol to a model that has never seen it. `brief` reminds a model that was taught it (in a
# warm-up) in a few tokens: on a CPU, reading the prompt is most of the cost of a short episode.

_ANSWER = "<answer>the answer alone, as short as possible</answer>"
_EVIDENCE = "<evidence>one sentence copied letter for letter from a text you were shown</evidence>"

SOLVER_SYSTEM = f"""\
You answer questions by searching a collection of documents. The documents are right, even where they differ from \
what you remember.

Each turn, think briefly inside <think> and </think>, then do exactly one of two things:
- to search, write <tool_call>{{"name": "search", "arguments": {{"query_list": ["your query"]}}}}</tool_call>
- to finish, write {_ANSWER}

What a search finds comes back between <tool_response> and </tool_response>. If it does not hold what you need, search \
again with other words; if the question needs several facts, look them up one after another."""

CITED_SOLVER_SYSTEM = SOLVER_SYSTEM.replace(
    _ANSWER, f"{_EVIDENCE}, the one your answer rests on, and right after it {_ANSWER}"
)
# Short, because every further word costs a small model more than it helps.
GUIDED_SYSTEM = """\
You answer questions by searching documents. To search, write <tool_call>{"name": "search", "arguments": \
{"query_list": ["your query"]}}</tool_call> and to finish, write <answer>the answer alone</answer>."""

CITED_GUIDED_SYSTEM = """\
You answer questions by searching documents. To search, write <tool_call>{"name": "search", "arguments": \
{"query_list": ["your query"]}}</tool_call> and to finish, write <evidence>the sentence you rely on</evidence>\
<answer>the answer alone</answer>."""

_PROPOSAL = "<question>your question</question> and right after it <answer>its answer</answer>"

PROPOSER_SYSTEM = f"""\
You write questions that test how well somebody can search a collection of documents.

Each turn, think briefly inside <think> and </think>, then do exactly one of two things:
- to search, write <tool_call>{{"name": "search", "arguments": {{"query_list": ["your query"]}}}}</tool_call>
- to finish, write {_PROPOSAL}

What a search finds comes back between <tool_response> and </tool_response>."""

CITED_PROPOSER_SYSTEM = PROPOSER_SYSTEM.replace(
    _PROPOSAL,
    f"<question>your question</question>, right after it {_EVIDENCE}, which states the answer, and then "
    "<answer>its answer</answer>",
)

PROPOSER_FINISH = "put the question between <question> and </question>, then its answer between <answer> and </answer>"
CITED_PROPOSER_FINISH = (
    "put the question between <question> and </question>, then the sentence that states its answer, copied letter for "
    "letter, between <evidence> and </evidence>, then the answer between <answer> and </answer>"
)

PROPOSER_RULES_ONE = """\
Write one question of 1 hop about the document below. Choose a person, place, thing or event it names, and ask for a \
fact the document states about it. No search is needed.

- The question can be understood without seeing the document.
- The answer is one short string, stated in the document, with no other right answer.
- The question does not contain the answer.

Document:
"""

PROPOSER_RULES_MANY = """\
Write one question of {hops} hops that starts from the document below. A hop is one step in a chain of facts:

- Hop 1 is a person, place, thing or event named in the document.
- Each further hop is a fact about the one before it, and you find it by searching. Search exactly {searches} \
time{plural}: once for each hop after the first.
- The fact that leads from hop 1 to hop 2 must not stand in the document itself.
- No hop can be skipped: each needs the one before it.
- The question names hop 1 only. It gives away no hop in between and does not contain the answer.
- The answer is hop {hops}: one short string with no other right answer.

Document:
"""

# Without a document the first hop is looked for as well, so there is one search more.
PROPOSER_RULES_FREE = """\
Write one question of {hops} hop{plural} about something this collection of documents holds. You are given no \
document: search for one first, and choose a person, place, thing or event it names as hop 1. Each further hop is a \
fact about the one before it, and you find it by searching.

- No hop can be skipped: each needs the one before it.
- The question names hop 1 only. It gives away no hop in between and does not contain the answer.
- The answer is one short string, stated in a passage you found, with no other right answer.
"""

# To reword a given question: its answer stays, and one name in it is replaced by what another document says of it.
HARDENING_RULES = """\
Below are a document, a question about it and its answer. Make the question harder, so that it needs one search more:

- Choose a name in the question, and search for other documents that say something about it.
- Put what one of them says in place of the name: "When was the builder of that bridge born?", with the bridge's name.
- The new question does not contain the name, and says enough to find the thing by a search.
- The answer stays as it is, and the question does not contain it.

"""
BRIEF_HARDENING_SYSTEM = (
    "Make the question harder. Search for a name in it and put what another document says of it in place of the name. "
    "The answer stays. Think, then search or finish."
)
REWORDING_RULES = """\
Below are a document, a question about it and its answer, and another document. Make the question harder, so that it \
needs one search more. Do not search; write it now:

- Choose the name in the question of which the other document says something.
- Put what it says in place of the name: "When was the builder of that bridge born?", with the bridge's name.
- The new question does not contain the name, and says enough to find the thing by a search.
- The answer stays as it is, and the question does not contain it.

"""
BRIEF_REWORDING_SYSTEM = (
    "Make the question harder. Put what the other document says of a name in it in place of the name. The answer "
    "stays. Think, then finish."
)
# The brief system prompt and the rules of a proposer that searches for the other document, then of one that has it.
HARDENING = ((BRIEF_HARDENING_SYSTEM, HARDENING_RULES), (BRIEF_REWORDING_SYSTEM, REWORDING_RULES))

BRIEF_SOLVER_SYSTEM = "Answer the question. Think, then search or answer."
BRIEF_PROPOSER_SYSTEM = "Write a question of {hops} hop{plural} and its answer. Think, then search or finish."
CITED_BRIEF_SOLVER_SYSTEM = "Answer the question and quote your evidence. Think, then search or answer."
CITED_BRIEF_PROPOSER_SYSTEM = (
    "Write a question of {hops} hop{plural}, its evidence and its answer. Think, then search or finish."
)
# By style: the prompt without evidence and the one with evidence.
SOLVER_SYSTEMS: dict[str, tuple[str, str]] = {
    "full": (SOLVER_SYSTEM, CITED_SOLVER_SYSTEM),
    "brief": (BRIEF_SOLVER_SYSTEM, CITED_BRIEF_SOLVER_SYSTEM),
    "guided": (GUIDED_SYSTEM, CITED_GUIDED_SYSTEM),
}
# The rules for a chain in one line: `PROPOSER_RULES_MANY` has them at length.
BRIEF_CHAIN_RULES = (
    " Name only the first thing, find each next fact by a search, give away nothing in between; the answer is short."
)


def brief_proposer_system(hops: int, *, evidence: bool = False) -> str:
    """The brief system prompt for a question of `hops` hops.

    brief_proposer_system(1) == "Write a question of 1 hop and its answer. Think, then search or finish."
    """
    words = CITED_BRIEF_PROPOSER_SYSTEM if evidence else BRIEF_PROPOSER_SYSTEM
    return words.format(hops=hops, plural="" if hops == 1 else "s") + (BRIEF_CHAIN_RULES if hops > 1 else "")


QuestionType = Literal["factual", "comparison", "causal", "temporal", "aggregation"]

# The types of question that a proposer may be asked for, each with a line for its prompt; hops are drawn independently.
# They are the arms of the type bandit, in this order: reordering them would change the draws of a seed.
QUESTION_TYPES: dict[str, str] = {
    "factual": "Ask for a single fact: who, what, where or which.",
    "comparison": "Ask which of two named things has more, less or the same of something; the answer is one of them.",
    "causal": "Ask what led to something, or what came of it; the answer names the cause or the outcome.",
    "temporal": "Ask when something happened, how long it took, or which of two events came first.",
    "aggregation": "Ask how many there are of something, or which of all that are listed is the largest or smallest.",
}
TYPE_NAMES: tuple[QuestionType, ...] = get_args(QuestionType)
