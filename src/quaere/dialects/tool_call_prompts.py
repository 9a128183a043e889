"""Prompts of the tool-call dialect, without evidence and (`CITED_`) with evidence.

`full` explains the protocol to a model that has never seen it. `brief` reminds a model that was taught it (in a
warm-up) in a few tokens: on a CPU, reading the prompt is most of the cost of a short episode.
"""

from typing import Literal, get_args

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

# For a given question: its answer stays, and one name in it gives way to what another document says of that thing.
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

BRIEF_SOLVER_SYSTEM = "Answer the question. Think, then search or answer."
BRIEF_PROPOSER_SYSTEM = "Write a question of {hops} hop{plural} and its answer. Think, then search or finish."
CITED_BRIEF_SOLVER_SYSTEM = "Answer the question and quote your evidence. Think, then search or answer."
CITED_BRIEF_PROPOSER_SYSTEM = (
    "Write a question of {hops} hop{plural}, its evidence and its answer. Think, then search or finish."
)
# By style, without evidence and with it.
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
