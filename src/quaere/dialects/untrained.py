"""Methods of the literature that need no training, as solvers that search: RAG and IRCoT.

rag       one search with the question, then the answer (Lewis et al.)
ircot     one sentence of reasoning and one search with it, in turn, until it answers (Trivedi et al.)

Both begin with a search that the environment writes:

    <search>Who built the Halm bridge?</search>
    <information>
    [1]
    ...

The methods without any search, `direct` and `cot`, are in `closed_book.py`.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Literal

from quaere.chat.messages import Message, Quoted, format_results
from quaere.chat.protocol import PromptStyle
from quaere.chat.tags import THOUGHT, find_blocks, has_unclosed
from quaere.chat.tools import MAX_QUERY_CHARS, first_fault, query_faults
from quaere.dialects.roles import Solver, SolverDialect, SolverOptions, SolverProtocol, read_first
from quaere.records import Action, Malformed, Search, SearchResult, SolveTask, Task, Turn
from quaere.rollout.episode import Limits

Method = Literal["rag", "ircot"]

_ANSWER = "<answer>the answer alone, as short as possible</answer>"
_CITED = f"<evidence>the sentence of a passage that says it, letter for letter</evidence>{_ANSWER}"
_SYSTEMS: dict[Method, str] = {
    "rag": "Answer the question from the passages that a search found. They are right, even where they differ from "
    "what you remember. Write {finish}",
    "ircot": "You answer a question in small steps. In each turn, write one sentence that states the next fact you "
    "know from the passages, or what you must still find out. The sentence is then searched for, and new passages "
    "follow. Once you know the answer, write {finish}",
}
_BRIEF: dict[Method, str] = {
    "rag": "Answer the question from the passages.",
    "ircot": "Write the next fact, or answer the question.",
}

_SENTENCE = re.compile(r"\S.*?(?:[.!?](?=\s|$)|\n|$)", re.DOTALL)
_BLOCK = re.compile(r"<think>.*?</think>", re.DOTALL)


class UntrainedSolver(SolverProtocol):
    """Protocol of a method without training: the first turn is a search with the question itself.

    UntrainedSolver("rag").given_turn(task, 0).text -> "<search>Who built the Halm bridge?</search>"
    UntrainedSolver("ircot").read("Venn built it. So I need her birthplace.") -> Search(("Venn built it.",))
    UntrainedSolver("ircot").read("<answer>Halm</answer>") -> Answer("Halm")
    """

    stop: tuple[str, ...] = ("</answer>",)
    marks: tuple[str, ...] = ("answer",)
    advice = "To finish,"

    def __init__(
        self, method: Method, *, style: PromptStyle = "full", evidence: bool = False, abstention: bool = False
    ) -> None:
        super().__init__(style=style, evidence=evidence, abstention=abstention)
        self.method, self.name = method, method
        full = _SYSTEMS[method].format(finish=_CITED if evidence else _ANSWER) + "."
        self.system = full if style == "full" else _BRIEF[method]
        self._blocks = ("think", "answer", "evidence") if evidence else ("think", "answer")

    def given_turn(self, task: Task, turn: int) -> Message | None:
        """The first turn: a search with the question, cut to the length of a query."""
        if turn > 0 or not isinstance(task, SolveTask):
            return None
        whole = task.question.text.encode(errors="replace").decode()  # no half of a character
        return Message("assistant", ("<search>", Quoted(whole.strip()[:MAX_QUERY_CHARS]), "</search>"))

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The answer or, without one, a search: the given one, or IRCoT's with its first sentence."""
        if not earlier and text.startswith("<search>"):  # a question may contain tags
            return self._search(text.removeprefix("<search>").removesuffix("</search>"))
        if answer := read_first(find_blocks(text, self._blocks), {}):
            return self.mark(answer)
        if has_unclosed(text, THOUGHT):
            return Malformed("the think block is not closed")
        sentence = _SENTENCE.search(_BLOCK.sub("", text))
        if self.method == "rag" or sentence is None:
            return Malformed("there is no answer")
        return self._search(sentence.group())

    def _search(self, text: str) -> Action:
        query = text.strip()
        fault = first_fault((not query, "the query is empty"), *query_faults(query))
        return Malformed(fault) if fault else Search((query,))

    def show(self, results: Sequence[SearchResult], earlier: Sequence[Turn]) -> Message:
        """The message with the found passages, between tags."""
        return Message("user", format_results(results), tag="information")


def _open(method: Method, options: SolverOptions) -> Solver:
    protocol = UntrainedSolver(method, style=options.style, evidence=options.evidence, abstention=options.abstention)
    return Solver(protocol, options.plain_pay)


RAG = SolverDialect(partial(_open, "rag"), limits=Limits(max_turns=2))
IRCOT = SolverDialect(partial(_open, "ircot"), limits=Limits(max_turns=6, turn_tokens=128))
