"""What a model knows without searching: one turn, no tools, the answer between tags.

The row of a table that shows what the documents add. The prompt does not mention searching, so a model that was taught
to search is not punished for trying to.

    ClosedBook().read("It was her. <answer>Orsolya Venn</answer>") -> Answer(text="Orsolya Venn")
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.chat.messages import Message, Quoted
from quaere.chat.tags import find_blocks
from quaere.chat.toolcall import EXAMPLES, MAX_ANSWER_CHARS
from quaere.chat.tools import ToolSchema
from quaere.errors import SearchFailed
from quaere.records import Action, Answer, Failure, Hit, Malformed, SearchResult, SolveTask, Task

_SYSTEM = """\
Answer the question from what you know. If you are not sure, give your best guess. Write the answer alone, as short as \
possible, between <answer> and </answer>."""


class ClosedBook:
    """Asks for the answer directly.

    `guided` shows two worked examples and opens the turn as an answer, for models too small to do so themselves.

    ClosedBook(guided=True).prefix(turn=0, is_last=True) -> "<answer>"
    """

    tools: tuple[ToolSchema, ...] = ()
    stop: tuple[str, ...] = ("</answer>",)

    def __init__(self, *, guided: bool = False) -> None:
        self.guided = guided
        self.name = "closed-book-guided" if guided else "closed-book"

    def opening(self, task: Task) -> list[Message]:
        """What to do, then the question."""
        if not isinstance(task, SolveTask):
            raise TypeError(f"{self.name} answers questions; it got a {type(task).__name__}")
        messages = [Message("system", (_SYSTEM,))]
        for asked, _, _, _, answer in EXAMPLES if self.guided else ():
            messages += [
                Message("user", (f"Question:\n{asked}",)),
                Message("assistant", (f"<answer>{answer}</answer>",)),
            ]
        return [*messages, Message("user", ("Question:\n", Quoted(task.question.text)))]

    def prefix(self, turn: int, is_last: bool) -> str:
        """In a guided episode, open every turn as an answer."""
        return "<answer>" if self.guided else ""

    def read(self, text: str) -> Action:
        """The first answer outside a thought."""
        for block in find_blocks(text, ("think", "answer")):
            if block.name == "answer":
                answer = block.content.strip()
                if 0 < len(answer) <= MAX_ANSWER_CHARS:
                    return Answer(text=answer)
                return Malformed(reason="the answer is too long" if answer else "the answer is empty")
        return Malformed(reason="there is no answer")

    def reply(self, action: Action, results: Sequence[SearchResult], failure: Failure | None) -> Message:
        """Ask again, where the limits leave a turn for it."""
        return Message("user", ("Put the answer between <answer> and </answer>.",))


class NoSearcher:
    """Stands where a searcher is expected and none is used."""

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Refuse: with the book closed there is nothing to search."""
        raise SearchFailed("there is nothing to search with the book closed", kind="rejected")

    async def close(self) -> None:
        """Nothing is held."""
