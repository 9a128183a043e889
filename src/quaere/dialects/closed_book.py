"""The closed-book dialect: one turn, no tools, the answer between tags (`eval --closed-book`, and EVE's verifier).

Its solvers are the baselines `direct`, which answers at once, and `cot`, which thinks first. They show how much the
documents add to what the model already knows. The prompt does not mention searching, so a model that was taught to
search is not penalised for trying to.

    ClosedBook().read("It was her. <answer>Orsolya Venn</answer>") -> Answer(text="Orsolya Venn")

With a span of evidence above the question, the protocol measures what that span adds. Nothing else in the prompt
changes, so every difference in the answers is due to the span.
"""

from collections.abc import Sequence
from functools import partial

from quaere.chat.markup import THOUGHT, find_blocks, has_unclosed
from quaere.chat.protocol import EXAMPLES, Message, OneTurn, Part, Protocol, Quoted
from quaere.dialects.roles import RoleDialect, Solver, SolverDialect, SolverOptions, quote, read_first
from quaere.records import Action, Malformed, SolveTask, Task, Turn
from quaere.rollout.episode import Limits

ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"

_SYSTEM = """\
Answer the question from what you know. If you are not sure, give your best guess. Write the answer alone, as short as \
possible, between <answer> and </answer>."""

_THINKING = " Before that, think step by step between <think> and </think>."

_CITED_SYSTEM = """\
Answer the question from what you know. If you are not sure, give your best guess. Write one sentence that states the \
answer between <evidence> and </evidence>, and right after it the answer alone, as short as possible, between <answer> \
and </answer>."""


class ClosedBook(OneTurn):
    """Protocol that asks for the answer in one turn, without tools.

    `guided` shows two worked examples and opens the turn as an answer, for models too small to do so themselves. A
    `span` is shown above the question as quoted text, so control tokens or tags in it have no effect; a blank span
    counts as none. With `evidence`, the model also writes a sentence that states the answer, so that it can be compared
    with systems that search. No document is shown, so no such sentence is ever a verbatim quotation. With `thinks`, the
    model is asked to think first (chain of thought).

        ClosedBook(guided=True).prefix(turn=0, is_last=True) -> "<answer>"
        ClosedBook(span="Venn built it.").opening(task)[-1].text -> "Evidence:\\nVenn built it.\\n\\nQuestion:\\nWho?"
    """

    stop: tuple[str, ...] = (ANSWER_CLOSE,)
    reminder = "Put the answer between <answer> and </answer>."

    def __init__(self, *, guided: bool = False, span: str = "", evidence: bool = False, thinks: bool = False) -> None:
        self.guided, self.evidence, self.thinks = guided, evidence, thinks
        self.span = span if span.strip() else ""
        marks = {"-evidence": evidence, "-guided": guided, "-with-span": bool(self.span), "-cot": thinks}
        self.name = "closed-book" + "".join(mark for mark, wanted in marks.items() if wanted)

    def opening(self, task: Task) -> list[Message]:
        """The system prompt, worked examples if guided, the span if there is one, then the question."""
        if not isinstance(task, SolveTask):
            raise TypeError(f"{self.name} answers questions; it got a {type(task).__name__}")
        system = _CITED_SYSTEM if self.evidence else _SYSTEM
        messages = [Message("system", (system + (_THINKING if self.thinks else ""),))]
        for asked, _, _, passage, answer in EXAMPLES if self.guided else ():
            said = quote(passage.split(". ", 1)[1] if self.evidence else "")
            messages += [
                Message("user", (f"Question:\n{asked}",)),
                Message("assistant", (f"{said}<answer>{answer}</answer>",)),
            ]
        evidence: tuple[Part, ...] = ("Evidence:\n", Quoted(self.span), "\n\n") if self.span else ()
        return [*messages, Message("user", (*evidence, "Question:\n", Quoted(task.question.text)))]

    def prefix(self, turn: int, is_last: bool) -> str:
        """The start of a guided turn: `<evidence>` or `<answer>`; "" if the policy is not guided."""
        start = "<evidence>" if self.evidence else ANSWER_OPEN
        return start if self.guided else ""

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first answer outside a thought, with the last `<evidence>` block before it."""
        blocks = find_blocks(text, ("think", "answer", "evidence") if self.evidence else ("think", "answer"))
        missing = "the think block is not closed" if has_unclosed(text, THOUGHT) else "there is no answer"
        return read_first(blocks, {}) or Malformed(missing)


def _open_solver(options: SolverOptions, *, thinks: bool) -> Solver:
    return Solver(ClosedBook(guided=options.guided, evidence=options.evidence, thinks=thinks), options.plain_pay)


VERIFIER: RoleDialect[Protocol] = RoleDialect(ClosedBook)
DIRECT = SolverDialect(partial(_open_solver, thinks=False), limits=Limits(max_turns=1), turns=("answer",))
COT = SolverDialect(partial(_open_solver, thinks=True), limits=Limits(max_turns=1), turns=("answer",))
