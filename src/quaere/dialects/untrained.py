"""Methods of the literature that need no training, as solvers that search: RAG, IRCoT and Search-o1.

rag         one search with the question, then the answer (Lewis et al.)
ircot       one sentence of reasoning and one search with it, in turn, until it answers (Trivedi et al.)
search-o1   searches when it wants to, and condenses what was found in a conversation of its own (Li et al.)

The first two begin with a search that the environment writes:

    <search>Who built the Halm bridge?</search>
    <information>
    [1]
    ...

The methods without any search, `direct` and `cot`, are in `closed_book.py`.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from quaere.chat.markup import MAX_QUERY_CHARS, THOUGHT, find_blocks, first_fault, has_unclosed, query_faults
from quaere.chat.protocol import Message, PromptStyle, Protocol, Quoted, format_results
from quaere.dialects.roles import Solver, SolverDialect, SolverOptions, SolverProtocol, read_first
from quaere.dialects.tag_dialects import TagSolver
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
        whole = task.question.text.encode(errors="replace").decode()  # without lone surrogates
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


# ----------------------------------------------------------------------------------------------------------- Search-o1

_NOTES = (
    "You help to answer a question. You are given what was thought so far, the query of a search, and the passages it "
    "found. Write down what the passages say that helps to answer the question, in a few sentences{verbatim}, with "
    "names, numbers and dates as they are written there. If nothing helps, say so. Write it as <notes>your "
    "notes</notes>."
)
_NO_NOTES = "Nothing that helps was found."


class SearchO1Solver(TagSolver):
    """Protocol of Search-o1: Search-R1's tags, and the policy's own notes in place of the passages that were found.

    SearchO1Solver().read_notes("<notes>Venn built it.</notes>") -> "Venn built it."
    """

    note_stop = ("</notes>",)

    def __init__(self, *, style: PromptStyle = "full", evidence: bool = False, abstention: bool = False) -> None:
        super().__init__("search-r1", style=style, evidence=evidence, abstention=abstention)
        self.name = "search-o1"
        self._notes = _NOTES.format(verbatim=" that you copy letter for letter" if evidence else "")

    def note_opening(
        self, task: Task, turn: Turn, results: Sequence[SearchResult], earlier: Sequence[Turn]
    ) -> list[Message]:
        """The question, the turns so far without what was found, and the passages."""
        assert isinstance(task, SolveTask)
        thought = "\n".join(one.text for one in (*earlier, turn))
        parts = ("Question:\n", Quoted(task.question.text), "\n\nSo far:\n", Quoted(thought), "\n\nFound:\n")
        return [Message("system", (self._notes,)), Message("user", (*parts, *format_results(results)))]

    def read_notes(self, text: str) -> str:
        """The notes between tags or, without tags, all that is no thought."""
        whole = "" if has_unclosed(text, THOUGHT) else _BLOCK.sub("", text)
        return whole.rpartition("<notes>")[2].replace("</notes>", "").strip() or _NO_NOTES


def _open(protocol: Callable[..., Protocol], options: SolverOptions) -> Solver:
    return Solver(protocol(**options.prompts), options.plain_pay)


RAG = SolverDialect(partial(_open, partial(UntrainedSolver, "rag")), limits=Limits(max_turns=2))
SEARCH_O1 = SolverDialect(partial(_open, SearchO1Solver))
IRCOT = SolverDialect(partial(_open, partial(UntrainedSolver, "ircot")), limits=Limits(max_turns=6, turn_tokens=128))
